//! The leaf of AMD's level 1 caches, which older KVMs leave empty.
//!
//! Linux divides by the number of ways that it tells when the CPU is of family 21
//! (`arch/x86/kernel/cpu/amd.c`, `bsp_init_amd`), long before it could say why it stops.

use super::leaves::Leaves;
use proto_machine::cpu_features::Register;

/// L1 caches and TLBs (AMD APM 3, E.4.4).
const LEAF: u32 = 0x8000_0005;

/// Has the leaf say what the CPU itself says, `native`, where KVM says nothing.
pub(crate) fn complete(leaves: &mut Leaves, native: impl Fn(u32) -> [u32; 4]) {
    let registers = [Register::Eax, Register::Ebx, Register::Ecx, Register::Edx];
    let is_empty = registers.map(|register| leaves.get(LEAF, 0, register)) == [0; 4];
    if leaves.vendor().follows_amd() && is_empty {
        leaves.put(LEAF, 0, native(LEAF));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD: [u32; 4] = [0, 0x6874_7541, 0x444d_4163, 0x6974_6e65];
    const INTEL: [u32; 4] = [0, 0x756e_6547, 0x6c65_746e, 0x4965_6e69];
    const L1: [u32; 4] = [0xff40_ff40, 0xff40_ff40, 0x2008_0140, 0x4004_0140];

    fn completed(vendor: [u32; 4], given: Option<[u32; 4]>) -> [u32; 4] {
        let mut leaves = Leaves::default();
        leaves.put(0, 0, vendor);
        if let Some(given) = given {
            leaves.put(LEAF, 0, given);
        }
        complete(&mut leaves, |_| L1);
        let registers = [Register::Eax, Register::Ebx, Register::Ecx, Register::Edx];
        registers.map(|register| leaves.get(LEAF, 0, register))
    }

    #[test]
    fn what_kvm_does_not_tell_the_cpu_does() {
        assert_eq!(completed(AMD, Some([0; 4])), L1);
        assert_eq!(completed(AMD, None), L1);
        assert_eq!(completed(AMD, Some([1, 2, 3, 4])), [1, 2, 3, 4]);
        // On Intel's CPUs the leaf is reserved.
        assert_eq!(completed(INTEL, Some([0; 4])), [0; 4]);
    }
}
