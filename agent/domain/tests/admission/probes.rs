//! Probes: defaults, bounds and messages of KubeVirt and of the pods that it makes.

use agent_domain::{Endpoint, HttpQuestion, Probe, Question};

use super::*;

const LIVENESS: &str = "/spec/livenessProbe";
const READINESS: &str = "/spec/readinessProbe";

fn readiness(probe: Value) -> Probe {
    let admitted = admit(with(&[(READINESS, probe)])).unwrap();
    assert!(admitted.ignored.is_empty() && admitted.warnings.is_empty());
    admitted.vmi.probes.readiness.unwrap()
}

#[test]
fn what_is_left_out_or_less_than_one_is_kubevirts_default_and_stored() {
    let admitted = admit(with(&[
        (READINESS, json!({"guestAgentPing": {}})),
        (
            LIVENESS,
            json!({
                "exec": {"command": ["cat", "/run/alive"]}, "initialDelaySeconds": 120, "periodSeconds": 20,
                "timeoutSeconds": -5, "failureThreshold": 0,
            }),
        ),
    ]))
    .unwrap();
    let stored = to_json(&admitted.object);
    let expected = json!({
        "guestAgentPing": {}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
        "failureThreshold": 3,
    });
    assert_eq!(stored["spec"]["readinessProbe"], expected);
    assert_eq!(stored["spec"]["livenessProbe"]["timeoutSeconds"], 1);
    let seconds = Duration::from_secs;
    let expected = Probe {
        question: Question::Exec(vec!["cat".to_owned(), "/run/alive".to_owned()]),
        initial_delay: seconds(120),
        timeout: seconds(1),
        period: seconds(20),
        success_threshold: 1,
        failure_threshold: 3,
    };
    assert_eq!(admitted.vmi.probes.liveness, Some(expected));
    let again = Vmi::restore(admitted.object).unwrap();
    assert_eq!(again.vmi.probes, admitted.vmi.probes);
    assert_eq!(admit(manifest()).unwrap().vmi.probes, Default::default());
}

#[test]
fn a_probe_may_go_over_the_pod_network_that_a_guest_has_by_default() {
    let value = with(&[
        (LIVENESS, json!({"httpGet": {"port": 80}})),
        ("/spec/networks", Value::Null),
        ("/spec/domain/devices/interfaces", Value::Null),
    ]);
    let admitted = admit(value.clone()).unwrap();
    assert_eq!(admitted.vmi.interfaces.len(), 1);
    assert!(admitted.vmi.probes.liveness.is_some());
    // KubeVirt takes it all the same where a node has none.
    let mut node = caps();
    node.pod_network = None;
    let object: proto_node::vmi::VirtualMachineInstance = from_node(&Node::from(value)).unwrap();
    let errors = Vmi::admit(object, &node).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].bound, agent_domain::Bound::Node);
}

#[test]
fn a_probe_is_one_question() {
    assert_eq!(
        refused(&[(READINESS, json!({"periodSeconds": 5}))]),
        [
            "spec.readinessProbe: Required value: either spec.readinessProbe.tcpSocket, spec.readinessProbe.exec or \
             spec.readinessProbe.httpGet must be set if a spec.readinessProbe is specified (or guestAgentPing: {})"
        ]
    );
    let two = json!({"guestAgentPing": {}, "tcpSocket": {"port": 22}});
    assert_eq!(
        refused(&[(LIVENESS, two)]),
        [
            "spec.livenessProbe: Invalid value: spec.livenessProbe must have exactly one probe type set"
        ]
    );
    for command in [json!({}), json!({"command": []}), json!({"command": [""]})] {
        assert_eq!(
            refused(&[(LIVENESS, json!({"exec": command}))]),
            ["spec.livenessProbe.exec.command: Required value"]
        );
    }
    let long = vec!["x"; 257];
    let errors = refused(&[(LIVENESS, json!({"exec": {"command": long}}))]);
    assert!(errors[0].contains("at most 256 words"), "{errors:?}");
}

#[test]
fn numbers_have_the_bounds_of_a_pods() {
    let liveness = json!({
        "guestAgentPing": {}, "successThreshold": 2, "initialDelaySeconds": -1,
    });
    assert_eq!(
        refused(&[(LIVENESS, liveness)]),
        [
            "spec.livenessProbe.initialDelaySeconds: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.livenessProbe.successThreshold: Invalid value: \"2\": must be 1",
        ]
    );
    let slow = readiness(
        json!({"guestAgentPing": {}, "successThreshold": 2, "failureThreshold": 2_147_483_647}),
    );
    assert_eq!(
        (slow.success_threshold, slow.failure_threshold),
        (2, 2_147_483_647)
    );
}

