//! CPUs of a node: sets of them, and which of them share a core or a NUMA node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One more than the largest number of a CPU that Linux can be built for (`NR_CPUS` on x86).
const MAX_CPUS: u32 = 8192;

/// CPUs of a node, written as Linux lists them: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

/// Text that is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotCpus;

impl fmt::Display for NotCpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "must be a list of CPUs below {MAX_CPUS} such as \"2-7,10\""
        )
    }
}

impl std::error::Error for NotCpus {}

impl CpuSet {
    /// Whether there is none in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this CPU is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Those that are in `other`, too.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Puts those of `other` into it.
    pub fn add(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(out, "{separator}{first}")?;
            if last > first {
                write!(out, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = NotCpus;

    fn from_str(text: &str) -> Result<Self, NotCpus> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let number = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|number| *number < MAX_CPUS);
            number.filter(|_| plain).ok_or(NotCpus)
        };
        let mut cpus = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (number(first)?, number(last)?);
            if first > last {
                return Err(NotCpus);
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = NotCpus;

    fn try_from(text: String) -> Result<Self, NotCpus> {
        text.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

/// Where in its node a CPU is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSite {
    /// Its core, by the lowest CPU of it.
    pub core: u32,
    /// Its NUMA node.
    pub numa_node: u32,
}

/// All CPUs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuLayout(BTreeMap<u32, CpuSite>);

impl CpuLayout {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    /// Where one is; `None` when there is no such CPU.
    #[must_use]
    pub fn site(&self, cpu: u32) -> Option<CpuSite> {
        self.0.get(&cpu).copied()
    }

    /// How many CPUs a core has.
    #[must_use]
    pub fn core_size(&self, core: u32) -> usize {
        self.0.values().filter(|site| site.core == core).count()
    }
}

impl FromIterator<(u32, CpuSite)> for CpuLayout {
    fn from_iter<I: IntoIterator<Item = (u32, CpuSite)>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_linux_lists_them_and_read_back() {
        for text in ["", "7", "0-2,5,8-9", "8191"] {
            let set: CpuSet = text.parse().unwrap();
            assert_eq!(set.to_string(), text);
        }
        let set: CpuSet = " 3,1,2-3\n".parse().unwrap();
        assert_eq!(set.to_string(), "1-3");
        for text in ["-", "1-", "2-1", "a", "8192", "1,,2", "0--1", "+1", "1 - 2"] {
            assert_eq!(text.parse::<CpuSet>(), Err(NotCpus), "{text}");
        }
    }
}
