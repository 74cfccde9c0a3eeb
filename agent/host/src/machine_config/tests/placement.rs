//! Where guests are on their node.

use agent_plan::{CpuGrant, DedicatedCpus, PinnedCpu};

use super::*;
use crate::machine_config::placement::{numa_nodes, pinned};

fn pins(cpus: &v1::Cpus) -> (Vec<Vec<u32>>, Option<Vec<u32>>) {
    let vcpus = cpus.vcpu_pins.iter().map(|pin| pin.cpus.clone());
    let emulator = cpus.emulator_pin.as_ref().map(|pin| pin.cpus.clone());
    (vcpus.collect(), emulator)
}

fn own(cpus: &[(u32, u32)], emulator: Option<u32>) -> CpuGrant {
    let pinned = |(cpu, numa_node): &(u32, u32)| PinnedCpu {
        cpu: *cpu,
        numa_node: *numa_node,
    };
    CpuGrant::Dedicated(DedicatedCpus {
        vcpus: cpus.iter().map(pinned).collect(),
        emulator,
    })
}

#[test]
fn threads_run_on_the_cpus_that_were_granted() {
    let cpus = || v1::Cpus {
        count: 2,
        ..v1::Cpus::default()
    };
    let of_grant = |grant: Option<&CpuGrant>| pins(&pinned(cpus(), grant));
    assert_eq!(of_grant(None), (Vec::new(), None));
    let shared = CpuGrant::Shared("0-1".parse().unwrap());
    let both = vec![0, 1];
    assert_eq!(
        of_grant(Some(&shared)),
        (vec![both.clone(), both.clone()], Some(both))
    );
    let each = vec![vec![6], vec![2]];
    let with = own(&[(6, 0), (2, 0)], Some(3));
    assert_eq!(of_grant(Some(&with)), (each.clone(), Some(vec![3])));
    let without = own(&[(6, 0), (2, 0)], None);
    assert_eq!(of_grant(Some(&without)), (each, Some(vec![2, 6])));
}

#[test]
fn numa_nodes_are_those_of_the_cpus_with_equal_shares_of_memory() {
    let domain = |guest: &str, passthrough: bool| {
        let mut cpu = json!({"sockets": 3, "maxSockets": 4, "dedicatedCpuPlacement": true});
        if passthrough {
            cpu["numa"] = json!({"guestMappingPassthrough": {}});
        }
        json!({"cpu": cpu, "memory": {"guest": guest, "hugepages": {"pageSize": "2Mi"}}})
    };
    let grant = own(&[(8, 1), (9, 1), (1, 0)], None);
    let nodes = |domain: &Value| numa_nodes(&vmi(domain), Some(&grant));
    let found = nodes(&domain("66Mi", true));
    let shapes: Vec<_> = found
        .iter()
        .map(|node| {
            let mib = node.size_bytes >> 20;
            (node.host_nodes.clone(), mib, node.vcpus.clone())
        })
        .collect();
    assert_eq!(
        shapes,
        [(vec![0], 34, vec![2]), (vec![1], 32, vec![0, 1, 3])]
    );
    assert_eq!(found[0].host_policy(), v1::HostNumaPolicy::Bind);
    assert!(nodes(&domain("66Mi", false)).is_empty());
    assert!(nodes(&domain("2Mi", true)).is_empty());
}
