//! What hooks may change of a machine, and annotations that ask for hooks.

use agent_domain::{DiskSource, describe, with_cloud_init, with_machine};
use proto_node::hooks::{CloudInit, Kernel, Machine};

use super::*;

const SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";

fn annotated(annotations: Value) -> Result<Admitted, Vec<String>> {
    admit(with(&[("/metadata/annotations", annotations)]))
}

#[test]
fn kubevirts_example_of_a_sidecar_is_honoured_without_it() {
    let admitted = annotated(json!({
        SIDECARS: "[{\"args\": [\"--version\", \"v1alpha2\"], \"image\": \"registry:5000/kubevirt/example-hook-sidecar:devel\"}]",
        "smbios.vm.kubevirt.io/baseBoardManufacturer": "Radical Edward",
    }))
    .unwrap();
    let board = &admitted.vmi.identity.base_board;
    assert_eq!(board.manufacturer, "Radical Edward");
    assert_eq!(board.product, "");
    let plain = admit(manifest()).unwrap().vmi.identity;
    assert_eq!(plain.base_board, Default::default());
    assert_eq!(plain.system.manufacturer, "KubeVirt");
}

#[test]
fn other_sidecars_are_refused_and_the_way_out_is_named() {
    for text in [
        "[{\"image\": \"registry:5000/kubevirt/sidecar-shim:devel\"}]",
        "[{\"image\": \"evil.example/example-hook-sidecar-not:1\"}]",
        "[{\"image\": \"kubevirt/example-hook-sidecar\", \"configMap\": {\"name\": \"x\"}}]",
        "[{}]",
    ] {
        let errors = annotated(json!({SIDECARS: text})).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with(&format!("metadata.annotations[{SIDECARS}][0]: ")));
        assert!(errors[0].contains("docs/hooks.md"), "{errors:?}");
    }
    for text in ["", "{}", "[", "sidecar"] {
        let errors = annotated(json!({SIDECARS: text})).unwrap_err();
        assert!(
            errors[0].contains("must be a JSON list of sidecars"),
            "{errors:?}"
        );
    }
    let long = "x".repeat(1025);
    let errors = annotated(json!({"smbios.vm.kubevirt.io/baseBoardManufacturer": long}));
    assert!(errors.unwrap_err()[0].contains("1025 bytes long"));
}

#[test]
fn a_guest_with_sidecars_that_an_earlier_release_accepted_stays() {
    let annotations = json!({
        SIDECARS: "[{\"image\": \"sidecar-shim\"}]",
        "smbios.vm.kubevirt.io/baseBoardManufacturer": "a\nb",
    });
    let object = from_node(&Node::from(with(&[("/metadata/annotations", annotations)]))).unwrap();
    let restored = Vmi::restore(object).unwrap();
    assert_eq!(restored.vmi.identity.base_board, Default::default());
}

