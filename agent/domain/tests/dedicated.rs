//! CPUs that guests have for themselves: KubeVirt's rules, in its words.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "common/small_vmi.rs"]
mod small_vmi;

use agent_domain::{DedicatedCpus, Vmi};
use serde_json::{Value, json};

/// CPUs and resources of a small VMI.
fn domain(cpu: &Value, resources: &Value) -> Value {
    json!({"cpu": cpu, "resources": resources})
}

fn admitted(domain: &Value) -> Vmi {
    let first = small_vmi::admit(domain).unwrap();
    assert!(first.ignored.is_empty(), "{:?}", first.ignored);
    let again = Vmi::restore(first.object.clone()).unwrap();
    assert_eq!(again.vmi, first.vmi);
    first.vmi
}

fn refusals(domain: &Value) -> Vec<(String, String)> {
    let errors = small_vmi::admit(domain).unwrap_err();
    let errors = errors.iter();
    errors
        .map(|error| (error.path.clone(), error.message.clone()))
        .collect()
}

/// What is refused, and with which words.
fn check(domain: &Value, expected: &[(&str, &str)]) {
    let found = refusals(domain);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(path, text)| (&**path, &**text))
        .collect();
    assert_eq!(found, expected);
}

const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";

#[test]
fn whole_cpus_are_admitted_wherever_their_number_is_given() {
    let plain = DedicatedCpus::default();
    for (cpu, resources, vcpus) in [
        (json!({"cores": 3}), json!({}), 3),
        (json!({}), json!({"limits": {"cpu": "2"}}), 2),
        (
            json!({"cores": 2, "threads": 2}),
            json!({"requests": {"cpu": 4}, "limits": {"cpu": "4000m"}}),
            4,
        ),
    ] {
        let mut cpu = cpu;
        cpu["dedicatedCpuPlacement"] = json!(true);
        let vmi = admitted(&domain(&cpu, &resources));
        assert_eq!((vmi.cpus.count(), vmi.cpu.dedicated), (vcpus, Some(plain)));
    }
    let shares = admitted(&domain(
        &json!({"cores": 2, "dedicatedCpuPlacement": false}),
        &json!({"requests": {"cpu": "100m"}}),
    ));
    assert_eq!(shares.cpu.dedicated, None);
    let isolated =
        json!({"cores": 2, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true});
    let vmi = admitted(&domain(&isolated, &json!({})));
    assert!(vmi.cpu.dedicated.unwrap().isolate_emulator);
}

#[test]
fn parts_of_cpus_and_numbers_that_disagree_are_refused() {
    let cpu = |cpu: Value| {
        let mut cpu = cpu;
        cpu["dedicatedCpuPlacement"] = json!(true);
        cpu
    };
    check(
        &domain(
            &cpu(json!({})),
            &json!({"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}),
        ),
        &[
            (
                "spec.domain.resources.requests.cpu",
                "provided resources CPU requests must be an interger",
            ),
            (
                "spec.domain.resources.limits.cpu",
                "provided resources CPU limits must be an interger",
            ),
        ],
    );
    check(
        &domain(
            &cpu(json!({})),
            &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
        ),
        &[(
            DEDICATED,
            "spec.domain.resources.requests.cpu or spec.domain.resources.limits.cpu must be equal when \
             DedicatedCPUPlacement is true ",
        )],
    );
    check(
        &domain(&cpu(json!({"cores": 3})), &json!({"limits": {"cpu": "2"}})),
        &[(
            DEDICATED,
            "spec.domain.resources.requests.cpu or spec.domain.resources.limits.cpu must not be provided at \
             the same time with spec.domain.cpu.cores when DedicatedCPUPlacement is true ",
        )],
    );
    check(
        &domain(
            &cpu(json!({"threads": 3})),
            &json!({"requests": {"memory": "64Mi"}, "limits": {"memory": "65Mi"}}),
        ),
        &[
            (
                "spec.domain.resources.requests.memory",
                "spec.domain.resources.requests.memory must be equal to spec.domain.resources.limits.memory",
            ),
            (
                DEDICATED,
                "Not more than two threads must be provided at spec.domain.cpu.threads (got 3) when \
                 DedicatedCPUPlacement is true",
            ),
        ],
    );
}

#[test]
fn an_emulator_thread_and_numa_nodes_take_cpus_of_their_own() {
    check(
        &domain(&json!({"isolateEmulatorThread": true}), &json!({})),
        &[(
            "spec.domain.cpu.isolateEmulatorThread",
            "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement",
        )],
    );
    let path = "spec.domain.cpu.numa.guestMappingPassthrough";
    check(
        &domain(
            &json!({"numa": {"guestMappingPassthrough": {}}}),
            &json!({}),
        ),
        &[
            (
                path,
                "spec.domain.cpu.dedicatedCpuPlacement must be set to true when NUMA topology strategy is \
                 set in spec.domain.cpu.numa.guestMappingPassthrough",
            ),
            (
                path,
                "spec.domain.memory.hugepages must be requested when NUMA topology strategy is set in \
                 spec.domain.cpu.numa.guestMappingPassthrough",
            ),
        ],
    );
    let mirrored = |memory: Value| {
        let numa = json!({"guestMappingPassthrough": {}});
        json!({"cpu": {"dedicatedCpuPlacement": true, "cores": 1, "numa": numa}, "memory": memory})
    };
    let memory = json!({"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}});
    assert!(
        admitted(&mirrored(memory))
            .cpu
            .dedicated
            .unwrap()
            .numa_passthrough
    );
    let growing = json!({"guest": "1Gi", "maxGuest": "2Gi", "hugepages": {"pageSize": "2Mi"}});
    check(
        &mirrored(growing),
        &[(
            "spec.domain.memory.guest",
            "Memory hotplug is not compatible with guest mapping passthrough",
        )],
    );
}
