//! The tables as firmware and guests come to see them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use vmm_kvm::CpuTopology;
use vmm_memory::Layout;

use super::loader::{BlobName, Step, Zone};
use super::*;
use crate::fixed_devices::FixedDevices;
use crate::numa::NumaNode;

/// NICs with a number behind a root port and on bus 0.
fn pci() -> DescribedPci {
    DescribedPci {
        last_bus: 3,
        named: vec![
            NamedFunction {
                device: 0,
                port: Some(23),
                index: 101,
            },
            NamedFunction {
                device: 5,
                port: None,
                index: 16_383,
            },
        ],
    }
}

fn set(topology: CpuTopology, nodes: &[NumaNode]) -> TableSet {
    set_with(topology, nodes, true)
}

fn set_with(topology: CpuTopology, nodes: &[NumaNode], isa_pvpanic: bool) -> TableSet {
    let layout = Layout::new(4 << 30, 40).unwrap();
    tables(&Described {
        layout: &layout,
        addresses: Addresses::fixed(&layout),
        pci: &pci(),
        topology,
        nodes,
        vm_gen_id: Some(0xe_f028),
        fixed: FixedDevices { isa_pvpanic },
    })
}

fn whole() -> TableSet {
    let node = |vcpus: Vec<u32>| NumaNode {
        vcpus,
        memory_bytes: 2 << 30,
        distances: vec![10, 17],
        host: None,
    };
    let topology = CpuTopology::new(2, 2, 1).unwrap();
    set(topology, &[node(vec![0, 1]), node(vec![2, 3])])
}

/// Guest memory of a loader that is not the machine's: firmware that is given blobs and script.
#[derive(Default)]
struct Firmware {
    root_at: u64,
    tables_at: u64,
    memory: BTreeMap<u64, u8>,
}

impl Firmware {
    fn load(set: &TableSet, root_at: u64, tables_at: u64) -> Self {
        let (root, tables, steps) = set.hand_over();
        let mut memory = Self {
            root_at,
            tables_at,
            memory: BTreeMap::new(),
        };
        for step in steps {
            match *step {
                Step::Allocate { blob, align, zone } => {
                    assert_eq!(memory.base(blob) % align, 0);
                    assert_eq!(zone == Zone::Search, blob == BlobName::Root);
                    let content = match blob {
                        BlobName::Root => root,
                        BlobName::Tables => tables,
                    };
                    let base = memory.base(blob);
                    memory.memory.extend((base..).zip(content.iter().copied()));
                }
                Step::AddPointer {
                    blob,
                    offset,
                    bytes,
                    target,
                } => {
                    let at = memory.base(blob) + offset as u64;
                    let value = memory.number(at, bytes) + memory.base(target);
                    let value = value.to_le_bytes();
                    let low = value.into_iter().take(bytes);
                    memory.memory.extend((at..).zip(low));
                }
                Step::AddChecksum {
                    blob,
                    offset,
                    start,
                    bytes,
                } => {
                    let sum = memory.sum(memory.base(blob) + start as u64, bytes);
                    let at = memory.base(blob) + offset as u64;
                    let byte = memory.memory.get_mut(&at).unwrap();
                    *byte = byte.wrapping_sub(sum);
                }
            }
        }
        memory
    }

    fn base(&self, blob: BlobName) -> u64 {
        match blob {
            BlobName::Root => self.root_at,
            BlobName::Tables => self.tables_at,
        }
    }

    fn bytes(&self, at: u64, bytes: usize) -> Vec<u8> {
        (at..).take(bytes).map(|at| self.memory[&at]).collect()
    }

    fn number(&self, at: u64, bytes: usize) -> u64 {
        let content = self.bytes(at, bytes).into_iter().rev();
        content.fold(0, |value, byte| value << 8 | u64::from(byte))
    }

    fn sum(&self, at: u64, bytes: usize) -> u8 {
        let content = self.bytes(at, bytes).into_iter();
        content.fold(0u8, |sum, byte| sum.wrapping_add(byte))
    }

