//! Instance types and preferences against the cases of KubeVirt's own unit tests (`pkg/instancetype`), restated as data.

#![forbid(unsafe_code)]

use agent_domain::{Kit, apply_kit, check_requirements, check_spread};
use serde_json::{Value, json};

const FIELD: &str = "spec.template.spec";

fn applied(kind: &Value, preference: &Value, spec: &Value) -> Result<Value, Vec<String>> {
    let given = |value: &Value| (!value.is_null()).then(|| value.clone());
    let (kind, preference) = (given(kind), given(preference));
    let kit = Kit {
        instancetype: kind.as_ref(),
        preference: preference.as_ref(),
    };
    let mut made = json!({"spec": spec});
    apply_kit(kit, &mut made, FIELD)?;
    Ok(made)
}

/// The value at a path of members.
fn at(tree: &Value, path: &str) -> Value {
    path.split('.').fold(tree.clone(), |value, member| {
        match member.parse::<usize>() {
            Ok(index) => value[index].clone(),
            Err(_) => value[member].clone(),
        }
    })
}

fn sized(vcpus: u32) -> Value {
    json!({"cpu": {"guest": vcpus}, "memory": {"guest": "1Gi"}})
}

fn topology(vcpus: u32, preference: &Value) -> [Value; 3] {
    let made = applied(&sized(vcpus), preference, &json!({})).expect("no conflict");
    let cpu = &made["spec"]["domain"]["cpu"];
    [
        cpu["sockets"].clone(),
        cpu["cores"].clone(),
        cpu["threads"].clone(),
    ]
}

#[test]
fn vcpus_become_what_the_preference_prefers() {
    for (name, wanted) in [
        ("", [2, 1, 1]),
        ("any", [2, 1, 1]),
        ("preferAny", [2, 1, 1]),
        ("sockets", [2, 1, 1]),
        ("preferSockets", [2, 1, 1]),
        ("cores", [1, 2, 1]),
        ("preferCores", [1, 2, 1]),
        ("threads", [1, 1, 2]),
        ("preferThreads", [1, 1, 2]),
        ("spread", [1, 2, 1]),
        ("preferSpread", [1, 2, 1]),
    ] {
        let preference = match name {
            "" => json!({}),
            name => json!({"cpu": {"preferredCPUTopology": name}}),
        };
        assert_eq!(topology(2, &preference), wanted.map(Value::from), "{name}");
    }
    assert_eq!(
        topology(1, &json!({"cpu": {"preferredCPUTopology": "spread"}})),
        [1, 1, 1].map(Value::from)
    );
}

#[test]
fn vcpus_are_spread_over_sockets_cores_and_threads() {
    for (vcpus, across, ratio, wanted) in [
        (2, "", 0, [1, 2, 1]),
        (4, "", 0, [2, 2, 1]),
        (6, "", 0, [3, 2, 1]),
        (8, "SocketsCores", 0, [4, 2, 1]),
        (3, "", 3, [1, 3, 1]),
        (6, "", 3, [2, 3, 1]),
        (9, "", 3, [3, 3, 1]),
        (12, "", 3, [4, 3, 1]),
        (4, "", 4, [1, 4, 1]),
        (8, "", 4, [2, 4, 1]),
        (16, "", 4, [4, 4, 1]),
        (4, "SocketsCoresThreads", 0, [1, 2, 2]),
        (8, "SocketsCoresThreads", 0, [2, 2, 2]),
        (12, "SocketsCoresThreads", 0, [3, 2, 2]),
        (6, "SocketsCoresThreads", 3, [1, 3, 2]),
        (18, "SocketsCoresThreads", 3, [3, 3, 2]),
        (24, "SocketsCoresThreads", 4, [3, 4, 2]),
        (36, "SocketsCoresThreads", 4, [4, 4, 2]),
        (2, "CoresThreads", 0, [1, 1, 2]),
        (4, "CoresThreads", 0, [1, 2, 2]),
        (6, "CoresThreads", 0, [1, 3, 2]),
    ] {
        let mut cpu = json!({"preferredCPUTopology": "spread"});
        if !across.is_empty() {
            cpu["spreadOptions"]["across"] = json!(across);
        }
        if ratio > 0 {
            cpu["spreadOptions"]["ratio"] = json!(ratio);
        }
        let found = topology(vcpus, &json!({"cpu": cpu}));
        assert_eq!(found, wanted.map(Value::from), "{vcpus} {across} {ratio}");
    }
    let old = json!({"cpu": {"preferredCPUTopology": "preferSpread"}, "preferSpreadSocketToCoreRatio": 3});
    assert_eq!(topology(6, &old), [2, 3, 1].map(Value::from));
}

