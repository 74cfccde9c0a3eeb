//! What single fields lead to.

use super::*;

#[test]
fn buses_and_models_other_than_virtio_are_substituted_with_a_warning() {
    let value = with(&[
        (
            "/spec/domain/devices/disks/-",
            json!({"name": "scratch", "cdrom": {"bus": "sata"}}),
        ),
        (
            "/spec/domain/devices/interfaces",
            json!([{"name": "net", "bridge": {}, "model": "e1000e"}]),
        ),
    ]);
    let admitted = admit(value.clone()).unwrap();
    let paths: Vec<&str> = admitted
        .substituted
        .iter()
        .map(|remark| remark.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.domain.devices.disks[1].cdrom",
            "spec.domain.devices.interfaces[0].model"
        ]
    );
    let messages = admitted.substituted.iter();
    let messages: Vec<&str> = messages.map(|remark| remark.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "CD-ROM \"scratch\" is provided as virtio: it is a read-only disk, so there is no /dev/sr0; mount it by its label, or find it by its serial",
            "model \"e1000e\" is provided as virtio"
        ]
    );
    assert_eq!(admitted.warnings.len(), 2);
    assert!(admitted.vmi.disks[1].read_only);
    let mut strict = caps();
    strict.refuse_substitution = true;
    assert_eq!(admit_with(value, &strict).unwrap_err().len(), 2);
}

#[test]
fn a_guest_larger_than_the_node_is_warned_of_and_may_wait() {
    let admitted = admit(with(&[("/spec/domain/memory/guest", json!("17Gi"))])).unwrap();
    assert_eq!(
        admitted.warnings,
        [
            "spec.domain.memory.guest: 17Gi is more than the memory of node \"node1\", which has 16384Mi: \
             the VMI waits for room (condition PodScheduled)"
        ]
    );
    assert_eq!(admitted.vmi.memory_bytes, 17 << 30);
    // Applied again, the object that was stored is warned of in the same words.
    for resources in [
        json!({"requests": {"memory": "17Gi"}}),
        json!({"limits": {"memory": "17Gi"}}),
    ] {
        let asked = admit(with(&[
            ("/spec/domain/memory", Value::Null),
            ("/spec/domain/resources", resources),
        ]))
        .unwrap();
        assert_eq!(asked.warnings, admitted.warnings);
        assert_eq!(Vmi::admit(asked.object.clone(), &caps()).unwrap(), asked);
    }
}

#[test]
fn fields_without_effect_are_accepted_and_named() {
    let admitted = admit(with(&[
        ("/spec/domain/ioThreadsPolicy", json!("auto")),
        ("/spec/schedulerName", json!("mine")),
    ]))
    .unwrap();
    let paths: Vec<&str> = admitted
        .ignored
        .iter()
        .map(|remark| remark.path.as_str())
        .collect();
    assert_eq!(paths, ["spec.domain.ioThreadsPolicy", "spec.schedulerName"]);
}

#[test]
fn what_identifies_the_machine_is_read_and_the_uuid_derived() {
    let derived = admit(manifest()).unwrap();
    let uuid = to_json(&derived.object)["spec"]["domain"]["firmware"]["uuid"].clone();
    let digits: String = derived
        .vmi
        .identity
        .system
        .uuid
        .map(|byte| format!("{byte:02x}"))
        .concat();
    assert_eq!(uuid.as_str().unwrap().replace('-', ""), digits);
    let named = admit(with(&[
        (
            "/spec/domain/firmware/uuid",
            json!("5d307ca9-b3ef-428c-8861-06e72d69f223"),
        ),
        (
            "/spec/domain/firmware/serial",
            json!("e4686d2c-6e8d-4335-b8fd-81bee22f4815"),
        ),
        (
            "/spec/domain/chassis",
            json!({"manufacturer": "ACME", "asset": "A 7"}),
        ),
    ]))
    .unwrap();
    assert!(named.ignored.is_empty());
    let identity = named.vmi.identity;
    assert_eq!(
        (identity.system.uuid[0], identity.system.uuid[15]),
        (0x5d, 0x23)
    );
    assert_eq!(
        identity.system.serial,
        "e4686d2c-6e8d-4335-b8fd-81bee22f4815"
    );
    let chassis = identity.chassis;
    assert_eq!(
        (chassis.manufacturer.as_str(), chassis.asset.as_str()),
        ("ACME", "A 7")
    );
    assert_eq!(chassis.sku, "");
}

