//! CPUID leaves as a value.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2};

use crate::error::KvmError;
use proto_machine::cpu_features::Register;

/// The leaves of one CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Leaves(Vec<kvm_cpuid_entry2>);

/// Leaves whose answer depends on ECX (Intel SDM 2A, CPUID; AMD APM 3, E).
fn has_subleaves(leaf: u32) -> bool {
    matches!(
        leaf,
        4 | 7
            | 0xb
            | 0xd
            | 0xf
            | 0x10
            | 0x12
            | 0x14
            | 0x17
            | 0x18
            | 0x1d
            | 0x1f
            | 0x20
            | 0x23
            | 0x24
    ) || matches!(leaf, 0x8000_001d | 0x8000_0020 | 0x8000_0026)
}

impl Leaves {
    pub(crate) fn new(entries: &[kvm_cpuid_entry2]) -> Self {
        Self(entries.to_vec())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &kvm_cpuid_entry2> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut kvm_cpuid_entry2> {
        self.0.iter_mut()
    }

    /// The entry of a leaf, if there is one.
    pub(crate) fn entry(&self, leaf: u32, subleaf: u32) -> Option<&kvm_cpuid_entry2> {
        let wanted = |entry: &&kvm_cpuid_entry2| entry.function == leaf && entry.index == subleaf;
        self.0.iter().find(wanted)
    }

    /// A register; 0 where there is no such leaf.
    pub(crate) fn get(&self, leaf: u32, subleaf: u32, register: Register) -> u32 {
        self.entry(leaf, subleaf).map_or(0, |entry| match register {
            Register::Eax => entry.eax,
            Register::Ebx => entry.ebx,
            Register::Ecx => entry.ecx,
            Register::Edx => entry.edx,
        })
    }

    /// Sets a register. The leaf is made, and made reachable, where there is none.
    pub(crate) fn set(&mut self, leaf: u32, subleaf: u32, register: Register, value: u32) {
        let entry = self.entry_or_new(leaf, subleaf);
        *match register {
            Register::Eax => &mut entry.eax,
            Register::Ebx => &mut entry.ebx,
            Register::Ecx => &mut entry.ecx,
            Register::Edx => &mut entry.edx,
        } = value;
        self.make_reachable(leaf, subleaf);
    }

    /// Adds or replaces a leaf.
    pub(crate) fn put(&mut self, leaf: u32, subleaf: u32, [eax, ebx, ecx, edx]: [u32; 4]) {
        let entry = self.entry_or_new(leaf, subleaf);
        (entry.eax, entry.ebx, entry.ecx, entry.edx) = (eax, ebx, ecx, edx);
        self.make_reachable(leaf, subleaf);
    }

    /// Drops leaves.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&kvm_cpuid_entry2) -> bool) {
        self.0.retain(keep);
    }

    fn entry_or_new(&mut self, leaf: u32, subleaf: u32) -> &mut kvm_cpuid_entry2 {
        let found = self
            .0
            .iter()
            .position(|entry| entry.function == leaf && entry.index == subleaf);
        let at = found.unwrap_or_else(|| {
            let flags = if has_subleaves(leaf) {
                KVM_CPUID_FLAG_SIGNIFCANT_INDEX
            } else {
                0
            };
            self.0.push(kvm_cpuid_entry2 {
                function: leaf,
                index: subleaf,
                flags,
                ..kvm_cpuid_entry2::default()
            });
            self.0.len() - 1
        });
        // Just found or pushed.
        &mut self.0[at]
    }

    /// The first leaf of each range has the number of the last; leaf 7 has that of its last subleaf.
    fn make_reachable(&mut self, leaf: u32, subleaf: u32) {
        let first = match leaf >> 16 {
            0 => 0,
            0x8000 => 0x8000_0000,
            _ => return,
        };
        if leaf != first {
            let entry = self.entry_or_new(first, 0);
            entry.eax = entry.eax.max(leaf);
        }
        if leaf == 7 && subleaf > 0 {
            let entry = self.entry_or_new(7, 0);
            entry.eax = entry.eax.max(subleaf);
        }
    }

    /// The 12 bytes of the vendor.
    pub(crate) fn vendor(&self) -> Vendor {
        let words = [Register::Ebx, Register::Edx, Register::Ecx].map(|r| self.get(0, 0, r));
        let mut bytes = [0; 12];
        for (to, from) in bytes
            .iter_mut()
            .zip(words.into_iter().flat_map(u32::to_le_bytes))
        {
            *to = from;
        }
        match &bytes {
            b"AuthenticAMD" => Vendor::Amd,
            b"HygonGenuine" => Vendor::Hygon,
            _ => Vendor::IntelLike,
        }
    }

    /// As KVM takes them.
    pub(crate) fn to_kvm(&self) -> Result<CpuId, KvmError> {
        CpuId::from_entries(&self.0).map_err(|_| KvmError::TableTooLong {
            call: "KVM_SET_CPUID2",
        })
    }
}

/// Whose manual describes a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Amd,
    Hygon,
    /// Intel, and those who follow it: Centaur, Zhaoxin.
    IntelLike,
}

impl Vendor {
    /// Whether AMD's manual is the one to read.
    pub(crate) fn follows_amd(self) -> bool {
        self != Self::IntelLike
    }
}
