//! Features and sets of them.

use std::fmt;

use proto_machine::cpu_features::{BitSource, WORD_COUNT, WORDS, Word, is_same, without_alias};

use super::leaves::Leaves;

/// A feature of a CPU: one bit with a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature {
    word: u8,
    bit: u8,
}

impl fmt::Debug for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Feature {
    /// The feature called `name`, as Linux, QEMU or libvirt spell it.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        // The tables' own spelling first: they are read at every start of a guest.
        Self::find(|known| known == name).or_else(|| {
            let name = without_alias(name);
            Self::find(|known| is_same(known, name))
        })
    }

    /// The feature that the tables call `name`, for constants.
    #[expect(clippy::panic, reason = "at compile time")]
    pub(crate) const fn named(name: &str) -> Self {
        let mut words: &[Word] = &WORDS;
        let mut word = 0;
        while let [entry, other_words @ ..] = words {
            let mut bits = entry.bits;
            while let [(bit, known), others @ ..] = bits {
                if is_equal(known.as_bytes(), name.as_bytes()) {
                    return Self { word, bit: *bit };
                }
                bits = others;
            }
            words = other_words;
            word += 1;
        }
        panic!("no feature has this name")
    }

    fn find(is_it: impl Fn(&str) -> bool) -> Option<Self> {
        (0u8..).zip(&WORDS).find_map(|(word, entry)| {
            let (bit, _) = entry.bits.iter().find(|(_, name)| is_it(name))?;
            Some(Self { word, bit: *bit })
        })
    }

    /// Its name: Linux' in `/proc/cpuinfo`, or QEMU's where Linux shows none.
    #[must_use]
    pub fn name(self) -> &'static str {
        let word = WORDS.get(usize::from(self.word));
        word.and_then(|word| word.bits.iter().find(|(bit, _)| *bit == self.bit))
            .map_or("", |(_, name)| name)
    }

    /// What a Linux guest shows in `/proc/cpuinfo` for it.
    #[must_use]
    pub fn cpuinfo_flags(self) -> Vec<&'static str> {
        let name = self.name();
        match SHOWN_AS.iter().find(|(hidden, _)| *hidden == name) {
            Some((_, shown)) => shown.to_vec(),
            // Linux' own names have no hyphen. Not every bit without one is shown, though: those of
            // the MSR are not, and few of leaf 7.1 are.
            None if name.contains('-') || UNSHOWN.contains(&name) => Vec::new(),
            None => vec![name],
        }
    }

    /// All features that are known.
    pub fn all() -> impl Iterator<Item = Self> {
        (0u8..).zip(&WORDS).flat_map(|(word, entry)| {
            entry
                .bits
                .iter()
                .map(move |(bit, _)| Self { word, bit: *bit })
        })
    }
}

/// What Linux shows for features that it does not show under their own names: mitigations, whose
/// bits differ from vendor to vendor, and none for the others.
static SHOWN_AS: [(&str, &[&str]); 10] = [
    ("spec-ctrl", &["ibrs", "ibpb"]),
    ("stibp", &["stibp"]),
    ("ssbd", &["ssbd"]),
    ("ibpb", &["ibpb"]),
    ("ibrs", &["ibrs"]),
    ("amd-stibp", &["stibp"]),
    ("amd-ssbd", &["ssbd"]),
    ("invtsc", &["constant_tsc", "nonstop_tsc"]),
    ("ibrs-all", &["ibrs_enhanced"]),
    ("auto-ibrs", &["ibrs_enhanced"]),
];

/// Features without a hyphen in their names that Linux does not show.
const UNSHOWN: [&str; 9] = [
    "shstk",
    "cmpccxadd",
    "fzrm",
    "fsrs",
    "fsrc",
    "psfd",
    "xfd",
    "rsba",
    "rrsba",
];

/// Comparison of slices, for constants.
const fn is_equal(mut a: &[u8], mut b: &[u8]) -> bool {
    loop {
        match (a, b) {
            ([], []) => return true,
            ([x, rest_of_a @ ..], [y, rest_of_b @ ..]) if *x == *y => {
                a = rest_of_a;
                b = rest_of_b;
            }
            _ => return false,
        }
    }
}

/// A set of features.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureSet([u64; WORD_COUNT]);

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, feature) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{feature}")?;
        }
        Ok(())
    }
}

impl FeatureSet {
    /// The features called `names`; a name that nobody knows is left out.
    pub(crate) fn of(names: &[&str]) -> Self {
        names
            .iter()
            .filter_map(|name| Feature::by_name(name))
            .collect()
    }

    /// Whether `feature` is in it.
    #[must_use]
    pub fn contains(&self, feature: Feature) -> bool {
        let word = self.0.get(usize::from(feature.word));
        word.is_some_and(|word| word >> feature.bit & 1 == 1)
    }

