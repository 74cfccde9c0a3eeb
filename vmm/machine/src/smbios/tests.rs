//! SMBIOS as a guest walks it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use proto_machine::smbios::{BaseBoardInfo, ChassisInfo, MAX_SMBIOS_STRING_BYTES, SystemInfo};

use super::*;

/// A structure as found.
struct Found {
    kind: u8,
    handle: u16,
    formatted: Vec<u8>,
    strings: Vec<String>,
}

impl Found {
    /// The string that the field at `offset` names.
    fn string(&self, offset: usize) -> &str {
        match self.formatted[offset] {
            0 => "",
            number => &self.strings[usize::from(number) - 1],
        }
    }

    fn word(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.formatted[offset], self.formatted[offset + 1]])
    }
}

/// All structures, by their lengths and strings alone; the last must end the table.
fn walk(mut table: &[u8]) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    while !table.is_empty() {
        let (formatted, rest) = table.split_at(usize::from(table[1]));
        let mut strings = Vec::new();
        let mut rest = rest;
        loop {
            let end = rest.iter().position(|byte| *byte == 0).unwrap();
            let text = String::from_utf8(rest[..end].to_vec()).unwrap();
            rest = &rest[end + 1..];
            if text.is_empty() {
                break;
            }
            strings.push(text);
        }
        if strings.is_empty() {
            assert_eq!(rest[0], 0);
            rest = &rest[1..];
        }
        table = rest;
        found.push(Found {
            kind: formatted[0],
            handle: u16::from_le_bytes([formatted[2], formatted[3]]),
            formatted: formatted.to_vec(),
            strings,
        });
    }
    assert_eq!(found.last().map(|last| last.kind), Some(127));
    found
}

fn processors(topology: CpuTopology) -> Processors {
    Processors {
        topology,
        id: [1, 2, 3, 4, 5, 6, 7, 8],
    }
}

fn built(config: &SmbiosConfig, topology: CpuTopology, ram_bytes: u64) -> Vec<Found> {
    let layout = Layout::new(ram_bytes, 46).unwrap();
    walk(&Smbios::new(config, processors(topology), &layout).tables)
}

fn one(config: &SmbiosConfig) -> Vec<Found> {
    built(config, CpuTopology::new(1, 1, 1).unwrap(), 64 << 20)
}

fn of(found: &[Found], kind: u8) -> Vec<&Found> {
    found.iter().filter(|found| found.kind == kind).collect()
}

#[test]
fn strings_and_the_uuid_are_where_tools_look() {
    let text = |name: &str| name.to_owned();
    let mut uuid = [0; 16];
    for (byte, value) in uuid.iter_mut().zip(0..) {
        *byte = value;
    }
    let config = SmbiosConfig {
        system: SystemInfo {
            manufacturer: text("KubeVirt"),
            product: text("None"),
            version: String::new(),
            serial: text("S1"),
            uuid,
            sku: text("K1"),
            family: text("F1"),
        },
        base_board: BaseBoardInfo {
            manufacturer: text("B1"),
            asset: text("B2"),
            location: text("B3"),
            ..BaseBoardInfo::default()
        },
        chassis: ChassisInfo {
            manufacturer: text("C1"),
            version: text("C2"),
            serial: text("C3"),
            asset: text("C4"),
            sku: text("C5"),
        },
        oem_strings: vec![text("first"), text("second")],
    };
    let found = one(&config);

    let system = of(&found, 1)[0];
    assert_eq!(system.formatted.len(), 0x1b);
    let strings = [4, 5, 6, 7, 0x19, 0x1a].map(|at| system.string(at));
    assert_eq!(strings, ["KubeVirt", "None", "", "S1", "K1", "F1"]);
    let guid = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    assert_eq!(system.formatted[8..24], guid);

    let chassis = of(&found, 3)[0];
    assert_eq!(chassis.formatted.len(), 0x16);
    let strings = [4, 6, 7, 8, 0x15].map(|at| chassis.string(at));
    assert_eq!(strings, ["C1", "C2", "C3", "C4", "C5"]);

    let board = of(&found, 2)[0];
    assert_eq!(board.formatted.len(), 0xf);
    let strings = [4, 5, 8, 0xa].map(|at| board.string(at));
    assert_eq!(strings, ["B1", "", "B2", "B3"]);
    assert_eq!(board.word(0xb), chassis.handle);

    let oem = of(&found, 11)[0];
    assert_eq!(oem.formatted[4..], [2]);
    assert_eq!(oem.strings, ["first", "second"]);
    let lengths = [(0, 0x18), (32, 0xb), (127, 4)];
    for (kind, length) in lengths {
        assert_eq!(of(&found, kind)[0].formatted.len(), length);
    }
}