#[test]
fn who_is_asked_is_an_address_and_a_port_by_number_or_by_name_of_an_interface() {
    let tcp = |tcp: Value| readiness(json!({ "tcpSocket": tcp })).question;
    let own = |port| Question::Tcp(Endpoint { host: None, port });
    assert_eq!(tcp(json!({"port": 22})), own(22));
    assert_eq!(tcp(json!({"port": "22"})), own(22));
    let host = Some("10.77.0.2".parse().unwrap());
    let elsewhere = Question::Tcp(Endpoint { host, port: 80 });
    assert_eq!(tcp(json!({"port": 80, "host": "10.77.0.2"})), elsewhere);
    let named = admit(with(&[
        (READINESS, json!({"tcpSocket": {"port": "web"}})),
        (
            "/spec/domain/devices/interfaces",
            json!([
                {"name": "net", "bridge": {}, "ports": [{"name": "ssh", "port": 22}, {"name": "web", "port": 8080}]},
            ]),
        ),
    ]));
    assert_eq!(
        named.unwrap().vmi.probes.readiness.unwrap().question,
        own(8080)
    );
    for (tcp, expected) in [
        (
            json!({"port": 0}),
            ".port: Invalid value: \"0\": must be between 1 and 65535, inclusive",
        ),
        (json!({"port": 1e30}), ".port: Invalid value"),
        (
            json!({"port": {}}),
            ".port: Invalid value: \"{}\": must be a number or a name",
        ),
        (json!({}), ".port: Required value"),
        (
            json!({"port": "web"}),
            "no interface of the VMI has a port of this name",
        ),
        (
            json!({"port": 1, "host": "db.example"}),
            "names are not looked up for probes",
        ),
        (
            json!({"port": 1, "host": "127.0.0.1"}),
            "must be an address of the guest's network",
        ),
        (
            json!({"port": 1, "host": "169.254.169.254"}),
            "must be an address of the guest's network",
        ),
        (
            json!({"port": 1, "host": "::ffff:127.0.0.1"}),
            "must be an address of the guest's network",
        ),
    ] {
        let errors = refused(&[(READINESS, json!({ "tcpSocket": tcp }))]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("spec.readinessProbe.tcpSocket."),
            "{errors:?}"
        );
        assert!(errors[0].contains(expected), "{errors:?}");
    }
}

#[test]
fn a_guest_without_an_interface_is_not_asked_over_the_network() {
    let bare = |probe: Value| {
        refused(&[
            (READINESS, probe),
            ("/spec/networks", Value::Null),
            ("/spec/domain/devices/interfaces", Value::Null),
            ("/spec/domain/devices/autoattachPodInterface", json!(false)),
        ])
    };
    let errors = bare(json!({"httpGet": {"port": 80}}));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with(
            "spec.readinessProbe.httpGet: Invalid value: spec.readinessProbe.httpGet is only allowed if the Pod \
             Network is attached ("
        ),
        "{errors:?}"
    );
}

#[test]
fn a_request_is_what_was_asked_for_and_nothing_can_be_smuggled_into_it() {
    let get = |get: Value| match readiness(json!({ "httpGet": get })).question {
        Question::Http(question) => question,
        other => panic!("{other:?}"),
    };
    let expected = HttpQuestion {
        endpoint: Endpoint {
            host: None,
            port: 443,
        },
        path: "/healthz".to_owned(),
        tls: true,
        headers: vec![("X-A".to_owned(), "b c".to_owned())],
    };
    let asked = json!({
        "port": 443, "path": "/healthz", "scheme": "HTTPS", "httpHeaders": [{"name": "X-A", "value": "b c"}],
    });
    assert_eq!(get(asked), expected);
    assert_eq!(get(json!({"port": 80})).path, "/");
    for (asked, expected) in [
        (
            json!({"port": 80, "scheme": "FTP"}),
            "supported values: \"HTTP\", \"HTTPS\"",
        ),
        (
            json!({"port": 80, "httpHeaders": [{"name": "X A", "value": ""}]}),
            "a valid HTTP header must consist of",
        ),
        (
            json!({"port": 80, "httpHeaders": [{"name": "X", "value": "a\r\nY: b"}]}),
            "must not contain control",
        ),
    ] {
        let errors = refused(&[(READINESS, json!({ "httpGet": asked }))]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(expected), "{errors:?}");
    }
}
