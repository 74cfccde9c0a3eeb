//! Snapshots that releases took, kept as files without their RAM: this release goes on from all of
//! them. `docs/snapshots.md` says how one is made.

use std::collections::BTreeSet;
use std::path::PathBuf;

use prost::Message;
use proto_vmm::payload;
use proto_vmm::v1;
use vmm_devices::Payload;
use vmm_devices::virtio::balloon::BalloonConfig;
use vmm_devices::virtio::console::{ConsolePorts, ConsoleSize, ConsoleSpec};
use vmm_devices::virtio::vsock::{VsockConfig, VsockControl};
use vmm_machine::{FixedDevices, LifeConfig, Section, WatchdogAction, fuzzing};

use super::net::{self, Network};
use super::*;

/// Where they are, each named by its release.
const KEPT: &str = "tests/fixtures/snapshots";
/// Where formats are kept, below the root of the clone.
const FORMATS: [&str; 2] = [
    "vmm/devices/tests/fixtures/formats",
    "vmm/machine/tests/fixtures/formats",
];
/// The guest waits for its balloon, with drivers for the devices before it.
const WORDS: &str = "tests=blk,net,rng,vsock,balloon vsock_serve=0 then=idle";
const CID: u32 = 42;
/// Parts that only a host like the one that saved them takes.
const OF_THE_HOST: [&str; 3] = ["cpus", "vcpu 0", "vm"];

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("within the clone").to_path_buf()
}

/// Names and contents.
fn kept() -> Vec<(String, v1::Snapshot)> {
    let directory = root().join("integration").join(KEPT);
    let files = std::fs::read_dir(directory).expect("fixtures");
    let mut all: Vec<_> = files
        .map(|file| {
            let path = file.expect("a fixture").path();
            let bytes = std::fs::read(&path).expect("a fixture");
            let snapshot = payload::decode_snapshot(&bytes).expect("a snapshot");
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), snapshot)
        })
        .collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    assert!(!all.is_empty(), "no fixture is kept");
    all
}

fn section<'a>(snapshot: &'a v1::Snapshot, name: &str) -> &'a v1::SnapshotSection {
    let mut sections = snapshot.sections.iter();
    let found = sections.find(|section| section.name == name);
    found.unwrap_or_else(|| panic!("no {name}"))
}

fn of_wire(section: v1::SnapshotSection) -> Section {
    Section {
        name: section.name,
        payload: Payload {
            kind: section.kind,
            version: section.version,
            bytes: section.content,
        },
    }
}

/// Every device that a machine can have, and whoever they need.
struct Everything {
    network: Network,
    _disk: File,
    devices: Vec<(PciAddress, DeviceConfig)>,
}

impl Everything {
    fn new() -> Self {
        let network = Network::new(1);
        let (file, disk) = disk();
        let console = ConsoleSpec {
            name: String::new(),
            output: Arc::<Console>::default(),
            size: ConsoleSize::default(),
        };
        let named = vec!["org.qemu.guest_agent.0".to_owned()];
        let ports = ConsolePorts::new(Some(console), named).expect("ports");
        let sockets = VsockConfig {
            guest_cid: CID,
            listener: None,
            control: Arc::new(VsockControl::new().expect("a handle")),
        };
        let balloon = BalloonConfig {
            target_bytes: 0,
            deflate_on_oom: true,
            free_page_reporting: true,
            // None comes between two looks.
            stats_interval: Duration::ZERO,
        };
        let action = WatchdogAction::Reset;
        let mut devices = on_bus_0(vec![
            disk,
            network.nic(net::config()),
            DeviceConfig::Rng,
            DeviceConfig::Console(ports),
            DeviceConfig::Balloon(balloon),
            DeviceConfig::Vsock(sockets),
            DeviceConfig::I6300Esb { action },
            DeviceConfig::Pvpanic,
            DeviceConfig::RootPort { secondary_bus: 1 },
            DeviceConfig::RootPort { secondary_bus: 2 },
        ]);
        let behind = PciAddress::new(1, 0).expect("a slot");
        devices.push((behind, DeviceConfig::Rng));
        Self {
            network,
            _disk: file,
            devices,
        }
    }

    /// A machine of it. The network is to stay as long as the machine.
    fn machine(self, restore: Option<Restore>) -> (Machine, Network) {
        let plan = Plan {
            devices: self.devices,
            fixed: FixedDevices::ALL,
            life: LifeConfig {
                vm_gen_id: Some([7; 16]),
                ..LifeConfig::default()
            },
            ..plan(WORDS, Vec::new())
        };
        (Machine::build(plan, Arc::default(), restore), self.network)
    }
}

/// The state of a guest that waits, taken on this host.
fn taken() -> Snapshot {
    let (machine, _network) = Everything::new().machine(None);
    machine.handle.request(1, Request::Boot);
    machine.wait_for("TESTGUEST filled");
    let (snapshot, _) = machine.snapshot().expect("the guest waits");
    machine.stop();
    machine.ended();
    snapshot
}

fn without_everything() -> Option<String> {
    without_machine().or_else(without_network)
}

#[test]
#[ignore = "writes the fixture of this release: see docs/snapshots.md"]
fn the_snapshot_of_this_release_is_kept() {
    skip_if!(without_everything());
    let sections = taken().sections.into_iter().map(|section| {
        let Payload {
            kind,
            version,
            bytes,
        } = section.payload;
        v1::SnapshotSection {
            name: section.name,
            kind,
            version,
            content: bytes,
        }
    });
    let snapshot = v1::Snapshot {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sections: sections.collect(),
        ram_offset: 0,
        ram_bytes: RAM_BYTES,
        ..v1::Snapshot::default()
    };
    let directory = root().join("integration").join(KEPT);
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join(env!("CARGO_PKG_VERSION"));
    std::fs::write(file, payload::encode_snapshot(&snapshot)).expect("written");
}