    /// Whether the feature called `name` is in it.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        Feature::by_name(name).is_some_and(|feature| self.contains(feature))
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// What is in it, in the order of the bits.
    pub fn iter(&self) -> impl Iterator<Item = Feature> + '_ {
        Feature::all().filter(|feature| self.contains(*feature))
    }

    pub(crate) fn insert(&mut self, feature: Feature) {
        if let Some(word) = self.0.get_mut(usize::from(feature.word)) {
            *word |= 1 << feature.bit;
        }
    }

    pub(crate) fn remove(&mut self, feature: Feature) {
        if let Some(word) = self.0.get_mut(usize::from(feature.word)) {
            *word &= !(1 << feature.bit);
        }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    fn combine(self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        for (word, other) in words.iter_mut().zip(other.0) {
            *word = by(*word, other);
        }
        Self(words)
    }

    /// What `leaves` and `IA32_ARCH_CAPABILITIES` say.
    pub(crate) fn read(leaves: &Leaves, arch_capabilities: u64) -> Self {
        let mut set = Self::default();
        for (word, value) in WORDS.iter().zip(&mut set.0) {
            let said = match word.source {
                BitSource::Cpuid {
                    leaf,
                    subleaf,
                    register,
                } => u64::from(leaves.get(leaf, subleaf, register)),
                BitSource::ArchCapabilities => arch_capabilities,
            };
            *value = said & mask(word.bits);
        }
        set
    }

    /// Makes `leaves` say exactly this set of the features that are known; other bits stay.
    pub(crate) fn write(&self, leaves: &mut Leaves) {
        for (word, value) in WORDS.iter().zip(self.0) {
            if let BitSource::Cpuid {
                leaf,
                subleaf,
                register,
            } = word.source
            {
                // Registers have 32 bits, and so do masks of their names.
                let low = |value: u64| u32::try_from(value).unwrap_or(0);
                let known = low(mask(word.bits));
                let former = leaves.get(leaf, subleaf, register);
                let new = former & !known | low(value);
                if new != former {
                    leaves.set(leaf, subleaf, register, new);
                }
            }
        }
    }

    /// The bits of `IA32_ARCH_CAPABILITIES` that are in it.
    pub(crate) fn arch_capabilities(&self) -> u64 {
        let at = |(word, _): &(&Word, u64)| word.source == BitSource::ArchCapabilities;
        let mut words = WORDS.iter().zip(self.0);
        words.find(at).map_or(0, |(_, value)| value)
    }

    /// The bits of `IA32_ARCH_CAPABILITIES` that have names.
    pub(crate) fn known_arch_capabilities() -> u64 {
        Feature::all().collect::<Self>().arch_capabilities()
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        let mut set = Self::default();
        features.into_iter().for_each(|feature| set.insert(feature));
        set
    }
}

fn mask(bits: &[(u8, &str)]) -> u64 {
    bits.iter().fold(0, |mask, (bit, _)| mask | 1 << bit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_feature_and_every_alias_leads_to_one() {
        for feature in Feature::all() {
            assert_eq!(Feature::by_name(feature.name()), Some(feature), "{feature}");
        }
        for (alias, name) in proto_machine::cpu_features::ALIASES {
            let by_alias = Feature::by_name(alias);
            assert!(by_alias.is_some(), "{alias}");
            assert_eq!(by_alias, Feature::by_name(name), "{alias}");
        }
        for name in SHOWN_AS.iter().map(|(name, _)| name).chain(&UNSHOWN) {
            assert!(Feature::by_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn libvirts_spellings_are_understood() {
        for (libvirt, linux) in [
            ("sse4.1", "sse4_1"),
            ("tsc-deadline", "tsc_deadline_timer"),
            ("md-clear", "md_clear"),
            ("arch-capabilities", "arch_capabilities"),
            ("PCLMULDQ", "pclmulqdq"),
        ] {
            let feature = Feature::by_name(libvirt).unwrap();
            assert_eq!(feature.name(), linux);
        }
        assert_eq!(Feature::by_name("sse9"), None);
        assert_eq!(Feature::by_name(""), None);
    }

    #[test]
    fn a_set_that_is_written_is_read_again() {
        let set = FeatureSet::of(&["sse2", "avx512f", "lm", "xsaveopt", "bhi-ctrl", "its-no"]);
        let mut leaves = Leaves::default();
        set.write(&mut leaves);
        assert_eq!(FeatureSet::read(&leaves, set.arch_capabilities()), set);
        assert_eq!(set.arch_capabilities(), 1 << 62);
        assert_eq!(
            set.to_string(),
            "sse2, lm, avx512f, bhi-ctrl, xsaveopt, its-no"
        );
    }
}