    /// A table with a right checksum; its signature.
    fn table(&self, at: u64) -> String {
        let length = usize::try_from(self.number(at + 4, 4)).unwrap();
        assert_eq!(self.sum(at, length), 0);
        String::from_utf8(self.bytes(at, 4)).unwrap()
    }

    /// From the root pointer to all tables, as a guest goes.
    fn walk(&self) -> Vec<String> {
        let root = self.root_at;
        assert_eq!(self.bytes(root, 8), b"RSD PTR ");
        assert_eq!((self.sum(root, 20), self.sum(root, 36)), (0, 0));
        let xsdt = self.number(root + 24, 8);
        assert_eq!(self.table(xsdt), "XSDT");
        let entries = (self.number(xsdt + 4, 4) - 36) / 8;
        let mut found = Vec::new();
        for entry in 0..entries {
            let table = self.number(xsdt + 36 + entry * 8, 8);
            let name = self.table(table);
            if name == "FACP" {
                let dsdt = self.number(table + 140, 8);
                assert_eq!(self.table(dsdt), "DSDT");
                assert_eq!(self.number(table + 40, 4), dsdt);
                let facs = self.number(table + 132, 8);
                assert_eq!(self.number(table + 36, 4), facs);
                assert_eq!(self.bytes(facs, 4), b"FACS");
                assert_eq!(facs % 64, 0);
            }
            found.push(name);
        }
        found
    }
}

proptest! {
    #[test]
    fn pointers_and_checksums_hold_wherever_a_loader_puts_the_blobs(
        root in 0xe_0000u64 >> 6..0x10_0000 >> 6,
        tables in 0x10_0000u64 >> 6..0x8000_0000 >> 6,
    ) {
        let loaded = Firmware::load(&whole(), root << 6, tables << 6);
        prop_assert_eq!(loaded.walk(), ["FACP", "APIC", "MCFG", "WAET", "SRAT", "SLIT"]);
    }
}

#[test]
fn the_machine_places_tables_as_any_loader_would() {
    let set = whole();
    let loaded = Firmware::load(&set, 0xe_0000, 0x7fe0_0040);
    let placed = set.place(|zone, _, _| match zone {
        Zone::Search => 0xe_0000,
        Zone::Anywhere => 0x7fe0_0040,
    });
    for blob in [&placed.root, &placed.tables] {
        assert_eq!(loaded.bytes(blob.address, blob.bytes.len()), blob.bytes);
    }
}

#[test]
fn without_numa_nodes_there_is_no_srat() {
    let topology = CpuTopology::new(1, 1, 1).unwrap();
    let loaded = Firmware::load(&set(topology, &[]), 0xf_0000, 0x10_0000);
    assert_eq!(loaded.walk(), ["FACP", "APIC", "MCFG", "WAET"]);
}

/// A guest that is reset under a later release finds its hardware described as before. Who means to change that changes the sums.
#[test]
fn tables_are_those_of_earlier_releases_byte_for_byte() {
    let sums = [false, true].map(|isa_pvpanic| {
        let set = set_with(CpuTopology::new(2, 2, 1).unwrap(), &[], isa_pvpanic);
        let (root, tables, _) = set.hand_over();
        (crc32fast::hash(root), tables.len(), crc32fast::hash(tables))
    });
    assert_eq!(sums[0], (0x304d_0118, 1476, 0x214f_857d));
    assert_eq!(sums[1], (0x002e_b6e8, 1540, 0x5f00_e377));
}

#[test]
fn tables_are_written_where_guests_search_or_refused() {
    let layout = Layout::new(2 << 20, 40).unwrap();
    let ram = vmm_memory::create_ram(&layout).unwrap();
    assert_eq!(write_tables(&ram, &whole()).unwrap(), ACPI_BASE);
    let mut signature = [0; 8];
    ram.read_slice(&mut signature, GuestAddress(ACPI_BASE))
        .unwrap();
    assert_eq!(&signature, b"RSD PTR ");

    let many = set(CpuTopology::new(4096, 1, 1).unwrap(), &[]);
    let refused = write_tables(&ram, &many).unwrap_err();
    assert!(matches!(refused, AcpiError::TooLarge { .. }));
}

