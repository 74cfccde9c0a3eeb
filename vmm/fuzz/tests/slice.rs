//! A slice of every campaign: the kept corpus, and programs by chance that are the same each time.

use vmm_fuzz::campaign::{self, Limit};
use vmm_fuzz::{TARGETS, targets};

/// Another seed is for campaigns: `cargo xtask fuzz`.
const SEED: u64 = 0x6b76_6d6c_6574;
const PROGRAMS: u64 = 1_500;

fn slice(name: &str) {
    let target = targets::find(name).expect("a target");
    assert!(!campaign::corpus(target).is_empty(), "no corpus");
    let outcome = campaign::run(target, SEED, Limit::Programs(PROGRAMS));
    println!("{name}: {} executions, seed {SEED:#x}", outcome.executions);
    for finding in &outcome.findings {
        println!("{}: {:02x?}", finding.what, finding.program);
    }
    assert!(outcome.findings.is_empty());
}

/// A test for each target, and one that none is left out.
macro_rules! slices {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                slice($name);
            }
        )*

        #[test]
        fn every_target_has_its_slice() {
            let tested = [$($name),*];
            let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(all, tested);
        }
    };
}

slices! {
    programs_for_a_disk_do_no_harm: "blk",
    programs_for_a_network_device_do_no_harm: "net",
    programs_for_a_source_of_entropy_do_no_harm: "rng",
    programs_for_a_console_do_no_harm: "console",
    programs_for_a_socket_device_do_no_harm: "vsock",
    programs_of_the_host_do_no_harm: "vsock-host",
    programs_for_a_balloon_do_no_harm: "balloon",
    programs_for_a_root_port_do_no_harm: "root-port",
    programs_for_a_watchdog_do_no_harm: "watchdog",
    programs_for_a_panic_device_do_no_harm: "pvpanic",
    programs_for_a_serial_port_do_no_harm: "serial",
    programs_for_firmware_configuration_do_no_harm: "fw-cfg",
    programs_for_flash_memory_do_no_harm: "pflash",
    exits_of_any_kind_do_no_harm: "exits",
    states_of_any_kind_do_no_harm: "states",
    snapshots_of_any_kind_do_no_harm: "snapshot",
    states_of_a_vcpu_do_no_harm: "vcpu",
    kernels_of_any_kind_do_no_harm: "kernel",
    disk_images_of_any_kind_do_no_harm: "disk-image",
    messages_of_any_kind_do_no_harm: "messages",
    requests_for_addresses_do_no_harm: "dhcp",
}
