//! Two hosts, written by hand: what `KVM_GET_SUPPORTED_CPUID` says on CPUs of their kind.

use kvm_bindings::{KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use crate::cpu::leaves::Leaves;
use crate::cpu::{HostCpu, HostTsc};

type Row = (u32, u32, [u32; 4]);

/// An Intel Xeon of Ice Lake's kind, TSX off, with a kernel of 2024.
#[rustfmt::skip]
const INTEL: &[Row] = &[
    (0, 0, [0x1f, 0x756e_6547, 0x6c65_746e, 0x4965_6e69]),
    (1, 0, [0x606a6, 0x0040_0800, 0xf6fa_3223, 0x1f8b_fbff]),
    (2, 0, [0x00fe_ff01, 0xf0, 0, 0]),
    (4, 0, [0x7c00_4121, 0x02c0_003f, 0x3f, 0]),
    (4, 1, [0x7c00_4122, 0x01c0_003f, 0x3f, 0]),
    (4, 2, [0x7c00_4143, 0x04c0_003f, 0x3ff, 0]),
    (4, 3, [0x7c0f_c163, 0x02c0_003f, 0xdfff, 4]),
    (4, 4, [0, 0, 0, 0]),
    (6, 0, [4, 0, 0, 0]),
    (7, 0, [2, 0xf1bf_27eb, 0x0040_5f4e, 0xac00_0410]),
    (7, 1, [0, 0, 0, 0]),
    (7, 2, [0, 0, 0, 0x1f]),
    (0xa, 0, [0x0830_0802, 0, 0, 0x603]),
    (0xb, 0, [0, 0, 0, 9]),
    (0xd, 0, [0x2e7, 0xa88, 0xa88, 0]),
    (0xd, 1, [0xf, 0, 0, 0]),
    (0xd, 2, [0x100, 0x240, 0, 0]),
    (0xd, 5, [0x40, 0x440, 0, 0]),
    (0xd, 6, [0x200, 0x480, 0, 0]),
    (0xd, 7, [0x400, 0x680, 0, 0]),
    (0xd, 9, [8, 0xa80, 0, 0]),
    (0x14, 0, [0, 0, 0, 0]),
    (0x1f, 0, [0, 0, 0, 9]),
    (0x4000_0000, 0, [0x4000_0001, 0x4b4d_564b, 0x564b_4d56, 0x4d]),
    (0x4000_0001, 0, [0x0100_7efb, 0, 0, 0]),
    (0x8000_0000, 0, [0x8000_0008, 0, 0, 0]),
    (0x8000_0001, 0, [0, 0, 0x121, 0x2c10_0800]),
    (0x8000_0002, 0, [0x6574_6e49, 0x2952_286c, 0x6f65_5820, 0x2952_286e]),
    (0x8000_0003, 0, [0x6c6f_4720, 0x3336_2064, 0x4320_3833, 0x4020_5550]),
    (0x8000_0004, 0, [0x302e_3220, 0x7a48_4730, 0, 0]),
    (0x8000_0006, 0, [0, 0, 0x0500_7040, 0]),
    (0x8000_0007, 0, [0, 0, 0, 0x100]),
    (0x8000_0008, 0, [0x0000_392e, 0x0100_d200, 0, 0]),
];

/// An AMD EPYC of Rome's kind.
#[rustfmt::skip]
const AMD: &[Row] = &[
    (0, 0, [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
    (1, 0, [0x0083_0f10, 0x0020_0800, 0xf6f8_3203, 0x178b_fbff]),
    (6, 0, [4, 0, 0, 0]),
    (7, 0, [0, 0x219c_01ab, 0x0040_0004, 0]),
    (0xd, 0, [7, 0x340, 0x340, 0]),
    (0xd, 1, [0xf, 0x340, 0, 0]),
    (0xd, 2, [0x100, 0x240, 0, 0]),
    (0x4000_0000, 0, [0x4000_0001, 0x4b4d_564b, 0x564b_4d56, 0x4d]),
    (0x4000_0001, 0, [0x0100_7efb, 0, 0, 0]),
    (0x8000_0000, 0, [0x8000_0021, 0x6874_7541, 0x444d_4163, 0x6974_6e65]),
    (0x8000_0001, 0, [0x0083_0f10, 0x4000_0000, 0x00c0_03f7, 0x2fd3_fbff]),
    (0x8000_0002, 0, [0x2044_4d41, 0x4359_5045, 0x3237_2020, 0x2020_3230]),
    (0x8000_0003, 0, [0, 0, 0, 0]),
    (0x8000_0004, 0, [0, 0, 0, 0]),
    (0x8000_0005, 0, [0xff40_ff40, 0xff40_ff40, 0x2008_0140, 0x2008_0140]),
    (0x8000_0006, 0, [0x4800_6400, 0x6800_6400, 0x0200_6140, 0x0080_9140]),
    (0x8000_0007, 0, [0, 0, 0, 0x100]),
    (0x8000_0008, 0, [0x0000_3030, 0x010c_d217, 0x203f, 0]),
    (0x8000_000a, 0, [1, 0x8000, 0, 0x0001_3c0b]),
    (0x8000_001d, 0, [0x121, 0x01c0_003f, 0x3f, 0]),
    (0x8000_001d, 1, [0x122, 0x01c0_003f, 0x3f, 0]),
    (0x8000_001d, 2, [0x143, 0x01c0_003f, 0x3ff, 2]),
    (0x8000_001d, 3, [0x1c163, 0x03c0_003f, 0x3fff, 1]),
    (0x8000_001d, 4, [0, 0, 0, 0]),
    (0x8000_001e, 0, [0, 0x100, 0, 0]),
    (0x8000_0021, 0, [0x45, 0, 0, 0]),
];

/// What Linux 6.6 says of Hyper-V on Intel with nesting.
#[rustfmt::skip]
const HYPERV: &[Row] = &[
    (0x4000_0000, 0, [0x4000_000a, 0x756e_694c, 0x564b_2078, 0x7648_204d]),
    (0x4000_0001, 0, [0x3123_7648, 0, 0, 0]),
    (0x4000_0002, 0, [0x3839, 0x000a_0000, 0, 0]),
    (0x4000_0003, 0, [0x2aff, 0x30, 0, 0x0008_c510]),
    (0x4000_0004, 0, [0x4e2c, 0xfff, 0, 0]),
    (0x4000_0005, 0, [0x400, 0x40, 0, 0]),
    (0x4000_000a, 0, [0x000a_0101, 1, 0, 0]),
];

fn leaves(rows: &[Row]) -> Leaves {
    let with_subleaves = [4, 7, 0xb, 0xd, 0x14, 0x1f, 0x8000_001d];
    let entries: Vec<kvm_cpuid_entry2> = rows
        .iter()
        .map(|(function, index, [eax, ebx, ecx, edx])| kvm_cpuid_entry2 {
            function: *function,
            index: *index,
            flags: if with_subleaves.contains(function) {
                KVM_CPUID_FLAG_SIGNIFCANT_INDEX
            } else {
                0
            },
            eax: *eax,
            ebx: *ebx,
            ecx: *ecx,
            edx: *edx,
            ..kvm_cpuid_entry2::default()
        })
        .collect();
    Leaves::new(&entries)
}

pub(super) fn intel() -> HostCpu {
    HostCpu {
        leaves: leaves(INTEL),
        hyperv: Some(leaves(HYPERV)),
        arch_capabilities: 0x0c00_016b,
        has_tsc_deadline: true,
        has_x2apic_ids: true,
        tsc: Some(HostTsc {
            khz: 2_000_000,
            can_scale: false,
        }),
    }
}

pub(super) fn amd() -> HostCpu {
    HostCpu {
        leaves: leaves(AMD),
        hyperv: None,
        arch_capabilities: 0,
        has_tsc_deadline: true,
        has_x2apic_ids: true,
        tsc: None,
    }
}
