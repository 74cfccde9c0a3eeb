//! The pod network: KubeVirt's default, its rules and its words.

use agent_domain::{Attachment, MacAddress, NodeCaps, OpenPorts, PodBinding, Transport, Vmi};
use proto_node::{Node, from_node};
use serde_json::{Value, json};

use super::{admit, admit_with, caps, with};

/// The manifest with one masqueraded interface of the pod network, and these members of interface and network.
fn on_pod(interface: &Value, pod: &Value) -> Value {
    let mut nic = json!({"name": "default", "masquerade": {}});
    for (member, value) in interface.as_object().unwrap() {
        nic[member] = value.clone();
    }
    with(&[
        ("/spec/domain/devices/interfaces", json!([nic])),
        ("/spec/networks", json!([{"name": "default", "pod": pod}])),
    ])
}

fn vmi(manifest: Value) -> Vmi {
    admit(manifest).unwrap().vmi
}

fn silent() -> Value {
    with(&[
        ("/spec/networks", Value::Null),
        ("/spec/domain/devices/interfaces", Value::Null),
    ])
}

#[test]
fn a_vmi_that_names_no_network_is_masqueraded_on_the_pod_network() {
    let admitted = admit(silent()).unwrap();
    let [interface] = &*admitted.vmi.interfaces else {
        panic!("{:?}", admitted.vmi.interfaces);
    };
    let Attachment::Pod(pod) = &interface.attachment else {
        panic!("{interface:?}");
    };
    assert_eq!(
        (interface.name.as_str(), pod.binding),
        ("default", PodBinding::Masquerade)
    );
    assert_eq!(pod.v4.guest.to_string(), "10.0.2.2");
    assert_eq!(pod.v4.gateway.to_string(), "10.0.2.1");
    assert!(pod.ports.is_empty() && admitted.warnings.is_empty());
    assert_eq!(admitted.vmi.hostname, "web");
    // What is stored says it in so many words, and means the same when it is admitted again.
    let again = Vmi::admit(admitted.object.clone(), &caps()).unwrap();
    assert_eq!(again.object, admitted.object);
    assert_eq!(again.vmi, admitted.vmi);
}

#[test]
fn who_wants_no_interface_gets_none_and_what_ran_without_one_goes_on_so() {
    let mut without = silent();
    without["spec"]["domain"]["devices"]["autoattachPodInterface"] = json!(false);
    assert!(vmi(without).interfaces.is_empty());
    let old = from_node(&Node::from(silent())).unwrap();
    assert!(Vmi::restore(old).unwrap().vmi.interfaces.is_empty());
}

#[test]
fn a_node_without_the_pod_network_says_so() {
    let caps = NodeCaps {
        pod_network: None,
        ..caps()
    };
    let admitted = admit_with(silent(), &caps).unwrap();
    assert!(admitted.vmi.interfaces.is_empty());
    assert!(admitted.warnings[0].contains("switched off on node \"node1\""));
    let mut wanted = silent();
    wanted["spec"]["domain"]["devices"]["autoattachPodInterface"] = json!(true);
    let errors = admit_with(wanted, &caps).unwrap_err();
    assert!(
        errors[0].contains("autoattachPodInterface: Forbidden"),
        "{errors:?}"
    );
    let errors = admit_with(on_pod(&json!({}), &json!({})), &caps).unwrap_err();
    assert!(
        errors[0].starts_with("spec.networks[0].pod: Forbidden: the pod network is switched off")
    );
}

#[test]
fn the_guests_network_ports_and_options_are_those_of_the_manifest() {
    let interface = json!({
        "ports": [{"name": "http", "port": 80}, {"port": 53, "protocol": "UDP"}],
        "dhcpOptions": {"bootFileName": "pxelinux.0", "ntpServers": ["192.0.2.1"], "privateOptions": [{"option": 240, "value": "x"}]},
    });
    let vmi = vmi(on_pod(
        &interface,
        &json!({"vmNetworkCIDR": "192.168.7.128/25"}),
    ));
    let (0, pod) = vmi.pod_interface().unwrap() else {
        panic!("{vmi:?}");
    };
    assert_eq!(pod.v4.guest.to_string(), "192.168.7.130");
    let port = |transport, port| OpenPorts {
        transport,
        first: port,
        last: port,
    };
    assert_eq!(
        pod.ports,
        [port(Transport::Tcp, 80), port(Transport::Udp, 53)]
    );
    assert_eq!(pod.dhcp.boot_file, "pxelinux.0");
    assert_eq!(pod.dhcp.private, [(240, String::from("x"))]);
    let ranges = json!({"portRanges": [{"protocol": "TCP", "start": 6000, "end": 6009}]});
    let vmi = self::vmi(on_pod(&ranges, &json!({})));
    let (_, pod) = vmi.pod_interface().unwrap();
    assert_eq!((pod.ports[0].first, pod.ports[0].last), (6000, 6009));
}