/// States that no kept snapshot has.
const NOT_KEPT: [&str; 9] = [
    "virtio-blk-1",
    "virtio-blk-2",
    "virtio-blk-3",
    "firmware-platform-1",
    "fw-cfg-1",
    "ich9-lpc-1",
    "pflash-1",
    "pflash-2",
    "q35-host-bridge-1",
];

#[test]
fn kept_snapshots_have_a_kept_format_for_every_part() {
    let mut formats = BTreeSet::new();
    for directory in FORMATS {
        for file in std::fs::read_dir(root().join(directory)).expect("formats") {
            let path = file.expect("a format").path();
            let name = path.file_stem().expect("a name").to_string_lossy();
            formats.insert(name.into_owned());
        }
    }
    let all = kept();
    for (name, snapshot) in &all {
        for section in &snapshot.sections {
            let format = format!("{}-{}", section.kind, section.version);
            assert!(formats.contains(&format), "{name}: {format}");
        }
    }
    // And the other way round: no kind of state is in none of them. A disk has one only while it holds
    // requests, has lost data or lies over a base, which those here do not; and the test guest boots without firmware.
    // What such states are loaded from is with the tests of their own.
    let in_snapshots: BTreeSet<_> = all
        .iter()
        .flat_map(|(_, snapshot)| &snapshot.sections)
        .map(|section| format!("{}-{}", section.kind, section.version))
        .chain(NOT_KEPT.map(str::to_owned))
        .collect();
    assert_eq!(in_snapshots, formats);
}

/// What is looked at of a vCPU, as its format says.
#[derive(Clone, PartialEq, Message)]
struct KeptVcpu {
    #[prost(bytes = "vec", tag = "1")]
    registers: Vec<u8>,
    #[prost(message, repeated, tag = "9")]
    msrs: Vec<KeptMsr>,
    #[prost(uint32, tag = "10")]
    tsc_khz: u32,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct KeptMsr {
    #[prost(uint32, tag = "1")]
    index: u32,
    #[prost(fixed64, tag = "2")]
    value: u64,
}

#[derive(Clone, PartialEq, Message)]
struct KeptLegacy {
    #[prost(message, optional, tag = "1")]
    power: Option<KeptPower>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct KeptPower {
    #[prost(uint32, tag = "3")]
    control: u32,
    #[prost(uint64, tag = "5")]
    timer_ns: u64,
}

#[test]
fn values_of_kept_snapshots_are_where_their_formats_say() {
    const TSC: u32 = 0x10;
    /// `rip` in `struct kvm_regs`.
    const RIP: std::ops::Range<usize> = 128..136;

    for (name, snapshot) in kept() {
        let state = &section(&snapshot, "vcpu 0").content;
        fuzzing::read_vcpu(state).expect("a vCPU");
        let vcpu = KeptVcpu::decode(state.as_slice()).expect("a vCPU");
        let rip = vcpu.registers[RIP].try_into().expect("eight bytes");
        // The guest is loaded at 2 MiB, and it is small.
        let text = 2 << 20..8 << 20;
        assert!(text.contains(&u64::from_le_bytes(rip)), "{name}");
        let tsc = vcpu.msrs.iter().find(|msr| msr.index == TSC);
        assert!(tsc.is_some_and(|msr| msr.value > 0), "{name}");
        assert!(vcpu.tsc_khz > 0, "{name}");
        let legacy = &section(&snapshot, "legacy").content;
        let legacy = KeptLegacy::decode(legacy.as_slice()).expect("ports");
        let power = legacy.power.expect("power management");
        assert_eq!(power.control & 1, 1, "{name}: not in ACPI mode");
        assert!(power.timer_ns > 0, "{name}");
        assert_eq!(snapshot.ram_bytes, RAM_BYTES, "{name}");
    }
}

#[test]
fn this_release_goes_on_from_kept_snapshots_and_saves_the_same() {
    skip_if!(without_everything());
    let fresh = taken();
    for (name, snapshot) in kept() {
        let mut sections: Vec<_> = snapshot.sections.into_iter().map(of_wire).collect();
        let here = |name: &str| {
            let mut own = fresh.sections.iter();
            own.find(|own| own.name == name).expect("the part").clone()
        };
        let is_same_host = sections.contains(&here("cpus"));
        println!("{name}: of a host like this one: {is_same_host}");
        if !is_same_host {
            for section in &mut sections {
                if OF_THE_HOST.contains(&section.name.as_str()) {
                    *section = here(&section.name);
                }
            }
        }
        let wanted = sections.clone();
        let restore = Restore {
            snapshot: Snapshot { sections },
            // Without RAM the guest cannot run. Nothing of its devices is there either.
            fill_ram: Box::new(|_| Ok(())),
        };
        let (machine, _network) = Everything::new().machine(Some(restore));
        let (again, _) = machine.snapshot().expect("the machine is paused");
        machine.stop();
        machine.ended();
        let names = |sections: &[Section]| -> BTreeSet<String> {
            sections.iter().map(|part| part.name.clone()).collect()
        };
        assert_eq!(names(&wanted), names(&again.sections), "{name}");
        for section in &wanted {
            // Clocks went on.
            if section.name == "legacy" || OF_THE_HOST.contains(&section.name.as_str()) {
                continue;
            }
            assert!(
                again.sections.contains(section),
                "{name}: {} is saved otherwise: {:?}",
                section.name,
                again
                    .sections
                    .iter()
                    .filter(|other| other.name == section.name)
                    .collect::<Vec<_>>()
            );
        }
    }
}