#[test]
fn devices_may_ask_for_pci_addresses_of_their_own() {
    const DISK: &str = "/spec/domain/devices/disks/0/disk";
    const INTERFACE: &str = "/spec/domain/devices/interfaces/0/pciAddress";
    let admitted = admit(with(&[
        (DISK, json!({"pciAddress": "0000:00:1e.0"})),
        (INTERFACE, json!("0000:81:00.0")),
    ]))
    .unwrap();
    let disk = admitted.vmi.disks[0].pci_address.unwrap();
    assert_eq!((disk.bus, disk.device), (0, 30));
    let interface = admitted.vmi.interfaces[0].pci_address.unwrap();
    assert_eq!((interface.bus, interface.device), (0x81, 0));
    let twice = refused(&[
        (DISK, json!({"pciAddress": "0000:05:00.0"})),
        (INTERFACE, json!("0000:05:00.0")),
    ]);
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert!(twice[0].contains("asks for it too"), "{twice:?}");
}

#[test]
fn cpus_and_memory_follow_requests_and_limits() {
    let admitted = admit(with(&[
        ("/spec/domain/memory", Value::Null),
        (
            "/spec/domain/resources",
            json!({"limits": {"cpu": "1500m", "memory": "100M"}}),
        ),
    ]))
    .unwrap();
    assert_eq!(admitted.vmi.cpus.sockets, 2);
    assert_eq!(
        admitted.vmi.memory_bytes,
        96 << 20,
        "rounded up to whole MiB"
    );
    assert_eq!(admitted.vmi.resources.cpu_request_millis, Some(1500));
    let shown = to_json(&admitted.object);
    assert_eq!(
        shown["spec"]["domain"]["resources"]["requests"],
        json!({"cpu": "1500m", "memory": "100M"})
    );
    assert_eq!(shown["spec"]["domain"]["memory"]["guest"], "100M");
}

#[test]
fn a_guest_starts_at_once_unless_it_is_to_wait() {
    assert!(!admit(manifest()).unwrap().vmi.start_paused);
    let waits = admit(with(&[("/spec/startStrategy", json!("Paused"))])).unwrap();
    assert!(waits.vmi.start_paused);
    assert_eq!(waits.warnings, admit(manifest()).unwrap().warnings);
    let errors = refused(&[
        ("/spec/startStrategy", json!("Paused")),
        ("/spec/livenessProbe", json!({"guestAgentPing": {}})),
    ]);
    let wanted = "spec.startStrategy: Invalid value: \"Paused\": either spec.startStrategy or \
                  spec.livenessProbe should be provided.Pausing VMI with LivenessProbe is not supported";
    assert!(errors.iter().any(|error| error == wanted), "{errors:?}");
}

#[test]
fn a_pool_of_io_threads_has_no_effect_and_is_taken() {
    let pool = json!({"supplementalPoolThreadCount": 1});
    admit(with(&[
        ("/spec/domain/ioThreadsPolicy", json!("supplementalPool")),
        ("/spec/domain/ioThreads", pool),
    ]))
    .unwrap();
}

#[test]
fn what_an_earlier_release_admitted_is_not_judged_by_later_rules() {
    let disk = json!({"name": "root", "dedicatedIOThread": true, "disk": {"bus": "sata", "readonly": true}});
    let value = with(&[
        ("/spec/dnsPolicy", json!("None")),
        ("/spec/domain/devices/disks", json!([disk])),
        (
            "/spec/domain/cpu",
            json!({"features": [{"name": "of_tomorrow"}]}),
        ),
    ]);
    let object = from_node(&Node::from(value)).unwrap();
    let vmi = Vmi::restore(object).unwrap().vmi;
    assert!(vmi.disks[0].read_only);
}
