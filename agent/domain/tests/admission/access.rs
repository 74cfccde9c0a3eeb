//! Keys, passwords, service accounts and metadata for guests, in KubeVirt's words.

use agent_domain::{
    AccessCredential, CloudInitKind, DataVolumeSource, MetadataField, MetadataFile, Propagation,
};

use super::*;

fn with_volumes(volumes: &[Value], more: &[(&str, Value)]) -> Value {
    let volumes: Vec<(&str, Value)> = volumes
        .iter()
        .map(|volume| ("/spec/volumes/-", volume.clone()))
        .collect();
    with(&[&volumes[..], more].concat())
}

fn keys(method: &Value) -> Value {
    json!({"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}, "propagationMethod": method}})
}

#[test]
fn credentials_go_by_cloud_init_or_by_the_guest_agent() {
    let passwords = json!({"userPassword": {
        "source": {"secret": {"secretName": "words"}},
        "propagationMethod": {"qemuGuestAgent": {}},
    }});
    let credentials = json!([
        keys(&json!({"noCloud": {}})),
        keys(&json!({"qemuGuestAgent": {"users": ["fedora", "root"]}})),
        passwords,
    ]);
    let seed = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}});
    let manifest = with_volumes(&[seed], &[("/spec/accessCredentials", credentials)]);
    let of = |secret: &str, propagation| AccessCredential {
        secret: secret.to_owned(),
        propagation,
    };
    let users = ["fedora", "root"].map(str::to_owned).to_vec();
    assert_eq!(
        admit(manifest).unwrap().vmi.access_credentials,
        [
            of("keys", Propagation::CloudInit(CloudInitKind::NoCloud)),
            of("keys", Propagation::AgentKeys { users }),
            of("words", Propagation::AgentPasswords),
        ]
    );
}

#[test]
fn credentials_that_kubevirt_refuses_are_refused_in_its_words() {
    let at = "spec.accessCredentials[0]";
    let source = json!({"secret": {"secretName": "keys"}});
    for (credential, words) in [
        (
            json!({}),
            "must have exactly one access credential type set",
        ),
        (
            keys(&json!({"noCloud": {}})),
            "requires a noCloud volume to exist when the noCloud propagationMethod is in use.",
        ),
        (
            keys(&json!({"configDrive": {}})),
            "requires a configDrive volume to exist when the configDrive propagationMethod is in use.",
        ),
        (
            keys(&json!({"qemuGuestAgent": {}})),
            "requires at least one user to be present in the users list",
        ),
        (
            keys(&json!({})),
            "must have exactly one propagationMethod set",
        ),
        (
            keys(&json!({"qemuGuestAgent": {"users": ["a"]}, "noCloud": {}})),
            "must have exactly one propagationMethod set",
        ),
        (
            json!({"sshPublicKey": {"propagationMethod": {"qemuGuestAgent": {"users": ["a"]}}}}),
            "must have exactly one source set",
        ),
        (
            json!({"userPassword": {"source": source}}),
            "must have exactly one propagationMethod set",
        ),
        (
            json!({"userPassword": {"propagationMethod": {"qemuGuestAgent": {}}}}),
            "must have exactly one source set",
        ),
    ] {
        let errors = refused(&[("/spec/accessCredentials", json!([credential]))]);
        let expected = format!("{at} {words}");
        assert!(
            errors.iter().any(|error| error.contains(&expected)),
            "{credential}: {errors:?}"
        );
    }
    let odd = keys(&json!({"qemuGuestAgent": {"users": ["root:x"]}}));
    let errors = refused(&[("/spec/accessCredentials", json!([odd]))]);
    assert!(
        errors[0].contains("qemuGuestAgent.users[0]: Invalid value: \"root:x\""),
        "{errors:?}"
    );
}