#[test]
fn a_virtual_machine_keeps_its_hardware_address() {
    let run = |uid: &str, owner: Option<&str>| {
        let mut manifest = silent();
        manifest["metadata"]["uid"] = json!(uid);
        if let Some(owner) = owner {
            manifest["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": owner, "controller": true,
            }]);
        }
        vmi(manifest).interfaces[0].mac
    };
    let first: MacAddress = run("run-1", Some("machine"));
    assert_eq!(run("run-2", Some("machine")), first);
    assert_ne!(run("run-2", None), first);
}

/// KubeVirt's answers, from its own admitters (`pkg/network/admitter`, `vmi-create-admitter.go`); ours where it says
/// nothing.
#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_kubevirt_refuses_is_refused_in_its_words() {
    let interface = "spec.domain.devices.interfaces[0]";
    let table: &[(Value, &str, &str)] = &[
        (
            json!({"ports": [{"port": 0}]}),
            ".ports[0].port",
            "Required value: Port field is mandatory.",
        ),
        (
            json!({"ports": [{"port": 65536}]}),
            ".ports[0].port",
            "Port field must be in range 0 < x < 65536.",
        ),
        (
            json!({"ports": [{"port": -1}]}),
            ".ports[0].port",
            "Port field must be in range 0 < x < 65536.",
        ),
        (
            json!({"ports": [{"port": 80, "protocol": "SCTP"}]}),
            ".ports[0].protocol",
            "Unknown protocol, only TCP or UDP allowed",
        ),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}),
            ".ports[1].name",
            "Duplicate name of the port: a",
        ),
        (
            json!({"ports": [{"name": "No", "port": 80}]}),
            ".ports[0].name",
            "Invalid name of the port: No",
        ),
        (
            json!({"ports": [{"port": 80}], "portRanges": [{"protocol": "TCP", "start": 1, "end": 2}]}),
            ".name",
            "Cannot define both ports and portRanges on interface",
        ),
        (
            json!({"portRanges": [{"protocol": "TCP", "start": 1, "end": 9}, {"protocol": "TCP", "start": 9, "end": 10}]}),
            ".portRanges",
            "TCP portRanges [1-9] and [9-10] overlap",
        ),
        (
            json!({"portRanges": [{"protocol": "TCP", "start": 0, "end": 9}]}),
            ".portRanges[0].start",
            "Start must be a valid port number, 0 < x < 65536",
        ),
        (
            json!({"portRanges": [{"protocol": "UDP", "start": 1, "end": 65536}]}),
            ".portRanges[0].end",
            "End must be a valid port number, 0 < x < 65536",
        ),
        (
            json!({"portRanges": [{"protocol": "UDP", "start": 9, "end": 8}]}),
            ".portRanges[0].start",
            "Start must be less than or equal to end",
        ),
        (
            json!({"portRanges": [{"start": 9, "end": 9}]}),
            ".portRanges[0].protocol",
            "Unknown protocol, only TCP or UDP allowed",
        ),
        (
            json!({"portRanges": vec![json!({"protocol": "TCP", "start": 1, "end": 1}); 11]}),
            ".portRanges",
            "No more than 10 portRanges are allowed",
        ),
        (
            json!({"macAddress": "02:00:00:00:00:00"}),
            ".macAddress",
            "The requested MAC address is reserved for the in-pod bridge. Please choose another one.",
        ),
        (
            json!({"macAddress": "01:00:5e:00:00:01"}),
            ".macAddress",
            "must be a unicast address that is not all zero",
        ),
        (
            json!({"macAddress": "fe:16:3e:00:00:01"}),
            ".macAddress",
            "choose one that does not begin with fe",
        ),
        (
            json!({"state": "absent"}),
            ".state",
            "\"default\" interface's state \"absent\" is supported only for bridge binding",
        ),
        (
            json!({"bridge": {}}),
            "",
            "logical default interface must have exactly one binding method or binding plugin",
        ),
        (
            json!({"dhcpOptions": {"ntpServers": ["2001:db8::1"]}}),
            ".dhcpOptions.ntpServers[0]",
            "NTP servers must be a list of valid IPv4 addresses.",
        ),
        (
            json!({"dhcpOptions": {"bootFileName": "a\u{7}"}}),
            ".dhcpOptions.bootFileName",
            "must be printable ASCII",
        ),
    ];
    for (members, field, words) in table {
        let errors = admit(on_pod(members, &json!({}))).unwrap_err();
        let path = format!("{interface}{field}: ");
        let is_said = |error: &&String| error.starts_with(&path) && error.contains(words);
        assert!(
            errors.iter().any(|error| is_said(&error)),
            "{members}: {errors:?} lacks {path}{words}"
        );
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_kubevirt_refuses_elsewhere_names_its_own_fields() {
    let private = |options: Value| {
        let options = json!({"dhcpOptions": {"privateOptions": options}});
        on_pod(&options, &json!({}))
    };
    let two = with(&[
        (
            "/spec/domain/devices/interfaces",
            json!([{"name": "a", "masquerade": {}}, {"name": "b", "masquerade": {}}]),
        ),
        (
            "/spec/networks",
            json!([{"name": "a", "pod": {}}, {"name": "b", "pod": {}}]),
        ),
    ]);
    let multus = with(&[(
        "/spec/domain/devices/interfaces",
        json!([{"name": "net", "masquerade": {}}]),
    )]);
    let dns = |config: Value| {
        with(&[
            ("/spec/dnsPolicy", json!("None")),
            ("/spec/dnsConfig", config),
        ])
    };
    let table = [
        (
            private(json!([{"option": 223, "value": "x"}])),
            "spec: Invalid value: \"223\": provided DHCPPrivateOptions are out of range, must be in range 224 to 254",
        ),
        (
            private(json!([{"option": 240, "value": "x"}, {"option": 240, "value": "y"}])),
            "spec: Invalid value: Found Duplicates: you have provided duplicate DHCPPrivateOptions",
        ),
        (
            two,
            "spec.interfaces: Duplicate value: more than one interface is connected to a pod network in spec.interfaces",
        ),
        (
            multus,
            "spec.domain.devices.interfaces[0].name: Invalid value: Masquerade interface only implemented with pod network",
        ),
        (
            on_pod(&json!({}), &json!({"vmNetworkCIDR": "10.213.4.0/24"})),
            "spec.networks[0].pod.vmNetworkCIDR: Invalid value: \"10.213.4.0/24\": overlaps 10.213.0.0/16",
        ),
        (
            on_pod(&json!({}), &json!({"vmNetworkCIDR": "10.0.2.0/31"})),
            "spec.networks[0].pod.vmNetworkCIDR: Invalid value: \"10.0.2.0/31\": must be a network",
        ),
        (
            on_pod(&json!({}), &json!({"vmIPv6NetworkCIDR": "fd10::"})),
            "spec.networks[0].pod.vmIPv6NetworkCIDR: Invalid value",
        ),
        (
            on_pod(
                &json!({}),
                &json!({"vmIPv6NetworkCIDR": "fd00:1:2:3::/120"}),
            ),
            "spec.networks[0].pod.vmIPv6NetworkCIDR: Invalid value: \"fd00:1:2:3::/120\": overlaps fd00:1:2:3::/64, the pool",
        ),
        (
            dns(json!({})),
            "nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        (
            dns(json!({"nameservers": ["a"]})),
            "nameservers: Invalid value: \"a\": must be valid IP address: a",
        ),
        (
            dns(json!({"nameservers": ["192.0.2.1"], "searches": ["UPPER"]})),
            "searchDomains: Invalid value: \"UPPER\": a lowercase RFC 1123 subdomain",
        ),
        (
            dns(json!({"nameservers": ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]})),
            "nameservers: Invalid value: must not have more than 3 nameservers",
        ),
        (
            with(&[("/spec/dnsPolicy", json!("Mine"))]),
            "spec.dnsPolicy: Unsupported value: \"Mine\": DNSPolicy: Mine is not supported",
        ),
    ];
    for (manifest, words) in table {
        let errors = admit(manifest).unwrap_err();
        assert!(
            errors.iter().any(|error| error.starts_with(words)),
            "{errors:?} lacks {words}"
        );
    }
}

