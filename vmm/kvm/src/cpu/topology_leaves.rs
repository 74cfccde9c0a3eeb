//! Leaves that tell the topology and differ from vCPU to vCPU.
//!
//! Source: Intel SDM 2A (CPUID 1, 4, 0xB, 0x1F); AMD APM 3, E.4.7 (0x80000008), E.4.15 (0x8000001D)
//! and E.4.16 (0x8000001E).

use kvm_bindings::kvm_cpuid_entry2;

use super::leaves::{Leaves, Vendor};
use super::topology::CpuTopology;

const HTT: u32 = 1 << 28;
const CMP_LEGACY: u32 = 1 << 1;

/// Leaves with one subleaf for each level.
const LEVEL_LEAVES: [u32; 2] = [0xb, 0x1f];

/// Adds what is needed for ids that leaf 1 has no room for, and drops what would tell the host's
/// topology.
pub(crate) fn prepare(leaves: &mut Leaves, topology: CpuTopology) {
    const AMD_LEVELS: u32 = 0x8000_0026;
    leaves.retain(|entry| entry.function != AMD_LEVELS);
    if topology.needs_x2apic() && leaves.entry(0xb, 0).is_none() {
        leaves.put(0xb, 0, [0; 4]);
    }
}

/// Makes `leaves` those of vCPU `index`.
pub(crate) fn apply(leaves: &mut Leaves, topology: CpuTopology, index: u32) {
    let vendor = leaves.vendor();
    for entry in leaves.iter_mut() {
        edit(entry, vendor, topology, index);
    }
    for function in LEVEL_LEAVES {
        replace_levels(leaves, function, topology, index);
    }
}

/// Edits a leaf of its own.
fn edit(entry: &mut kvm_cpuid_entry2, vendor: Vendor, topology: CpuTopology, index: u32) {
    let apic_id = topology.apic_id(index);
    let threads = topology.threads();
    let per_socket = topology.cores() * threads;
    let ids_per_socket = 1 << topology.package_bits();
    match entry.function {
        1 => {
            let logical = u32::min(ids_per_socket, 255);
            entry.ebx = entry.ebx & 0xffff | logical << 16 | (apic_id & 0xff) << 24;
            set(&mut entry.edx, HTT, ids_per_socket > 1);
        }
        4 if is_cache(entry) => {
            let ids_per_core = 1 << topology.thread_bits();
            let sharing = if is_shared(entry) {
                ids_per_socket
            } else {
                ids_per_core
            };
            let cores = ids_per_socket >> topology.thread_bits();
            entry.eax = entry.eax & 0x3fff
                | u32::min(sharing - 1, 0xfff) << 14
                | u32::min(cores - 1, 63) << 26;
        }
        0x8000_0001 => {
            let legacy = vendor.follows_amd() && per_socket > 1;
            set(&mut entry.ecx, CMP_LEGACY, legacy);
        }
        0x8000_0008 => {
            let id_bits = u32::min(topology.package_bits(), 15);
            entry.ecx = id_bits << 12 | u32::min(per_socket - 1, 255);
        }
        0x8000_001d if is_cache(entry) => {
            let sharing = if is_shared(entry) {
                per_socket
            } else {
                threads
            };
            entry.eax = entry.eax & 0x3fff | u32::min(sharing - 1, 0xfff) << 14;
        }
        0x8000_001e => {
            let core = apic_id >> topology.thread_bits() & 0xff;
            entry.eax = apic_id;
            entry.ebx = core | u32::min(threads - 1, 255) << 8;
            // Each socket is a node.
            entry.ecx = topology.socket(index) & 0xff;
        }
        _ => {}
    }
}

/// The list of caches ends with type 0.
fn is_cache(entry: &kvm_cpuid_entry2) -> bool {
    entry.eax & 0x1f != 0
}

/// Caches of level 3 and up are the socket's, others the core's.
fn is_shared(entry: &kvm_cpuid_entry2) -> bool {
    entry.eax >> 5 & 7 >= 3
}

/// Thread and core levels, one subleaf each, and the end.
fn replace_levels(leaves: &mut Leaves, function: u32, topology: CpuTopology, index: u32) {
    if leaves.entry(function, 0).is_none() {
        return;
    }
    leaves.retain(|entry| entry.function != function);
    let per_socket = topology.cores() * topology.threads();
    let levels = [
        (topology.thread_bits(), topology.threads(), 1),
        (topology.package_bits(), per_socket, 2),
        (0, 0, 0),
    ];
    for (subleaf, (shift, count, kind)) in (0u32..).zip(levels) {
        let registers = [shift, count, kind << 8 | subleaf, topology.apic_id(index)];
        leaves.put(function, subleaf, registers);
    }
}

fn set(register: &mut u32, bit: u32, on: bool) {
    if on {
        *register |= bit;
    } else {
        *register &= !bit;
    }
}