/// Runs a tool of the reference implementation; `None` when it is not installed.
fn acpica(tool: &str, arguments: &[&str], directory: &Path) -> Option<String> {
    let run = |arguments: &[&str]| {
        let mut command = Command::new(tool);
        command.args(arguments).current_dir(directory).output()
    };
    if run(&["-v"]).is_err() {
        test_skip::report(&format!("{tool} (Debian's acpica-tools) is not installed"));
        return None;
    }
    let output = run(arguments).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !printed.contains("Error "),
        "{printed}"
    );
    Some(printed)
}

/// The DSDT of a machine that has everything, in a file `dsdt.aml`.
fn dsdt_file() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let layout = Layout::new(4 << 30, 40).unwrap();
    let dsdt = dsdt::dsdt(&Described {
        layout: &layout,
        addresses: Addresses::fixed(&layout),
        pci: &pci(),
        topology: CpuTopology::new(1, 1, 1).unwrap(),
        nodes: &[],
        vm_gen_id: Some(0x1_0000_0000),
        fixed: FixedDevices::ALL,
    });
    std::fs::write(directory.path().join("dsdt.aml"), dsdt).unwrap();
    directory
}

/// Disassembled and compiled again, the DSDT gives no error: its AML is what was meant.
#[test]
fn the_dsdt_is_understood_by_the_reference_compiler() {
    let directory = dsdt_file();
    // 6035: QEMUVGID does not end in a number, as ids of ACPI should; guests know it all the same.
    let compile = ["-ve", "-vw", "6035", "dsdt.dsl"];
    for arguments in [&["-d", "dsdt.aml"][..], &compile] {
        if acpica("iasl", arguments, directory.path()).is_none() {
            return;
        }
    }
    let source = std::fs::read_to_string(directory.path().join("dsdt.dsl")).unwrap();
    for name in [
        "_OSC",
        "VMGN",
        "_E05",
        "PEVT",
        "_S5",
        "COM1",
        "MBRD",
        "Device (S17)",
        "Device (SLOT)",
        "Device (S05)",
        "Device Labeling Interface",
    ] {
        assert!(source.contains(name), "{name} is missing:\n{source}");
    }
}

/// The arguments of `_DSM` are those of Linux: the UUID of PCI's functions, revision, function.
#[test]
fn the_reference_interpreter_reads_the_numbers_of_nics() {
    const UUID: &str = "(D0 37 C9 E5 53 35 7A 4D 91 17 EA 4D 19 C3 43 4D)";
    const OTHER: &str = "(D1 37 C9 E5 53 35 7A 4D 91 17 EA 4D 19 C3 43 4D)";
    const NOTHING: &str = "[Buffer] Length 01 =     0000: 00";
    let directory = dsdt_file();
    for (function, uuid, revision, number, answers) in [
        (
            "S17.SLOT",
            UUID,
            2,
            7,
            &["[Integer] = 0000000000000065", "[String] Length 00"][..],
        ),
        ("S05", UUID, 2, 7, &["[Integer] = 0000000000003FFF"]),
        ("S05", UUID, 2, 0, &["[Buffer] Length 01 =     0000: 81"]),
        ("S05", UUID, 2, 8, &[NOTHING]),
        ("S05", UUID, 1, 7, &[NOTHING]),
        ("S05", OTHER, 2, 7, &[NOTHING]),
    ] {
        let command = format!("evaluate \\_SB.PCI0.{function}._DSM {uuid} {revision} {number} [0]");
        let Some(printed) = acpica("acpiexec", &["-b", &command, "dsdt.aml"], directory.path())
        else {
            return;
        };
        for answer in answers {
            assert!(printed.contains(answer), "{command}: {printed}");
        }
    }
}