#[test]
fn a_name_that_is_too_long_is_not_one_of_other_characters() {
    let refused = |field: &str, name: String| admit(with(&[(field, json!(name))])).unwrap_err();
    let errors = refused("/spec/hostname", "x".repeat(64));
    assert_eq!(errors.len(), 1, "{errors:?}");
    let words = "spec.hostname does not conform to the kubernetes DNS_LABEL rules : must be no more than 63 characters";
    assert!(errors[0].ends_with(words), "{errors:?}");
    let errors = refused("/spec/subdomain", format!("{}_", "x".repeat(253)));
    let words = "DNS_SUBDOMAIN rules : must be no more than 253 characters, a lowercase RFC 1123 subdomain must consist";
    assert!(errors[0].contains(words), "{errors:?}");
}

#[test]
fn fields_of_the_pod_network_elsewhere_have_no_effect_or_are_refused() {
    let nic = |members: Value| {
        let mut nic = json!({"name": "net", "bridge": {}});
        nic.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        with(&[
            ("/spec/domain/devices/interfaces", json!([nic])),
            ("/spec/hostname", json!("db")),
        ])
    };
    let admitted = admit(nic(json!({"ports": [{"port": 80}]}))).unwrap();
    let ignored: Vec<&str> = admitted
        .ignored
        .iter()
        .map(|remark| remark.path.as_str())
        .collect();
    assert_eq!(
        ignored,
        ["spec.domain.devices.interfaces[0].ports", "spec.hostname"]
    );
    let errors = admit(nic(json!({"dhcpOptions": {}}))).unwrap_err();
    assert!(
        errors[0].contains("the node answers DHCP on the pod network only"),
        "{errors:?}"
    );
}