#[test]
fn vcpus_that_cannot_be_spread_are_refused_in_kubevirts_words() {
    let of = |vcpus, options: Value| {
        let preference =
            json!({"cpu": {"preferredCPUTopology": "spread", "spreadOptions": options}});
        check_spread(Some(&sized(vcpus)), Some(&preference))
    };
    assert_eq!(of(4, json!({})), Ok(()));
    for (vcpus, options, wanted) in [
        (
            3,
            json!({}),
            "3 vCPUs provided by the instance type are not divisible by the Spec.PreferSpreadSocketToCoreRatio or \
          Spec.CPU.PreferSpreadOptions.Ratio of 2 provided by the preference",
        ),
        (
            3,
            json!({"across": "CoresThreads"}),
            "3 vCPUs provided by the instance type are not divisible by the number of \
          threads per core 2",
        ),
        (
            6,
            json!({"across": "SocketsCoresThreads"}),
            "6 vCPUs provided by the instance type are not divisible by the number \
          of threads per core 2 and Spec.PreferSpreadSocketToCoreRatio or Spec.CPU.PreferSpreadOptions.Ratio of 2",
        ),
    ] {
        assert_eq!(of(vcpus, options), Err(wanted.to_owned()));
    }
}

#[test]
fn an_instance_type_gives_all_that_it_says() {
    let kind = json!({
        "cpu": {
            "guest": 2, "model": "host-passthrough", "dedicatedCPUPlacement": true, "isolateEmulatorThread": true,
            "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "0-3,^1"}, "maxSockets": 6,
        },
        "memory": {"guest": "512Mi", "hugepages": {"pageSize": "1Gi"}, "maxGuest": "2Gi"},
        "gpus": [{"name": "barfoo", "deviceName": "vendor.com/gpu_name"}],
        "hostDevices": [{"name": "foobar", "deviceName": "vendor.com/device_name"}],
        "ioThreadsPolicy": "shared", "ioThreads": {"supplementalPoolThreadCount": 4},
        "launchSecurity": {"sev": {}}, "nodeSelector": {"key": "value"}, "schedulerName": "custom",
        "annotations": {"annotation-1": "1", "annotation-2": "2"},
    });
    let made = applied(&kind, &Value::Null, &json!({})).expect("no conflict");
    for (path, wanted) in [
        ("spec.domain.cpu.model", json!("host-passthrough")),
        ("spec.domain.cpu.dedicatedCpuPlacement", json!(true)),
        ("spec.domain.cpu.isolateEmulatorThread", json!(true)),
        (
            "spec.domain.cpu.numa",
            json!({"guestMappingPassthrough": {}}),
        ),
        ("spec.domain.cpu.realtime", json!({"mask": "0-3,^1"})),
        ("spec.domain.cpu.maxSockets", json!(6)),
        (
            "spec.domain.memory",
            json!({"guest": "512Mi", "hugepages": {"pageSize": "1Gi"}, "maxGuest": "2Gi"}),
        ),
        ("spec.domain.devices.gpus", kind["gpus"].clone()),
        (
            "spec.domain.devices.hostDevices",
            kind["hostDevices"].clone(),
        ),
        ("spec.domain.ioThreadsPolicy", json!("shared")),
        ("spec.domain.ioThreads", kind["ioThreads"].clone()),
        ("spec.domain.launchSecurity", json!({"sev": {}})),
        ("spec.nodeSelector", json!({"key": "value"})),
        ("spec.schedulerName", json!("custom")),
        ("metadata.annotations", kind["annotations"].clone()),
    ] {
        assert_eq!(at(&made, path), wanted, "{path}");
    }
}