/// Result of admitting a machine that a hook changed so.
fn hooked(change: impl FnOnce(&mut Machine)) -> Result<Vmi, Vec<String>> {
    let vmi = admit(manifest()).unwrap().vmi;
    let mut machine = describe(&vmi);
    change(&mut machine);
    with_machine(&vmi, machine).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

#[test]
fn a_machine_that_comes_back_as_it_was_changes_nothing() {
    let vmi = admit(manifest()).unwrap().vmi;
    assert_eq!(hooked(|_| {}).unwrap(), vmi);
    // What says nothing may as well be left out.
    assert_eq!(
        hooked(|machine| machine.smbios.as_mut().unwrap().base_board = None).unwrap(),
        vmi
    );
}

#[test]
fn a_hook_changes_what_it_may() {
    let vmi = hooked(|machine| {
        machine.kernel = Some(Kernel {
            command_line: "quiet".to_owned(),
        });
        machine.disks[0].serial = "D-7".to_owned();
        let smbios = machine.smbios.as_mut().unwrap();
        smbios.oem_strings = vec!["rack=12".to_owned()];
        let board = smbios.base_board.as_mut().unwrap();
        board.manufacturer = "ACME".to_owned();
    })
    .unwrap();
    assert_eq!(vmi.disks[0].serial, "D-7");
    assert_eq!(vmi.identity.oem_strings, ["rack=12"]);
    assert_eq!(vmi.identity.base_board.manufacturer, "ACME");
    let Boot::Kernel(kernel) = vmi.boot else {
        panic!("{:?}", vmi.boot)
    };
    assert_eq!(kernel.cmdline, "quiet");
}

#[test]
fn a_hook_that_changes_anything_else_is_refused() {
    type Change = fn(&mut Machine);
    let changes: [(&str, Change); 9] = [
        ("machine.vcpus", |machine| machine.vcpus += 1),
        ("machine.memoryBytes", |machine| machine.memory_bytes *= 2),
        ("machine.kernel", |machine| machine.kernel = None),
        ("machine.smbios", |machine| {
            let system = machine.smbios.as_mut().unwrap().system.as_mut();
            system.unwrap().uuid.clear();
        }),
        ("machine.disks", |machine| machine.disks[0].read_only = true),
        ("machine.disks", |machine| drop(machine.disks.pop())),
        ("machine.disks", |machine| {
            let disk = machine.disks[0].clone();
            machine.disks.push(disk);
        }),
        ("machine.interfaces", |machine| {
            machine.interfaces[0].network = "wan".to_owned();
        }),
        ("machine.interfaces", |machine| {
            machine.interfaces[0].mac_address = "02:00:00:00:00:01".to_owned();
        }),
    ];
    for (path, change) in changes {
        let errors = hooked(change).unwrap_err();
        let wanted = format!("{path}: Forbidden: a hook may not change this");
        assert_eq!(errors, [wanted]);
    }
}

#[test]
fn what_a_hook_says_is_judged_as_a_manifest_is() {
    type Change = fn(&mut Machine);
    let changes: [(&str, Change); 6] = [
        ("machine.kernel.commandLine", |machine| {
            machine.kernel.as_mut().unwrap().command_line = "x".repeat(2048);
        }),
        ("machine.kernel.commandLine", |machine| {
            machine.kernel.as_mut().unwrap().command_line = "a\nb".to_owned();
        }),
        ("machine.disks[0].serial", |machine| {
            machine.disks[0].serial = "x".repeat(21);
        }),
        ("machine.disks[0].serial", |machine| {
            machine.disks[0].serial = "ü".to_owned();
        }),
        ("machine.smbios.oemStrings", |machine| {
            machine.smbios.as_mut().unwrap().oem_strings = vec![String::new()];
        }),
        ("machine.smbios.chassis.asset", |machine| {
            let chassis = machine.smbios.as_mut().unwrap().chassis.as_mut();
            chassis.unwrap().asset = "x".repeat(1025);
        }),
    ];
    for (path, change) in changes {
        let errors = hooked(change).unwrap_err();
        assert!(
            errors[0].starts_with(&format!("{path}: Invalid value")),
            "{errors:?}"
        );
    }
}

#[test]
fn an_answer_without_meta_data_leaves_it_as_it_was() {
    let volume = json!({"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}});
    let mut vmi = admit(with(&[("/spec/volumes/-", volume)])).unwrap().vmi;
    let meta_data = |vmi: &Vmi| {
        let mut disks = vmi.disks.iter();
        disks.find_map(|disk| match &disk.source {
            DiskSource::CloudInit(cloud_init) => cloud_init.meta_data.clone(),
            _ => None,
        })
    };
    for (answer, expected) in [("", None), ("{}", Some("{}")), ("", Some("{}"))] {
        let changed = CloudInit {
            volume: String::from("seed"),
            meta_data: answer.into(),
            ..CloudInit::default()
        };
        vmi = with_cloud_init(&vmi, "seed", changed).unwrap();
        assert_eq!(meta_data(&vmi), expected.map(Vec::from), "{answer:?}");
    }
}