#[test]
fn sockets_that_may_come_are_empty() {
    let topology = CpuTopology::new(3, 300, 2)
        .unwrap()
        .with_boot_sockets(2)
        .unwrap();
    let found = built(&SmbiosConfig::default(), topology, 1 << 30);
    let processors = of(&found, 4);
    assert_eq!(processors.len(), 3);
    let status: Vec<u8> = processors.iter().map(|cpu| cpu.formatted[0x18]).collect();
    assert_eq!(status, [0x41, 0x41, 0]);
    let first = processors[0];
    assert_eq!(first.formatted.len(), 0x30);
    assert_eq!(first.string(4), "CPU 0");
    assert_eq!(first.formatted[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(first.formatted[0x23..0x26], [0xff; 3]);
    let counts = [0x2a, 0x2c, 0x2e].map(|at| first.word(at));
    assert_eq!(counts, [300, 300, 600]);
}

proptest! {
    #[test]
    fn modules_and_ranges_make_up_all_of_ram(pages in 512u64..1 << 32) {
        let ram_bytes = pages * 4096;
        let topology = CpuTopology::new(1, 1, 1).unwrap();
        let found = built(&SmbiosConfig::default(), topology, ram_bytes);
        let array = of(&found, 16)[0];
        prop_assert_eq!(array.formatted.len(), 0x17);
        let modules = of(&found, 17);
        prop_assert_eq!(usize::from(array.word(0xd)), modules.len());
        let bytes: u64 = modules.iter().map(|module| {
            assert_eq!(module.formatted.len(), 0x28);
            assert_eq!(module.word(4), array.handle);
            match module.word(0xc) {
                0x7fff => {
                    let large = u32::from_le_bytes(module.formatted[0x1c..0x20].try_into().unwrap());
                    u64::from(large) << 20
                }
                small if small & 0x8000 != 0 => u64::from(small & 0x7fff) << 10,
                size => u64::from(size) << 20,
            }
        }).sum();
        // A size of more than 32 MiB is given in MiB.
        prop_assert!(bytes <= ram_bytes && ram_bytes - bytes < 1 << 20);
        let long = |range: &Found, at: usize| {
            u64::from_le_bytes(range.formatted[at..at + 8].try_into().unwrap())
        };
        let short = |range: &Found, at: usize| {
            u64::from(u32::from_le_bytes(range.formatted[at..at + 4].try_into().unwrap()))
        };
        let mapped: u64 = of(&found, 19).into_iter().map(|range| {
            assert_eq!(range.formatted.len(), 0x1f);
            assert_eq!(range.word(0xc), array.handle);
            if short(range, 4) == u64::from(u32::MAX) {
                long(range, 0x17) + 1 - long(range, 0xf)
            } else {
                (short(range, 8) + 1 - short(range, 4)) << 10
            }
        }).sum();
        prop_assert_eq!(mapped, ram_bytes);
    }

    #[test]
    fn any_strings_leave_a_table_that_can_be_walked(
        texts in proptest::collection::vec(".{0,40}", 14),
        oem in proptest::collection::vec(".{0,40}", 0..300),
        sockets in 1u32..64,
    ) {
        let text = |at: usize| texts[at].clone();
        let config = SmbiosConfig {
            system: SystemInfo {
                manufacturer: text(0),
                product: text(1),
                version: text(2),
                serial: text(3),
                uuid: [7; 16],
                sku: text(4),
                family: text(5),
            },
            base_board: BaseBoardInfo {
                manufacturer: text(6),
                product: text(7),
                version: text(8),
                ..BaseBoardInfo::default()
            },
            chassis: ChassisInfo {
                manufacturer: text(9),
                version: text(10),
                serial: text(11),
                asset: text(12),
                sku: text(13),
            },
            oem_strings: oem.clone(),
        };
        let found = built(&config, CpuTopology::new(sockets, 2, 1).unwrap(), 8 << 30);
        let handles: BTreeSet<u16> = found.iter().map(|found| found.handle).collect();
        prop_assert_eq!(handles.len(), found.len());
        prop_assert_eq!(of(&found, 4).len(), sockets as usize);
        let until_nul = |text: &str| text.split('\0').next().unwrap_or_default().to_owned();
        prop_assert_eq!(of(&found, 1)[0].string(7), until_nul(&texts[3]));
        prop_assert_eq!(of(&found, 3)[0].string(0x15), until_nul(&texts[13]));
        let count = of(&found, 11).first().map_or(0, |oem| oem.formatted[4]);
        let real = oem.iter().filter(|text| !until_nul(text).is_empty()).count();
        prop_assert_eq!(usize::from(count), real.min(255));
    }
}

#[test]
fn the_entry_point_is_found_sums_to_zero_and_leads_to_the_table() {
    let layout = Layout::new(64 << 20, 40).unwrap();
    let ram = vmm_memory::create_ram(&layout).unwrap();
    let topology = CpuTopology::new(1, 1, 1).unwrap();
    let smbios = Smbios::new(&SmbiosConfig::default(), processors(topology), &layout);
    write(&ram, &smbios).unwrap();
    let mut anchor = [0; 24];
    ram.read_slice(&mut anchor, GuestAddress(0xf_0000)).unwrap();
    assert_eq!(anchor[..5], *b"_SM3_");
    let sum = anchor.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    assert_eq!(sum, 0);
    assert_eq!(anchor[6..9], [24, 3, 0]);
    let length = u32::from_le_bytes(anchor[0xc..0x10].try_into().unwrap());
    let address = u64::from_le_bytes(anchor[0x10..].try_into().unwrap());
    let mut table = vec![0; length as usize];
    ram.read_slice(&mut table, GuestAddress(address)).unwrap();
    assert_eq!(walk(&table).len(), walk(&smbios.tables).len());
}

#[test]
fn what_does_not_fit_is_refused() {
    let layout = Layout::new(64 << 20, 40).unwrap();
    let ram = vmm_memory::create_ram(&layout).unwrap();
    let config = SmbiosConfig {
        oem_strings: vec!["x".repeat(MAX_SMBIOS_STRING_BYTES); 64],
        ..SmbiosConfig::default()
    };
    let topology = CpuTopology::new(1, 1, 1).unwrap();
    let smbios = Smbios::new(&config, processors(topology), &layout);
    let refused = write(&ram, &smbios).unwrap_err();
    assert!(matches!(refused, SmbiosError::TooLarge { .. }));
}

/// What users of guests read it with, on a file in the form that it dumps to.
#[test]
fn dmidecode_finds_what_was_asked_for_and_nothing_wrong() {
    let layout = Layout::new(20 << 30, 40).unwrap();
    let topology = CpuTopology::new(2, 4, 2).unwrap();
    let text = |name: &str| name.to_owned();
    let config = SmbiosConfig {
        system: SystemInfo {
            manufacturer: text("KubeVirt"),
            serial: text("S 1"),
            uuid: *b"\x5d\x30\x7c\xa9\xb3\xef\x42\x8c\x88\x61\x06\xe7\x2d\x69\xf2\x23",
            ..SystemInfo::default()
        },
        chassis: ChassisInfo {
            asset: text("A 7"),
            ..ChassisInfo::default()
        },
        oem_strings: vec![text("one"), text("two")],
        ..SmbiosConfig::default()
    };
    let smbios = Smbios::new(&config, processors(topology), &layout);
    let mut dump = smbios.anchor_to(32).to_vec();
    dump.resize(32, 0);
    dump.extend_from_slice(&smbios.tables);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), dump).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = std::process::Command::new("dmidecode");
        command.arg("--from-dump").arg(file.path()).args(arguments);
        let output = command.output().ok()?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        Some(printed.trim().to_owned())
    };
    let Some(all) = ask(&[]) else {
        test_skip::report("dmidecode is not installed");
        return;
    };
    for wrong in ["<BAD", "<OUT OF SPEC>", "truncated", "Wrong", "Invalid"] {
        assert!(!all.contains(wrong), "{all}");
    }
    for right in [
        "SMBIOS 3.0.0 present",
        "Core Count: 4",
        "Thread Count: 8",
        "Size: 4 GB",
    ] {
        assert!(all.contains(right), "{right} is missing: {all}");
    }
    let values = [
        ("system-manufacturer", "KubeVirt"),
        ("system-product-name", "Not Specified"),
        ("system-serial-number", "S 1"),
        ("system-uuid", "5d307ca9-b3ef-428c-8861-06e72d69f223"),
        ("chassis-asset-tag", "A 7"),
    ];
    for (key, value) in values {
        assert_eq!(ask(&["-s", key]).unwrap(), value);
    }
}
