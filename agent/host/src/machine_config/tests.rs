//! The machine that a VMM gets for a VMI.

mod placement;

use std::fs::File;
use std::os::fd::OwnedFd;

use agent_domain::{Boot, DiskCache, SingleDevice};
use agent_plan::PciDemand;
use proto_vmm::v1::pci_device::Kind;
use serde_json::{Value, json};

use super::*;

fn vmi(domain: &Value) -> Vmi {
    let mut spec = json!({"cpu": {"cores": 2}});
    for (member, value) in domain.as_object().unwrap() {
        spec[member] = value.clone();
    }
    crate::small_vmi::admit(&spec).unwrap().vmi
}

fn null() -> OwnedFd {
    File::open("/dev/null").unwrap().into()
}

fn opened_boot(vmi: &Vmi) -> OpenedBoot {
    match &vmi.boot {
        Boot::Kernel(kernel) => OpenedBoot::Kernel {
            kernel: null(),
            initrd: None,
            cmdline: kernel.cmdline.clone(),
        },
        Boot::Firmware(firmware) => OpenedBoot::Firmware {
            code: null(),
            variables: Some(null()),
            order: firmware.order.clone(),
            serial: true,
        },
    }
}

fn opened(vmi: &Vmi, cache: DiskCache) -> Opened {
    let queues = || vmi.interfaces.iter().map(|interface| interface.queues);
    Opened {
        kvm: null(),
        exit_record: null(),
        console_log: null(),
        boot: opened_boot(vmi),
        disks: vmi
            .disks
            .iter()
            .map(|_| OpenedDisk {
                image: null(),
                base: None,
                cache,
            })
            .collect(),
        taps: queues()
            .map(|count| OpenedTap {
                queues: (0..count).map(|_| null()).collect(),
                mtu: 1500,
            })
            .collect(),
        guest_agent: null(),
        vsock: vmi.has(SingleDevice::Vsock).then(|| OpenedVsock {
            cid: 7,
            listener: null(),
            broker: null(),
        }),
    }
}

fn machine(domain: &Value, cache: DiskCache) -> v1::MachineConfig {
    let vmi = vmi(domain);
    let opened = opened(&vmi, cache);
    let (machine, _) = assembled(&vmi, &opened);
    assert_eq!(machine.vm_gen_id, [9; 16]);
    let kernel = machine.kernel.as_ref();
    assert!(kernel.is_none_or(|kernel| kernel.memory_mapped_pci));
    machine
}

fn assembled<'a>(vmi: &Vmi, opened: &'a Opened) -> (v1::MachineConfig, Vec<BorrowedFd<'a>>) {
    let mut addresses = PciAddresses::default();
    addresses.complete(&PciDemand::of(vmi));
    let launch = Launch {
        incarnation: 3,
        addresses: &addresses,
        cpus: None,
        generation_id: [9; 16],
    };
    let policy = MachinePolicy {
        console_log_bytes: 65536,
        memory_mapped_pci: true,
        debug_ports: DebugIoPorts::default(),
    };
    assemble(vmi, launch, opened, policy).unwrap()
}

fn kinds(machine: &v1::MachineConfig) -> impl Iterator<Item = &Kind> {
    machine
        .devices
        .iter()
        .filter_map(|device| device.kind.as_ref())
}

fn blk(machine: &v1::MachineConfig) -> (&v1::VirtioBlk, &str) {
    let found = machine
        .devices
        .iter()
        .find_map(|device| match &device.kind {
            Some(Kind::Blk(blk)) => Some((blk, device.io_thread.as_str())),
            _ => None,
        });
    found.unwrap()
}

fn net(machine: &v1::MachineConfig) -> &v1::VirtioNet {
    let found = kinds(machine).find_map(|kind| match kind {
        Kind::Net(net) => Some(net),
        _ => None,
    });
    found.unwrap()
}