#[test]
fn overcommitted_memory_is_requested_as_kubevirt_computes_it() {
    let kind = json!({"cpu": {"guest": 1}, "memory": {"guest": "2Gi", "overcommitPercent": 15}});
    let made = applied(&kind, &Value::Null, &json!({})).expect("no conflict");
    assert_eq!(
        at(&made, "spec.domain.resources.requests.memory"),
        json!("1825361152")
    );
    assert_eq!(at(&made, "spec.domain.memory.guest"), json!("2Gi"));
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_machine_and_type_both_say_is_a_conflict_on_kubevirts_paths() {
    let full = json!({
        "cpu": {
            "guest": 2, "model": "host-passthrough", "dedicatedCPUPlacement": false, "isolateEmulatorThread": true,
            "numa": {"guestMappingPassthrough": {}}, "realtime": {},
        },
        "memory": {"guest": "512Mi", "hugepages": {"pageSize": "1Gi"}, "maxGuest": "2Gi"},
        "gpus": [{"name": "a"}], "hostDevices": [{"name": "a"}], "ioThreadsPolicy": "shared",
        "ioThreads": {"supplementalPoolThreadCount": 4}, "launchSecurity": {}, "nodeSelector": {"key": "value"},
        "schedulerName": "custom",
    });
    let whole = |rest: &str| format!("{FIELD}.{rest}");
    for (spec, wanted) in [
        (
            json!({"domain": {"cpu": {"sockets": 1}}}),
            vec!["domain.cpu.sockets"],
        ),
        (
            json!({"domain": {"cpu": {"sockets": 1, "cores": 1, "threads": 1}}}),
            vec![
                "domain.cpu.sockets",
                "domain.cpu.cores",
                "domain.cpu.threads",
            ],
        ),
        (
            json!({"domain": {"resources": {"requests": {"cpu": "1"}}}}),
            vec!["domain.resources.requests.cpu"],
        ),
        (
            json!({"domain": {"resources": {"limits": {"cpu": "1"}}}}),
            vec!["domain.resources.limits.cpu"],
        ),
        (
            json!({"domain": {"cpu": {"model": "host-passthrough"}}}),
            vec!["domain.cpu.model"],
        ),
        (
            json!({"domain": {"cpu": {"dedicatedCpuPlacement": true}}}),
            vec!["domain.cpu.dedicatedCPUPlacement"],
        ),
        (
            json!({"domain": {"cpu": {"isolateEmulatorThread": true}}}),
            vec!["domain.cpu.isolateEmulatorThread"],
        ),
        (
            json!({"domain": {"cpu": {"numa": {}}}}),
            vec!["domain.cpu.numa"],
        ),
        (
            json!({"domain": {"cpu": {"realtime": {}}}}),
            vec!["domain.cpu.realtime"],
        ),
        (
            json!({"domain": {"memory": {"guest": "512Mi"}}}),
            vec!["domain.memory.guest"],
        ),
        (
            json!({"domain": {"memory": {"guest": "512Mi", "maxGuest": "1Gi"}}}),
            vec!["domain.memory.guest"],
        ),
        (
            json!({"domain": {"memory": {"hugepages": {"pageSize": "2Mi"}}}}),
            vec!["domain.memory.hugepages"],
        ),
        (
            json!({"domain": {"memory": {"maxGuest": "1Gi"}}}),
            vec!["domain.memory.maxGuest"],
        ),
        (
            json!({"domain": {"resources": {"requests": {"memory": "1Gi"}}}}),
            vec!["domain.resources.requests.memory"],
        ),
        (
            json!({"domain": {"resources": {"limits": {"memory": "1Gi"}}}}),
            vec!["domain.resources.limits.memory"],
        ),
        (
            json!({"domain": {"devices": {"gpus": [{"name": "b"}]}}}),
            vec!["domain.devices.gpus"],
        ),
        (
            json!({"domain": {"devices": {"hostDevices": [{"name": "b"}]}}}),
            vec!["domain.devices.hostDevices"],
        ),
        (
            json!({"domain": {"ioThreadsPolicy": "auto"}}),
            vec!["domain.ioThreadsPolicy"],
        ),
        (
            json!({"domain": {"ioThreads": {"supplementalPoolThreadCount": 1}}}),
            vec!["domain.ioThreads.supplementalPoolThreadCount"],
        ),
        (
            json!({"domain": {"launchSecurity": {"sev": {}}}}),
            vec!["domain.launchSecurity"],
        ),
        (
            json!({"nodeSelector": {"other": "value"}}),
            vec!["nodeSelector"],
        ),
        (json!({"schedulerName": "other"}), vec!["schedulerName"]),
        (
            json!({"schedulerName": "other", "domain": {"cpu": {"cores": 1}, "memory": {"guest": "1Gi"}}}),
            vec!["schedulerName", "domain.cpu.cores", "domain.memory.guest"],
        ),
    ] {
        let wanted: Vec<String> = wanted.into_iter().map(whole).collect();
        assert_eq!(applied(&full, &Value::Null, &spec), Err(wanted), "{spec}");
    }
    let small = sized(2);
    for spec in [
        json!({"domain": {"cpu": {"model": "host-model", "maxSockets": 4}}}),
        json!({"domain": {"memory": {"hugepages": {"pageSize": "2Mi"}}}}),
        json!({"nodeSelector": {"key": "value"}, "domain": {"ioThreadsPolicy": "auto"}}),
    ] {
        assert!(applied(&small, &Value::Null, &spec).is_ok(), "{spec}");
    }
}

#[test]
fn annotations_conflict_when_their_values_differ() {
    let kind = json!({"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "annotations": {"a": "1"}});
    let kit = Kit {
        instancetype: Some(&kind),
        preference: None,
    };
    let mut same = json!({"metadata": {"annotations": {"a": "1"}}, "spec": {}});
    assert_eq!(apply_kit(kit, &mut same, FIELD), Ok(()));
    let mut other = json!({"metadata": {"annotations": {"a": "2"}}, "spec": {}});
    assert_eq!(
        apply_kit(kit, &mut other, FIELD),
        Err(vec![String::from("annotations.a")])
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn preferences_fill_in_what_is_not_said_and_nothing_else() {
    for (preference, spec, path, wanted) in [
        // Firmware: KubeVirt's bugs 10313 and 12985 among them.
        (
            json!({"firmware": {"preferredUseBios": true, "preferredUseBiosSerial": true}}),
            json!({}),
            "spec.domain.firmware.bootloader",
            json!({"bios": {"useSerial": true}}),
        ),
        (
            json!({"firmware": {"preferredUseEfi": true, "preferredUseSecureBoot": true}}),
            json!({}),
            "spec.domain.firmware.bootloader",
            json!({"efi": {"secureBoot": true}}),
        ),
        (
            json!({"firmware": {"preferredUseEfi": true, "preferredUseSecureBoot": true}}),
            json!({"domain": {"firmware": {"bootloader": {"bios": {"useSerial": false}}}}}),
            "spec.domain.firmware.bootloader",
            json!({"bios": {"useSerial": false}}),
        ),
        (
            json!({"firmware": {"preferredUseBios": true, "preferredUseBiosSerial": true}}),
            json!({"domain": {"firmware": {"bootloader": {"bios": {"useSerial": false}}}}}),
            "spec.domain.firmware.bootloader",
            json!({"bios": {"useSerial": false}}),
        ),
        (
            json!({"firmware": {"preferredUseBios": true, "preferredUseBiosSerial": true}}),
            json!({"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": false}}}}}),
            "spec.domain.firmware.bootloader",
            json!({"efi": {"secureBoot": false}}),
        ),
        (
            json!({"firmware": {"preferredEfi": {"persistent": true, "secureBoot": true}}}),
            json!({}),
            "spec.domain.firmware.bootloader",
            json!({"efi": {"persistent": true, "secureBoot": true}}),
        ),
        (
            json!({"firmware": {"preferredEfi": {"persistent": true}, "preferredUseEfi": false, "preferredUseSecureBoot": false}}),
            json!({}),
            "spec.domain.firmware.bootloader",
            json!({"efi": {"persistent": true}}),
        ),
        (
            json!({"firmware": {"preferredEfi": {"persistent": true, "secureBoot": true}}}),
            json!({"domain": {"firmware": {"bootloader": {"efi": {"secureBoot": false}}}}}),
            "spec.domain.firmware.bootloader",
            json!({"efi": {"secureBoot": false}}),
        ),
        (
            json!({"firmware": {"preferredEfi": {}}}),
            json!({"domain": {"firmware": {"bootloader": {"bios": {}}}}}),
            "spec.domain.firmware.bootloader",
            json!({"bios": {}}),
        ),
        // Machine, clock, subdomain, grace period, architecture.
        (
            json!({"machine": {"preferredMachineType": "q35-rhel-8.0"}}),
            json!({}),
            "spec.domain.machine.type",
            json!("q35-rhel-8.0"),
        ),
        (
            json!({"machine": {"preferredMachineType": "q35-rhel-8.0"}}),
            json!({"domain": {"machine": {"type": "q35"}}}),
            "spec.domain.machine.type",
            json!("q35"),
        ),
        (
            json!({"clock": {"preferredClockOffset": {"utc": {"offsetSeconds": 30}}, "preferredTimer": {"hyperv": {}}}}),
            json!({}),
            "spec.domain.clock",
            json!({"utc": {"offsetSeconds": 30}, "timer": {"hyperv": {}}}),
        ),
        (
            json!({"clock": {"preferredClockOffset": {"utc": {}}, "preferredTimer": {"hyperv": {}}}}),
            json!({"domain": {"clock": {"timezone": "Europe/Berlin", "timer": {"kvm": {}}}}}),
            "spec.domain.clock",
            json!({"timezone": "Europe/Berlin", "timer": {"kvm": {}}}),
        ),
        (
            json!({"preferredSubdomain": "kubevirt.io"}),
            json!({}),
            "spec.subdomain",
            json!("kubevirt.io"),
        ),
        (
            json!({"preferredSubdomain": "kubevirt.io"}),
            json!({"subdomain": "kubevirt.com"}),
            "spec.subdomain",
            json!("kubevirt.com"),
        ),
        (
            json!({"preferredTerminationGracePeriodSeconds": 180}),
            json!({}),
            "spec.terminationGracePeriodSeconds",
            json!(180),
        ),
        (
            json!({"preferredTerminationGracePeriodSeconds": 180}),
            json!({"terminationGracePeriodSeconds": 90}),
            "spec.terminationGracePeriodSeconds",
            json!(90),
        ),
        (
            json!({"preferredArchitecture": "arm64"}),
            json!({"architecture": "amd64"}),
            "spec.architecture",
            json!("amd64"),
        ),
        // Features.
        (
            json!({"features": {"preferredAcpi": {"enabled": true}}}),
            json!({"domain": {"features": {"acpi": {"enabled": false}}}}),
            "spec.domain.features.acpi",
            json!({"enabled": true}),
        ),
        (
            json!({"features": {"preferredHyperv": {"ipi": {}, "vapic": {}}, "preferredSmm": {}}}),
            json!({"domain": {"features": {"hyperv": {"ipi": {"enabled": false}}}}}),
            "spec.domain.features",
            json!({"hyperv": {"ipi": {"enabled": false}, "vapic": {}}, "smm": {}}),
        ),
        // Devices.
        (
            json!({"devices": {"preferredDiskBus": "virtio", "preferredDiskCache": "writethrough", "preferredDiskIO": "native",
                "preferredDiskDedicatedIoThread": true}}),
            json!({"domain": {"devices": {"disks": [{"name": "a"}]}}}),
            "spec.domain.devices.disks.0",
            json!({"name": "a", "disk": {"bus": "virtio"}, "cache": "writethrough", "io": "native", "dedicatedIOThread": true}),
        ),
        (
            json!({"devices": {"preferredDiskBus": "virtio", "preferredDiskDedicatedIoThread": true}}),
            json!({"domain": {"devices": {"disks": [{"name": "a", "disk": {"bus": "sata"}}]}}}),
            "spec.domain.devices.disks.0",
            json!({"name": "a", "disk": {"bus": "sata"}}),
        ),
        (
            json!({"devices": {"preferredCdromBus": "scsi", "preferredDiskBus": "virtio"}}),
            json!({"domain": {"devices": {"disks": [{"name": "a", "cdrom": {}}]}}}),
            "spec.domain.devices.disks.0",
            json!({"name": "a", "cdrom": {"bus": "scsi"}}),
        ),
        (
            json!({"devices": {"preferredDiskBus": "virtio"}}),
            json!({"volumes": [{"name": "v", "emptyDisk": {}}]}),
            "spec.domain.devices.disks",
            json!([{"name": "v", "disk": {"bus": "virtio"}}]),
        ),
        (
            json!({"devices": {"preferredInterfaceModel": "virtio", "preferredInterfaceMasquerade": {}}}),
            json!({"networks": [{"name": "n", "pod": {}}, {"name": "m", "multus": {}}],
                "domain": {"devices": {"interfaces": [{"name": "n"}, {"name": "m", "model": "e1000"}]}}}),
            "spec.domain.devices.interfaces",
            json!([{"name": "n", "model": "virtio", "masquerade": {}}, {"name": "m", "model": "e1000"}]),
        ),
        (
            json!({"devices": {"preferredInterfaceMasquerade": {}}}),
            json!({"networks": [{"name": "n", "pod": {}}], "domain": {"devices": {"interfaces": [{"name": "n", "bridge": {}}]}}}),
            "spec.domain.devices.interfaces.0",
            json!({"name": "n", "bridge": {}}),
        ),
        (
            json!({"devices": {"preferredInputBus": "virtio", "preferredInputType": "tablet"}}),
            json!({"domain": {"devices": {"inputs": [{"name": "a", "bus": "usb"}]}}}),
            "spec.domain.devices.inputs.0",
            json!({"name": "a", "bus": "usb", "type": "tablet"}),
        ),
        (
            json!({"devices": {"preferredPanicDeviceModel": "pvpanic"}}),
            json!({}),
            "spec.domain.devices.panicDevices",
            json!([{"model": "pvpanic"}]),
        ),
        (
            json!({"devices": {"preferredRng": {}, "preferredTPM": {}}}),
            json!({"domain": {"devices": {"tpm": {"enabled": false}}}}),
            "spec.domain.devices",
            json!({"tpm": {"enabled": false}, "rng": {}}),
        ),
        (
            json!({"devices": {"preferredSoundModel": "ac97"}}),
            json!({"domain": {"devices": {"sound": {"name": "s"}}}}),
            "spec.domain.devices.sound",
            json!({"name": "s", "model": "ac97"}),
        ),
        (
            json!({"devices": {"preferredAutoattachMemBalloon": false, "preferredBlockMultiQueue": true}}),
            json!({"domain": {"devices": {"blockMultiQueue": false}}}),
            "spec.domain.devices",
            json!({"blockMultiQueue": false, "autoattachMemBalloon": false}),
        ),
        (
            json!({"cpu": {"preferredCPUFeatures": [{"name": "foo", "policy": "require"}, {"name": "bar", "policy": "force"}]}}),
            json!({"domain": {"cpu": {"features": [{"name": "bar", "policy": "optional"}]}}}),
            "spec.domain.cpu.features",
            json!([{"name": "bar", "policy": "optional"}, {"name": "foo", "policy": "require"}]),
        ),
    ] {
        let made =
            applied(&Value::Null, &preference, &spec).expect("preferences conflict with nothing");
        assert_eq!(at(&made, path), wanted, "{preference} on {spec}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn requirements_are_met_or_refused_in_kubevirts_words() {
    let vm = |wanted: u32, topology: &str, cpu: Value| {
        let preference = json!({"cpu": {"preferredCPUTopology": topology}, "requirements": {"cpu": {"guest": wanted}}});
        check_requirements(None, Some(&preference), &json!({"domain": {"cpu": cpu}}))
    };
    for (wanted, topology, cpu) in [
        (2, "sockets", json!({"sockets": 2})),
        (2, "cores", json!({"cores": 2})),
        (2, "threads", json!({"threads": 2})),
        (6, "spread", json!({"cores": 2, "sockets": 3})),
        (4, "any", json!({"cores": 2, "sockets": 2, "threads": 1})),
    ] {
        assert_eq!(vm(wanted, topology, cpu), Ok(()), "{topology}");
    }
    let cpu = "spec.template.spec.domain.cpu";
    for (wanted, topology, given, fields, said) in [
        (
            2,
            "sockets",
            json!({"sockets": 1}),
            format!("{cpu}.sockets"),
            "1 vCPU provided by VirtualMachine, preference requires 2 vCPU provided as sockets",
        ),
        (
            2,
            "cores",
            json!({"cores": 1}),
            format!("{cpu}.cores"),
            "1 vCPU provided by VirtualMachine, preference requires 2 vCPU provided as cores",
        ),
        (
            2,
            "threads",
            json!({"threads": 1}),
            format!("{cpu}.threads"),
            "1 vCPU provided by VirtualMachine, preference requires 2 vCPU provided as threads",
        ),
        (
            4,
            "spread",
            json!({"sockets": 1, "cores": 1}),
            format!("{cpu}.sockets, {cpu}.cores"),
            "1 vCPU provided by VirtualMachine, preference requires 4 vCPU provided as SocketsCores",
        ),
        (
            4,
            "any",
            json!({"sockets": 2, "cores": 1, "threads": 1}),
            format!("{cpu}.cores, {cpu}.sockets, {cpu}.threads"),
            "2 vCPU provided by VirtualMachine, preference requires 4 vCPU provided as cores, sockets and threads",
        ),
    ] {
        let short = vm(wanted, topology, given).expect_err("too small");
        assert_eq!(
            (short.field, short.message),
            (fields, format!("insufficient CPU resources of {said}"))
        );
    }
    let memory = json!({"requirements": {"memory": {"guest": "2Gi"}}});
    let sized = json!({"cpu": {"guest": 1}, "memory": {"guest": "512Mi"}});
    for (kind, spec, field, said) in [
        (
            Some(&sized),
            json!({}),
            "spec.instancetype",
            "insufficient Memory resources of 512Mi provided by instance type, preference requires 2Gi",
        ),
        (
            None,
            json!({"domain": {"memory": {"guest": "1Gi"}}}),
            "spec.template.spec.domain.memory",
            "insufficient Memory resources of 1Gi provided by VirtualMachine, preference requires 2Gi",
        ),
        (
            None,
            json!({"domain": {}}),
            "spec.template.spec.domain.memory",
            "insufficient Memory resources of 0 provided by VirtualMachine, preference requires 2Gi",
        ),
    ] {
        let short = check_requirements(kind, Some(&memory), &spec).expect_err("too small");
        assert_eq!(
            (short.field.as_str(), short.message.as_str()),
            (field, said)
        );
    }
    let cpus = json!({"requirements": {"cpu": {"guest": 4}}});
    let two = json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}});
    let short = check_requirements(Some(&two), Some(&cpus), &json!({})).expect_err("too small");
    assert_eq!(
        short.message,
        "insufficient CPU resources of 2 vCPU provided by instance type, preference requires 4 vCPU"
    );
    let short = check_requirements(None, Some(&cpus), &json!({})).expect_err("too small");
    assert_eq!(
        short.message,
        "no CPU resources provided by VirtualMachine, preference requires 4 vCPU"
    );
    let arm = json!({"requirements": {"architecture": "arm64"}});
    let short = check_requirements(None, Some(&arm), &json!({"architecture": "amd64"}))
        .expect_err("another");
    assert_eq!(short.field, "spec.template.spec.architecture");
    assert_eq!(
        short.message,
        "preference requires architecture arm64 but amd64 is being requested"
    );
}
