//! Leaf 0xD: which states XSAVE keeps, following the features that have them.
//!
//! Source: Intel SDM 1, 13.1 and 13.2; AMD APM 3, E.3.8.

use super::features::FeatureSet;
use super::leaves::Leaves;
use proto_machine::cpu_features::Register;

const LEAF: u32 = 0xd;
/// x87 and SSE are always there. With the header they take 576 bytes.
const LEGACY: u64 = 3;
const LEGACY_BYTES: u32 = 576;

/// States of user mode, and the features either of which has them.
const USER: [(u64, &[&str]); 5] = [
    (1 << 2, &["avx"]),
    (3 << 3, &["mpx"]),
    (7 << 5, &["avx512f"]),
    (1 << 9, &["pku"]),
    (3 << 17, &["amx_tile"]),
];

/// States of the kernel.
const SUPERVISOR: [(u64, &[&str]); 3] = [
    (1 << 8, &["intel_pt"]),
    (3 << 11, &["shstk", "ibt"]),
    (1 << 15, &["arch_lbr"]),
];

/// Features whose states KVM would not keep on this host, such as AMX without the permission that a
/// process has to ask for.
pub(crate) fn stateless(host: &Leaves) -> FeatureSet {
    let kept = user_states(host);
    let lost = USER.iter().filter(|(states, _)| kept & states != *states);
    lost.map(|(_, names)| FeatureSet::of(names))
        .fold(FeatureSet::default(), FeatureSet::with)
}

fn user_states(leaves: &Leaves) -> u64 {
    let get = |register| u64::from(leaves.get(LEAF, 0, register));
    get(Register::Eax) | get(Register::Edx) << 32
}

/// Makes leaf 0xD follow `features`. States of no known feature stay only if `keep_unknown`.
pub(crate) fn fit(leaves: &mut Leaves, features: &FeatureSet, keep_unknown: bool) {
    if !features.has("xsave") {
        leaves.retain(|entry| entry.function != LEAF);
        return;
    }
    let get = |subleaf, register| u64::from(leaves.get(LEAF, subleaf, register));
    let host_user = user_states(leaves);
    let host_supervisor = get(1, Register::Ecx) | get(1, Register::Edx) << 32;
    let user = host_user & (LEGACY | states(&USER, features, keep_unknown));
    let supervisor = if features.has("xsaves") {
        host_supervisor & states(&SUPERVISOR, features, keep_unknown)
    } else {
        0
    };
    let kept = |subleaf: u32| subleaf < 2 || (user | supervisor) >> subleaf & 1 == 1;
    leaves.retain(|entry| entry.function != LEAF || entry.index < 64 && kept(entry.index));
    let (user_low, user_high) = halves(user);
    let bytes = area_bytes(leaves, user);
    // EBX of the first two follows XCR0 and XSS as the guest sets them: KVM's work.
    leaves.put(LEAF, 0, [user_low, LEGACY_BYTES, bytes, user_high]);
    let (low, high) = halves(supervisor);
    leaves.set(LEAF, 1, Register::Ecx, low);
    leaves.set(LEAF, 1, Register::Edx, high);
}

/// Which states `features` have.
fn states(table: &[(u64, &[&str])], features: &FeatureSet, keep_unknown: bool) -> u64 {
    let known = table.iter().fold(0, |all, (states, _)| all | states);
    let has = |names: &[&str]| names.iter().any(|name| features.has(name));
    let wanted = table.iter().filter(|(_, names)| has(names));
    let wanted = wanted.fold(0, |all, (states, _)| all | states);
    if keep_unknown {
        wanted | !known
    } else {
        wanted
    }
}

/// Bytes of the standard format of all of `user`: each subleaf tells size and offset.
fn area_bytes(leaves: &Leaves, user: u64) -> u32 {
    let extended = leaves
        .iter()
        .filter(|entry| entry.function == LEAF && (2..64).contains(&entry.index));
    extended
        .filter(|entry| user >> entry.index & 1 == 1)
        .map(|entry| entry.eax.saturating_add(entry.ebx))
        .fold(LEGACY_BYTES, u32::max)
}

fn halves(value: u64) -> (u32, u32) {
    let [b0, b1, b2, b3, b4, b5, b6, b7] = value.to_le_bytes();
    (
        u32::from_le_bytes([b0, b1, b2, b3]),
        u32::from_le_bytes([b4, b5, b6, b7]),
    )
}