#[test]
fn the_kernel_moves_the_frames_of_as_many_cards_as_there_are_descriptors_left_for() {
    let domain = json!({"devices": {
        "networkInterfaceMultiqueue": true,
        "interfaces": [{"name": "net", "bridge": {}}],
    }});
    let mut machine = machine(&domain, DiskCache::None);
    machine.devices.extend_from_within(..);
    let vhost_of = |machine: &v1::MachineConfig| -> Vec<Vec<u32>> {
        kinds(machine)
            .filter_map(|kind| match kind {
                Kind::Net(net) => Some(net.vhost_fds.clone()),
                _ => None,
            })
            .collect()
    };
    let none = || Err(std::io::ErrorKind::NotFound.into());
    assert!(offer_vhost(&mut machine, 10, none).is_empty());
    assert_eq!(vhost_of(&machine), [[0; 0], [0; 0]]);
    let open = || Ok(null());
    assert_eq!(offer_vhost(&mut machine, 61, open).len(), 2);
    assert_eq!(vhost_of(&machine), [vec![61, 62], Vec::new()]);
    assert_eq!(offer_vhost(&mut machine, 60, open).len(), 4);
    assert_eq!(vhost_of(&machine), [[60, 61], [62, 63]]);
}

#[test]
fn a_plain_guest_has_kubevirts_defaults() {
    let machine = machine(&json!({}), DiskCache::None);
    let cpus = machine.cpus.as_ref().unwrap();
    assert_eq!((cpus.model.as_str(), cpus.max_sockets), ("host-model", 1));
    assert_eq!(cpus.hyperv, None);
    assert_eq!(cpus.kvm, Some(v1::KvmFeatures::default()));
    assert_eq!(machine.clock, Some(v1::Clock::default()));
    let (disk, thread) = blk(&machine);
    assert_eq!((disk.cache(), thread), (v1::DiskCache::None, ""));
    assert_eq!((disk.queues, disk.discard), (1, true));
    assert_eq!(
        (disk.logical_block_bytes, disk.physical_block_bytes),
        (512, 512)
    );
    assert_eq!(disk.write_errors(), v1::DiskErrorPolicy::Stop);
    let nic = net(&machine);
    assert!(nic.more_tap_fds.is_empty() && nic.vhost_fds.is_empty() && !nic.link_down);
    let balloon = kinds(&machine).find_map(|kind| match kind {
        Kind::Balloon(balloon) => Some(*balloon),
        _ => None,
    });
    assert!(balloon.unwrap().free_page_reporting);
    assert!(!kinds(&machine).any(|kind| matches!(kind, Kind::Vsock(_))));
}

#[test]
fn firmware_gets_the_boot_order() {
    let domain = json!({
        "firmware": {"bootloader": {"efi": {"secureBoot": false}}},
        "devices": {
            "disks": [{"name": "scratch", "bootOrder": 2}],
            "interfaces": [{"name": "net", "bridge": {}, "bootOrder": 1}],
        },
    });
    let machine = machine(&domain, DiskCache::None);
    assert_eq!(machine.kernel, None);
    let firmware = machine.firmware.unwrap();
    assert!(firmware.variables_fd.is_some() && firmware.serial_console);
    let addresses = firmware.boot_order.iter();
    let addresses: Vec<_> = addresses
        .map(|address| (address.bus, address.device))
        .collect();
    // The first interface, the first disk.
    assert_eq!(addresses, [(1, 0), (0, 1)]);
}

#[test]
fn cpus_and_clocks_are_those_that_were_asked_for() {
    let domain = json!({
        "cpu": {
            "model": "EPYC",
            "sockets": 1,
            "maxSockets": 4,
            "features": [{"name": "svm", "policy": "optional"}],
        },
        "features": {
            "hyperv": {"synictimer": {}, "vendorid": {"vendorid": "me"}},
            "kvm": {"hidden": true},
        },
        "clock": {
            "utc": {"offsetSeconds": 60},
            "timer": {"kvm": {"present": false}, "pit": {"present": false, "tickPolicy": "discard"}},
        },
        "devices": {
            "panicDevices": [{"model": "hyperv"}],
            "interfaces": [{"name": "net", "bridge": {}}],
        },
    });
    let machine = machine(&domain, DiskCache::WriteBack);
    let cpus = machine.cpus.unwrap();
    assert_eq!((cpus.model.as_str(), cpus.max_sockets), ("EPYC", 4));
    assert_eq!(cpus.features[0].policy(), v1::CpuFeaturePolicy::Optional);
    let hyperv = cpus.hyperv.unwrap();
    assert!(hyperv.synictimer && hyperv.synic && hyperv.vpindex && hyperv.time && hyperv.crash);
    assert!(!hyperv.relaxed && !hyperv.passthrough);
    assert_eq!(hyperv.vendorid, "me");
    let kvm = cpus.kvm.unwrap();
    assert!(kvm.hidden);
    assert_eq!(
        (kvm.clock(), kvm.spinlocks()),
        (v1::Toggle::Off, v1::Toggle::Unspecified)
    );
    let clock = machine.clock.unwrap();
    assert_eq!((clock.rtc_offset_seconds, clock.no_pit), (60, true));
    assert!(!clock.pit_discards_missed_ticks);
}