fn data_of(admitted: &Admitted, name: &str) -> (String, DataVolumeSource) {
    let mut disks = admitted.vmi.disks.iter();
    let disk = disks.find(|disk| disk.name.as_str() == name).unwrap();
    assert!(disk.read_only);
    match &disk.source {
        DiskSource::Data(volume) => (volume.label.clone(), volume.source.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn service_accounts_and_metadata_become_volumes() {
    let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let fields = json!([
        field("labels", "metadata.labels"),
        field("of/team", "metadata.labels['example.org/team']"),
        field("of/uid", "metadata.uid"),
    ]);
    let manifest = with_volumes(
        &[
            json!({"name": "account", "serviceAccount": {"serviceAccountName": "robot"}}),
            json!({"name": "meta", "downwardAPI": {"fields": fields, "volumeLabel": "META"}}),
        ],
        &[("/spec/serviceAccountName", json!("robot"))],
    );
    let admitted = admit(manifest).unwrap();
    let name = String::from("robot");
    assert_eq!(
        data_of(&admitted, "account"),
        (
            String::from("cfgdata"),
            DataVolumeSource::ServiceAccount { name }
        )
    );
    let file = |path: &str, field| MetadataFile {
        path: path.to_owned(),
        field,
    };
    let files = vec![
        file("labels", MetadataField::Labels),
        file(
            "of/team",
            MetadataField::Label(String::from("example.org/team")),
        ),
        file("of/uid", MetadataField::Uid),
    ];
    assert_eq!(
        data_of(&admitted, "meta"),
        (String::from("META"), DataVolumeSource::Metadata(files))
    );
}

#[test]
fn two_service_accounts_and_another_than_the_spec_names_are_refused() {
    let account =
        |name: &str, of: &str| json!({"name": name, "serviceAccount": {"serviceAccountName": of}});
    let refusals = |volumes: &[Value], account: &str| {
        admit(with_volumes(
            volumes,
            &[("/spec/serviceAccountName", json!(account))],
        ))
        .unwrap_err()
    };
    let errors = refusals(&[account("one", "a"), account("two", "a")], "a");
    assert!(
        errors[0].contains("spec.volumes must have max one serviceAccount volume set"),
        "{errors:?}"
    );
    let errors = refusals(&[account("one", "a")], "b");
    let words = "spec.serviceAccountName \"b\" and serviceAccount volume \"a\" must reference the same service account";
    assert!(errors[0].contains(words), "{errors:?}");
    let errors = refusals(&[account("one", "")], "");
    assert!(
        errors[0].contains("serviceAccountName is a required field"),
        "{errors:?}"
    );
}

#[test]
fn files_of_metadata_stay_on_their_volume_and_name_what_there_is() {
    let of = |fields: Value| {
        let volume = json!({"name": "meta", "downwardAPI": {"fields": fields}});
        admit(with_volumes(&[volume], &[]))
            .err()
            .unwrap_or_default()
    };
    let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    for (fields, words) in [
        (
            json!([field("/etc/passwd", "metadata.name")]),
            "must be a relative path",
        ),
        (
            json!([field("a/../../b", "metadata.name")]),
            "must not contain '..'",
        ),
        (
            json!([field("..data", "metadata.name")]),
            "must not start with '..'",
        ),
        (
            json!([field("a//b", "metadata.name")]),
            "in at most 7 directories",
        ),
        (
            json!([field("a/b/c/d/e/f/g/h/i", "metadata.name")]),
            "in at most 7 directories",
        ),
        (
            json!([field("", "metadata.name")]),
            "names the file on the volume",
        ),
        (
            json!([field("a", "metadata.name"), field("a/b", "metadata.uid")]),
            "is the path of another file, or the directory of one",
        ),
        (
            json!([field("a/b", "metadata.name"), field("a", "metadata.uid")]),
            "is the path of another file, or the directory of one",
        ),
        (
            json!([field("a", "status.podIP")]),
            "must be one of: metadata.name",
        ),
        (
            json!([field("a", "metadata.labels['no key']")]),
            "must be one of: metadata.name",
        ),
        (json!([{"path": "a"}]), "names the field"),
        (
            json!([{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]),
            "not supported by this release",
        ),
        (
            json!([{"path": "a", "fieldRef": {"fieldPath": "metadata.name", "apiVersion": "v2"}}]),
            "must be v1",
        ),
    ] {
        let errors = of(fields.clone());
        assert!(
            errors.iter().any(|error| error.contains(words)),
            "{fields}: {errors:?}"
        );
    }
}
