//! CPUs, clocks, disks and queues: what is admitted, what is filled in, what is refused.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "common/small_vmi.rs"]
mod small_vmi;

use std::collections::BTreeSet;

use agent_domain::{
    Admitted, ClockOptions, ClockTime, CpuFeature, DiskBlocks, DiskCache, DiskErrors, DiskOptions,
    HypervOptions, KvmOptions, SingleDevice, Vmi,
};
use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::cpu_models::NamedModel;
use proto_machine::hyperv::Enlightenment;
use proto_node::to_json;
use serde_json::{Value, json};

const CPU_PAGE: &str = include_str!("../../../docs/cpu-models.md");

/// A small VMI with some members of `domain` replaced.
fn admit(domain: &Value) -> Result<Admitted, Vec<String>> {
    small_vmi::admit(domain).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn refusal(domain: &Value) -> String {
    admit(domain).unwrap_err().join("\n")
}

/// Admits, and admits the result again: nothing more is filled in.
fn admitted(domain: &Value) -> (Vmi, Value) {
    let first = admit(domain).unwrap();
    let again = Vmi::restore(first.object.clone()).unwrap();
    assert_eq!(again.vmi, first.vmi);
    assert_eq!(again.object, first.object);
    assert!(first.ignored.is_empty(), "{:?}", first.ignored);
    let object = serde_json::to_value(to_json(&first.object)).unwrap();
    (first.vmi, object)
}

#[test]
fn every_model_of_the_page_is_admitted_and_no_other() {
    let models = CPU_PAGE.split("\n### ").skip(1);
    let models: Vec<&str> = models.filter_map(|text| text.lines().next()).collect();
    assert_eq!(models.join(", "), NamedModel::names());
    for model in models.into_iter().chain(["host-model", "host-passthrough"]) {
        let (vmi, _) = admitted(&json!({"cpu": {"model": model}}));
        assert_eq!(vmi.cpu.model, model);
    }
    let refused = refusal(&json!({"cpu": {"model": "VAX"}}));
    assert!(
        refused.contains("spec.domain.cpu.model: Unsupported value: \"VAX\""),
        "{refused}"
    );
    let (vmi, object) = admitted(&json!({}));
    assert_eq!(vmi.cpu.model, "host-model");
    assert_eq!(
        object.pointer("/spec/domain/cpu/model"),
        Some(&json!("host-model"))
    );
}

#[test]
fn a_feature_under_two_names_is_there_twice() {
    for (alias, name) in proto_machine::cpu_features::ALIASES {
        admitted(&json!({"cpu": {"features": [{"name": alias}]}}));
        let both = json!([{"name": alias}, {"name": name}]);
        let refused = refusal(&json!({"cpu": {"features": both}}));
        assert!(refused.contains("Duplicate value"), "{alias}: {refused}");
    }
}

#[test]
fn features_are_required_unless_they_have_another_policy() {
    let features = json!([{"name": "avx2"}, {"name": "mpx", "policy": "disable"}]);
    let (vmi, _) = admitted(&json!({"cpu": {"features": features}}));
    let feature = |name: &str, policy| CpuFeature {
        name: name.to_owned(),
        policy,
    };
    assert_eq!(
        vmi.cpu.features,
        [
            feature("avx2", FeaturePolicy::Require),
            feature("mpx", FeaturePolicy::Disable)
        ]
    );
    for (features, said) in [
        (
            json!([{"name": "sse4.1"}, {"name": "SSE4_1"}]),
            "features[1].name: Duplicate value",
        ),
        (json!([{"name": "a b"}]), "features[0].name: Invalid value"),
        (
            json!([{"policy": "force"}]),
            "features[0].name: Required value",
        ),
        (
            json!([{"name": "sse3"}, {"name": "pni"}]),
            "features[1].name: Duplicate value",
        ),
        (
            json!([{"name": "nosuchfeature", "policy": "require"}]),
            "spec.domain.cpu.features[0].name: Unsupported value: \"nosuchfeature\": not known to this release \
             (docs/cpu-models.md has the names of all features)",
        ),
        (
            json!([{"name": "aes", "policy": "maybe"}]),
            "features[0].policy: Unsupported value",
        ),
    ] {
        let refused = refusal(&json!({"cpu": {"features": features}}));
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn sockets_that_may_come_are_counted() {
    let (vmi, _) = admitted(&json!({"cpu": {"sockets": 2, "maxSockets": 8}}));
    assert_eq!((vmi.cpus.sockets, vmi.cpu.max_sockets), (2, 8));
    let (vmi, _) = admitted(&json!({"cpu": {"sockets": 2}}));
    assert_eq!(vmi.cpu.max_sockets, 2);
    for (cpu, field, said) in [
        (
            json!({"sockets": 3, "maxSockets": 2}),
            "spec.domain.cpu.sockets",
            "greater than the maximum sockets allowed",
        ),
        (
            json!({"cores": 2, "maxSockets": 5}),
            "spec.domain.cpu.maxSockets",
            "at most 8 vCPUs",
        ),
    ] {
        let refused = refusal(&json!({"cpu": cpu}));
        assert!(refused.contains(field), "{refused}");
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn what_an_enlightenment_needs_is_switched_on_and_shown() {
    let hyperv =
        json!({"synictimer": {"direct": {}}, "spinlocks": {}, "relaxed": {"enabled": false}});
    let (vmi, object) = admitted(&json!({"features": {"hyperv": hyperv}}));
    let on = [
        Enlightenment::Vpindex,
        Enlightenment::Time,
        Enlightenment::Synic,
        Enlightenment::Synictimer,
        Enlightenment::SynictimerDirect,
    ];
    let wanted = HypervOptions {
        enlightenments: BTreeSet::from(on),
        spinlock_retries: 4096,
        ..HypervOptions::default()
    };
    assert_eq!(vmi.cpu.hyperv, Some(wanted));
    for shown in [
        "/spec/domain/features/hyperv/synic/enabled",
        "/spec/domain/features/hyperv/vpindex/enabled",
        "/spec/domain/clock/timer/hyperv/present",
    ] {
        assert_eq!(object.pointer(shown), Some(&json!(true)), "{shown}");
    }
    let (vmi, _) = admitted(&json!({"features": {"hyperv": {"evmcs": {}}}}));
    let features = &vmi.cpu.features;
    assert_eq!((features.len(), features[0].name.as_str()), (1, "vmx"));
    let hyperv = vmi.cpu.hyperv.unwrap();
    assert!(hyperv.enlightenments.contains(&Enlightenment::Vapic));
    let (vmi, _) = admitted(&json!({"features": {"hyperv": {"relaxed": {"enabled": false}}}}));
    assert_eq!(vmi.cpu.hyperv, None);
    let (vmi, _) = admitted(&json!({"features": {"hypervPassthrough": {}}}));
    assert!(vmi.cpu.hyperv.unwrap().passthrough);
}

#[test]
fn enlightenments_that_contradict_each_other_are_refused() {
    let off = json!({"enabled": false});
    for (features, clock, said) in [
        (
            json!({"hyperv": {"synic": {}, "vpindex": off}}),
            json!({}),
            "'spec.domain.features.hyperv.synic' requires 'spec.domain.features.hyperv.vpindex', which was disabled.",
        ),
        (
            json!({"hyperv": {"synictimer": {}}}),
            json!({"timer": {"hyperv": {"present": false}}}),
            "requires 'spec.domain.clock.timer.hyperv', which was disabled.",
        ),
        (
            json!({"hyperv": {"spinlocks": {"spinlocks": 4095}}}),
            json!({}),
            "spinlocks.spinlocks: Invalid value: \"4095\"",
        ),
        (
            json!({"hyperv": {"vendorid": {"vendorid": "thirteen char"}}}),
            json!({}),
            "vendorid.vendorid: Invalid value",
        ),
        (
            json!({"hyperv": {"relaxed": {}}, "hypervPassthrough": {}}),
            json!({}),
            "Cannot explicitly set hyperv features",
        ),
    ] {
        let refused = refusal(&json!({"features": features, "clock": clock}));
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn options_of_kvm_are_those_that_were_asked_for() {
    let (vmi, _) = admitted(&json!({}));
    assert_eq!(vmi.cpu.kvm, KvmOptions::default());
    let features = json!({
        "kvm": {"hidden": true},
        "pvspinlock": {"enabled": false},
        "apic": {"endOfInterrupt": true},
    });
    let clock = json!({"timer": {"kvm": {"present": false}}});
    let (vmi, _) = admitted(&json!({"features": features, "clock": clock}));
    let wanted = KvmOptions {
        hidden: true,
        clock: Some(false),
        spinlocks: Some(false),
        end_of_interrupt: Some(true),
    };
    assert_eq!(vmi.cpu.kvm, wanted);
}

#[test]
fn a_clock_follows_utc_or_a_zone() {
    let (vmi, _) = admitted(&json!({}));
    assert_eq!(vmi.clock, ClockOptions::default());
    let clock = json!({
        "utc": {"offsetSeconds": -3600},
        "timer": {"pit": {"tickPolicy": "discard"}, "hpet": {"present": false}},
    });
    let (vmi, _) = admitted(&json!({"clock": clock}));
    let wanted = ClockOptions {
        time: ClockTime::Utc {
            offset_seconds: -3600,
        },
        pit: true,
        pit_discards_missed_ticks: true,
    };
    assert_eq!(vmi.clock, wanted);
    let clock = json!({"timezone": "Europe/Berlin", "timer": {"pit": {"present": false}}});
    let (vmi, _) = admitted(&json!({"clock": clock}));
    assert_eq!(
        vmi.clock.time,
        ClockTime::Zone {
            name: "Europe/Berlin".to_owned()
        }
    );
    assert!(!vmi.clock.pit);
    for clock in [
        json!({"timezone": "../../etc/passwd"}),
        json!({"timezone": "/etc/passwd"}),
        json!({"timezone": "Europe/Berlin", "utc": {}}),
        json!({"utc": {"offsetSeconds": 3_153_600_000_i64}}),
        json!({"timer": {"pit": {"tickPolicy": "catchup"}}}),
    ] {
        let refused = refusal(&json!({"clock": clock}));
        assert!(refused.contains("spec.domain.clock"), "{refused}");
    }
}

fn disk(disk: &Value) -> Value {
    let mut scratch = json!({"name": "scratch", "disk": {}});
    for (member, value) in disk.as_object().unwrap() {
        scratch[member] = value.clone();
    }
    json!({"devices": {"disks": [scratch], "autoattachPodInterface": false, "interfaces": [
        {"name": "net", "bridge": {}},
    ]}})
}

#[test]
fn a_disk_is_served_as_it_was_asked_for() {
    let (vmi, _) = admitted(&json!({}));
    let usual = DiskOptions {
        blocks: Some(DiskBlocks::DEFAULT),
        ..DiskOptions::default()
    };
    assert_eq!(vmi.disks[0].options, usual);
    let asked = json!({
        "cache": "writethrough",
        "io": "threads",
        "errorPolicy": "enospace",
        "dedicatedIOThread": true,
        "shareable": false,
        "blockSize": {"custom": {"logical": 512, "physical": 4096, "discardGranularity": 65536}},
    });
    let (vmi, _) = admitted(&disk(&asked));
    let wanted = DiskOptions {
        cache: DiskCache::WriteThrough,
        waits: true,
        errors: DiskErrors::StopOnNoSpace,
        blocks: Some(DiskBlocks {
            logical: 512,
            physical: 4096,
            discard_granularity: Some(65536),
        }),
        dedicated_thread: true,
        shareable: false,
    };
    assert_eq!(vmi.disks[0].options, wanted);
    let (vmi, _) = admitted(&disk(&json!({"blockSize": {"matchVolume": {}}})));
    assert_eq!(vmi.disks[0].options.blocks, None);
}

#[test]
fn a_disk_that_others_may_write_to_has_no_cache() {
    for asked in [json!({}), json!({"cache": "none"})] {
        let mut asked = asked;
        asked["shareable"] = json!(true);
        let (vmi, _) = admitted(&disk(&asked));
        assert!(vmi.disks[0].options.shareable);
    }
    let refused = refusal(&disk(&json!({"shareable": true, "cache": "writeback"})));
    let said = "disks[0].cache: Invalid value: \"writeback\": a sharable disk requires cache = none got: writeback";
    assert!(refused.contains(said), "{refused}");
}

#[test]
fn sectors_that_no_disk_has_are_refused() {
    for (custom, said) in [
        (json!({"logical": 512}), "physical: Required value"),
        (
            json!({"logical": 1000, "physical": 4096}),
            "not a power of 2",
        ),
        (
            json!({"logical": 256, "physical": 4096}),
            "not in the range",
        ),
        (
            json!({"logical": 4096, "physical": 512}),
            "same or less than the physical size",
        ),
        (
            json!({"logical": 512, "physical": 1 << 20}),
            "at most 65536 bytes",
        ),
        (
            json!({"logical": 4096, "physical": 4096, "discardGranularity": 512}),
            "discardGranularity: Invalid value: \"512\": Discard granularity 512 must be multiples of logical size 4096",
        ),
        (
            json!({"logical": 512, "physical": 512, "discardGranularity": 2147483648_u32}),
            "by 1073741824 bytes at most",
        ),
    ] {
        let refused = refusal(&disk(&json!({"blockSize": {"custom": custom}})));
        assert!(refused.contains(said), "{refused}");
    }
    let both = json!({"custom": {"logical": 512, "physical": 512}, "matchVolume": {}});
    let refused = refusal(&disk(&json!({"blockSize": both})));
    assert!(
        refused.contains("together with a custom value"),
        "{refused}"
    );
}

#[test]
fn queues_follow_vcpus_where_they_are_asked_for() {
    let (vmi, _) = admitted(&json!({"cpu": {"cores": 4}}));
    assert_eq!((vmi.disk_queues, vmi.interfaces[0].queues), (1, 1));
    let devices = json!({
        "blockMultiQueue": true,
        "networkInterfaceMultiqueue": true,
        "interfaces": [{"name": "net", "bridge": {}}],
    });
    let (vmi, _) = admitted(&json!({"cpu": {"cores": 4}, "devices": devices}));
    assert_eq!((vmi.disk_queues, vmi.interfaces[0].queues), (4, 4));
}

#[test]
fn a_link_is_up_or_down_and_an_absent_interface_is_none() {
    let with = |state: &str| {
        let interface = json!({"name": "net", "bridge": {}, "state": state});
        json!({"devices": {"interfaces": [interface]}})
    };
    for (state, is_down) in [("up", false), ("down", true)] {
        let (vmi, _) = admitted(&with(state));
        assert_eq!(vmi.interfaces[0].link_down, is_down);
    }
    let (vmi, _) = admitted(&with("absent"));
    assert!(vmi.interfaces.is_empty());
    let refused = refusal(&with("away"));
    assert!(
        refused.contains("logical net interface state value is unsupported: away"),
        "{refused}"
    );
}

#[test]
fn a_balloon_is_there_unless_it_is_not_wanted_and_a_socket_device_if_it_is() {
    let (vmi, _) = admitted(&json!({}));
    assert!(vmi.has(SingleDevice::Balloon) && !vmi.has(SingleDevice::Vsock));
    let devices = json!({
        "autoattachMemBalloon": false,
        "autoattachVSOCK": true,
        "interfaces": [{"name": "net", "bridge": {}}],
    });
    let (vmi, _) = admitted(&json!({"devices": devices}));
    assert!(!vmi.has(SingleDevice::Balloon) && vmi.has(SingleDevice::Vsock));
}

#[test]
fn options_that_change_nothing_for_a_disk_of_an_image_are_named() {
    let ignored = |disk: Value, volume: Value| {
        let devices = json!({"disks": [disk], "interfaces": [{"name": "net", "bridge": {}}]});
        let admitted = admit(&json!({"devices": devices, "volumes": [volume]})).unwrap();
        let paths = admitted.ignored.into_iter().map(|remark| remark.path);
        paths.collect::<Vec<_>>()
    };
    let image = json!({"name": "root", "containerDisk": {"image": "a:1"}});
    let empty = json!({"name": "root", "emptyDisk": {"capacity": "1Mi"}});
    let shared = json!({"name": "root", "shareable": true, "disk": {}});
    let path = |field: &str| vec![format!("spec.domain.devices.disks[0].{field}")];
    assert_eq!(ignored(shared.clone(), image.clone()), path("shareable"));
    assert!(ignored(shared, empty).is_empty());
    let read = json!({"name": "root", "cache": "none", "disk": {"readonly": true}});
    assert_eq!(ignored(read, image.clone()), path("cache"));
    let written = json!({"name": "root", "cache": "none", "disk": {}});
    assert!(ignored(written, image).is_empty());
}