#[test]
fn disks_and_nics_are_served_as_they_were_asked_for() {
    let domain = json!({
        "memory": {"guest": "512Mi", "hugepages": {"pageSize": "2Mi"}},
        "devices": {
            "autoattachVSOCK": true,
            "blockMultiQueue": true,
            "networkInterfaceMultiqueue": true,
            "interfaces": [{"name": "net", "bridge": {}, "state": "down", "acpiIndex": 101}],
            "disks": [{
                "name": "scratch",
                "io": "threads",
                "errorPolicy": "stop",
                "dedicatedIOThread": true,
                "blockSize": {"matchVolume": {}},
                "serial": "S1",
            }],
        },
    });
    let machine = machine(&domain, DiskCache::WriteThrough);
    let (disk, thread) = blk(&machine);
    assert_eq!(thread, "disk0");
    assert_eq!(
        (disk.cache(), disk.io()),
        (v1::DiskCache::Writethrough, v1::DiskIo::Threads)
    );
    assert_eq!(
        (disk.queues, disk.logical_block_bytes, disk.serial.as_str()),
        (2, 0, "S1")
    );
    assert_eq!(disk.read_errors(), v1::DiskErrorPolicy::Stop);
    assert_eq!(disk.write_errors(), v1::DiskErrorPolicy::Stop);
    let nic = net(&machine);
    assert!(nic.more_tap_fds.len() == 1 && nic.link_down && nic.acpi_index == 101);
    let devices: Vec<&Kind> = kinds(&machine).collect();
    let is_silent =
        |kind: &&&Kind| matches!(kind, Kind::Balloon(balloon) if !balloon.free_page_reporting);
    assert!(devices.iter().any(|kind| is_silent(&kind)));
    assert!(
        devices
            .iter()
            .any(|kind| matches!(kind, Kind::Vsock(vsock) if vsock.guest_cid == 7))
    );
}

#[test]
fn a_zone_that_the_node_does_not_know_ends_the_start() {
    let vmi = vmi(&json!({"clock": {"timezone": "Atlantis/Capital"}}));
    let error = cpus::clock(&vmi).map_err(AssembleError::from).unwrap_err();
    assert_eq!(error.reason(), "TimezoneNotFound");
}

#[test]
fn the_overhead_of_a_vmi_is_the_sum_of_what_its_parts_may_hold() {
    const KIB: u64 = 1 << 10;
    let overhead = |domain: &Value| {
        let vmi = vmi(domain);
        assert_eq!((vmi.disks.len(), vmi.interfaces.len()), (1, 1));
        agent_plan::overhead_bytes(&vmi) / KIB
    };
    let interfaces = json!([{"name": "net", "bridge": {}}]);
    // The VMM, a 128th of 512 MiB, two vCPUs, a disk, a NIC with one pair of queues.
    let bare = (63 + 4 + 2 + 8 + 1) * 1024 + 512;
    assert_eq!(overhead(&json!({})), bare);
    let cpus = json!({"cpu": {"cores": 4}});
    assert_eq!(overhead(&cpus), bare + 2 * 1024);
    let sockets = json!({"devices": {"interfaces": interfaces, "autoattachVSOCK": true}});
    assert_eq!(overhead(&sockets), bare + 72 * 1024);
    let queues = json!({"devices": {"interfaces": interfaces, "networkInterfaceMultiqueue": true}});
    assert_eq!(overhead(&queues), bare + 512);
}
