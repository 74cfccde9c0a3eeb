//! Values that KubeVirt draws at random and we derive from a seed, so that admitting again gives the same. The seed is the uid of
//! the VirtualMachine that controls the VMI, else the VMI's own.

use crate::name::MacAddress;

/// The 128 bit FNV-1a hash: spread well enough for names, kept stable for ever, not secret.
fn hash(parts: &[&str]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let mut hash = OFFSET;
    for part in parts {
        for byte in part.bytes().chain([0]) {
            hash ^= u128::from(byte);
            hash = hash.wrapping_mul(PRIME);
        }
    }
    // Fold: the last bytes of the input reach the low bits best.
    hash ^ (hash >> 67)
}

/// The MAC address of an interface: locally administered, unicast, beginning with 02.
pub(crate) fn mac_address(uid: &str, interface: &str) -> MacAddress {
    let [a, b, c, d, e, ..] = hash(&["mac", uid, interface]).to_le_bytes();
    MacAddress([0x02, a, b, c, d, e])
}

/// The firmware uuid: version 8 (RFC 9562), which leaves the content to us.
pub(crate) fn firmware_uuid(uid: &str) -> String {
    uuid_of("firmware-uuid", uid)
}

/// The serial number of a VirtualMachine that gives none: another uuid, as KubeVirt has it.
pub(crate) fn firmware_serial(uid: &str) -> String {
    uuid_of("firmware-serial", uid)
}

fn uuid_of(what: &str, uid: &str) -> String {
    let mut bytes = hash(&[what, uid]).to_be_bytes();
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A number below `end` that spreads those who derive it from different parts; 0 when `end` is.
#[must_use]
pub fn spread(parts: &[&str], end: u64) -> u64 {
    let number = hash(parts).checked_rem(u128::from(end)).unwrap_or(0);
    u64::try_from(number).unwrap_or(0)
}

/// Characters of suffixes of names: Kubernetes', which spell no words.
const SUFFIX_CHARACTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The five characters that end a derived name.
#[must_use]
pub fn name_suffix(parts: &[&str]) -> String {
    let mut rest = hash(parts);
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        let index = usize::try_from(rest % 27).unwrap_or_default();
        suffix.extend(SUFFIX_CHARACTERS.get(index).copied().map(char::from));
        rest /= 27;
    }
    suffix
}

/// How many bytes a generated name has at most, which is what fits into a label's value: as kube-apiserver has it.
const GENERATED_NAME_BYTES: usize = 63;

/// The name of an object that has none, of its `generateName` and what [`name_suffix`] returned. Of a beginning that is too long
/// the end is left out.
#[must_use]
pub fn generated_name(beginning: &str, suffix: &str) -> String {
    let room = GENERATED_NAME_BYTES.saturating_sub(suffix.len());
    let ends = beginning
        .char_indices()
        .map(|(at, one)| at + one.len_utf8());
    let end = ends.take_while(|end| *end <= room).last().unwrap_or(0);
    let (kept, _) = beginning.split_at(end);
    format!("{kept}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_values_never_change_between_releases() {
        let mac = mac_address("7c1f8a52-0000-4000-8000-000000000001", "lan");
        assert_eq!(
            mac,
            mac_address("7c1f8a52-0000-4000-8000-000000000001", "lan")
        );
        assert_ne!(
            mac,
            mac_address("7c1f8a52-0000-4000-8000-000000000001", "wan")
        );
        assert_ne!(
            mac,
            mac_address("7c1f8a52-0000-4000-8000-000000000002", "lan")
        );
        assert_eq!(mac.octets()[0], 2);
        let uuid = firmware_uuid("7c1f8a52-0000-4000-8000-000000000001");
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'8');
    }

    #[test]
    fn suffixes_are_five_characters_and_seldom_the_same() {
        let all: std::collections::BTreeSet<String> = (0..1000)
            .map(|number: u32| name_suffix(&["set", &number.to_string()]))
            .collect();
        assert!(all.iter().all(|suffix| suffix.len() == 5), "{all:?}");
        assert!(all.len() > 995, "{}", all.len());
    }

    #[test]
    fn a_generated_name_has_at_most_63_bytes() {
        assert_eq!(generated_name("web-", "abcde"), "web-abcde");
        assert_eq!(generated_name(&"x".repeat(70), "abcde").len(), 63);
        let umlauts = generated_name(&"ä".repeat(40), "abcde");
        assert_eq!(umlauts, format!("{}abcde", "ä".repeat(29)));
    }
}
