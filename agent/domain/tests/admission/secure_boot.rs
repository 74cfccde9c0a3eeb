//! Secure boot that a preference asks for: refused, by its name and field, with ways out that there are.

use agent_domain::{CommonRelease, FieldError, Named, Sort, admit_virtual_machine};
use proto_node::from_json;
use proto_node::vmi::VirtualMachine;
use serde_json::{Value, json};

/// What is wrong with a machine of this template, where these are all preferences.
fn errors(preference: &str, bootloader: &Value, preferences: &[Value]) -> Vec<FieldError> {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web", "namespace": "default", "uid": "7c1f8a52-0000-4000-8000-000000000001"},
        "spec": {
            "runStrategy": "Halted",
            "instancetype": {"name": "large"},
            "preference": {"name": preference},
            "template": {"spec": {"domain": {
                "devices": {},
                "firmware": {"bootloader": bootloader},
            }}},
        },
    });
    let find = |machine: &VirtualMachine, _: &Named, sort: Sort| {
        if sort == Sort::Instancetype {
            // Enough for all of them.
            return Some(json!({"cpu": {"guest": 16}, "memory": {"guest": "64Gi"}}));
        }
        let name = &machine.spec.as_ref()?.preference.as_ref()?.name;
        let mut all = preferences.iter();
        let found = all.find(|it| it["metadata"]["name"] == **name)?;
        Some(found["spec"].clone())
    };
    let machine: VirtualMachine = from_json(object).unwrap();
    admit_virtual_machine(machine, None, &find)
        .err()
        .unwrap_or_default()
}

/// Those that are about secure boot.
fn refusals(preference: &str, bootloader: &Value, preferences: &[Value]) -> Vec<FieldError> {
    let mut errors = errors(preference, bootloader, preferences);
    errors.retain(|error| {
        error.path.ends_with(".secureBoot") || error.message.contains("SecureBoot")
    });
    errors
}

/// The one way out that all of them name.
fn way_out(errors: &[FieldError]) -> &str {
    let fix = errors.first().map_or("", |error| error.fix.as_str());
    assert!(errors.iter().all(|error| error.fix == fix), "{errors:?}");
    fix
}

fn named(name: &str, firmware: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"firmware": firmware}})
}

#[test]
fn every_common_preference_with_secure_boot_is_refused_with_ways_out_that_there_are() {
    let mut counts = Vec::new();
    for release in CommonRelease::ALL {
        let mut preferences = release.objects();
        preferences.retain(|object| object["kind"] == "VirtualMachineClusterPreference");
        let mut refused = 0;
        for preference in &preferences {
            let name = preference["metadata"]["name"].as_str().unwrap();
            let firmware = &preference["spec"]["firmware"];
            let by = if firmware["preferredUseSecureBoot"] == true {
                "preferredUseSecureBoot"
            } else if firmware["preferredEfi"]["secureBoot"] == true {
                "preferredEfi.secureBoot"
            } else {
                let errors = refusals(name, &json!({}), &preferences);
                assert_eq!(errors, [], "{name}");
                continue;
            };
            refused += 1;
            let errors = refusals(name, &json!({}), &preferences);
            let fix = way_out(&errors);
            let wanted = format!("preference {name:?} asks for it by {by}, ");
            assert!(fix.starts_with(&wanted), "{name}: {errors:?}");
            // Both ways out lead there.
            assert!(
                fix.ends_with(
                    "set spec.template.spec.domain.firmware.bootloader.efi.secureBoot to false"
                ),
                "{fix}"
            );
            let without = json!({"efi": {"secureBoot": false}});
            assert_eq!(refusals(name, &without, &preferences), [], "{name}");
            let is_offered = fix.contains("`--preference linux.efi`");
            assert_eq!(is_offered, release == CommonRelease::Head, "{fix}");
            if is_offered {
                assert_eq!(refusals("linux.efi", &json!({}), &preferences), []);
            }
        }
        counts.push((release, refused));
    }
    assert_eq!(
        counts,
        [(CommonRelease::Head, 18), (CommonRelease::V1_0_0, 16)]
    );
}

#[test]
fn uefi_alone_asks_for_secure_boot_too() {
    for (firmware, by) in [
        (
            json!({"preferredEfi": {}}),
            "preferredEfi without secureBoot: false",
        ),
        (
            json!({"preferredEfi": {"persistent": true}}),
            "preferredEfi without secureBoot: false",
        ),
        (
            json!({"preferredUseEfi": true}),
            "preferredUseEfi without preferredUseSecureBoot: false",
        ),
    ] {
        // With system management mode KubeVirt's API has nothing against it.
        for smm in [json!(null), json!({})] {
            let mut preference = named("own", &firmware);
            preference["spec"]["features"] = json!({"preferredSmm": smm});
            let errors = refusals("own", &json!({}), &[preference]);
            let fix = way_out(&errors);
            let wanted = format!("preference \"own\" asks for it by {by}, ");
            assert!(fix.starts_with(&wanted), "{errors:?}");
        }
    }
    for firmware in [
        json!({"preferredEfi": {"secureBoot": false}}),
        json!({"preferredUseEfi": true, "preferredUseSecureBoot": false}),
        json!({"preferredUseBios": true, "preferredUseSecureBoot": true}),
        json!({"preferredUseSecureBoot": true}),
    ] {
        let errors = refusals("own", &json!({}), &[named("own", &firmware)]);
        assert_eq!(errors, [], "{firmware}");
    }
}

#[test]
fn no_preference_is_blamed_for_what_the_machine_itself_asks_for_and_none_offered_that_asks_too() {
    let secure = named("own", &json!({"preferredEfi": {"secureBoot": true}}));
    let errors = refusals("own", &json!({"efi": {}}), std::slice::from_ref(&secure));
    assert!(!way_out(&errors).contains("preference"), "{errors:?}");
    let replaced = named("linux.efi", &json!({"preferredUseEfi": true}));
    let errors = refusals("own", &json!({}), &[secure, replaced]);
    let fix = way_out(&errors);
    assert!(
        fix.contains("\"own\"") && !fix.contains("linux.efi"),
        "{fix}"
    );
}