#[test]
fn a_guest_may_be_bridged_to_the_pod_network() {
    let bridged = |nic: Value| {
        let mut interface = json!({"name": "default", "bridge": {}});
        let members = nic.as_object().unwrap().clone();
        interface.as_object_mut().unwrap().extend(members);
        with(&[
            ("/spec/domain/devices/interfaces", json!([interface])),
            ("/spec/networks", json!([{"name": "default", "pod": {}}])),
        ])
    };
    let admitted = admit(bridged(json!({"ports": [{"port": 80}]}))).unwrap();
    let (_, interface) = admitted.vmi.pod_interface().unwrap();
    assert_eq!(interface.binding, PodBinding::Bridge);
    assert_eq!(interface.ports, []);
    let ignored: Vec<&str> = admitted
        .ignored
        .iter()
        .map(|remark| remark.path.as_str())
        .collect();
    assert_eq!(ignored, ["spec.domain.devices.interfaces[0].ports"]);
    let own_network = with(&[
        (
            "/spec/domain/devices/interfaces",
            json!([{"name": "default", "bridge": {}}]),
        ),
        (
            "/spec/networks",
            json!([{"name": "default", "pod": {"vmNetworkCIDR": "10.213.4.0/24"}}]),
        ),
    ]);
    let ignored = admit(own_network).unwrap().ignored;
    assert_eq!(
        ignored.first().map(|remark| &*remark.path),
        Some("spec.networks[0].pod.vmNetworkCIDR")
    );
    let ranges = json!({"portRanges": [{"protocol": "TCP", "start": 1, "end": 2}]});
    let errors = admit(bridged(ranges)).unwrap_err();
    let words = "portRanges are only supported on masquerade interfaces";
    assert!(errors[0].contains(words), "{errors:?}");
    // Addresses of others on the bridge: a guest's veth at 10.213.0.7, and the node's.
    for (mac, words) in [
        ("0a:58:0a:d5:00:07", "links of the pod network"),
        ("fe:58:0a:d5:00:07", "does not begin with fe"),
    ] {
        let errors = admit(bridged(json!({"macAddress": mac}))).unwrap_err();
        assert!(errors[0].contains(words), "{errors:?}");
    }
    assert!(admit(bridged(json!({"macAddress": "02:58:0a:d5:00:07"}))).is_ok());
}
