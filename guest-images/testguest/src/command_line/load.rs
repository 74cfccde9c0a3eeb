//! The words of a load on disks.

/// What a load does to blocks of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads, one block after the other.
    Read,
    /// Writes, one block after the other.
    Write,
    /// Reads anywhere.
    RandomRead,
    /// Writes anywhere.
    RandomWrite,
}

impl Access {
    const ALL: [(&'static str, Self); 4] = [
        ("read", Self::Read),
        ("write", Self::Write),
        ("randread", Self::RandomRead),
        ("randwrite", Self::RandomWrite),
    ];

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        let known = Self::ALL.iter().find(|(_, access)| *access == self);
        known.map_or("", |(word, _)| word)
    }

    /// Whether blocks are anywhere.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandomRead | Self::RandomWrite)
    }

    /// Whether data goes to the disk.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite)
    }
}

/// A load on each disk, after the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// What is done; nothing unless asked for.
    pub access: Option<Access>,
    /// Requests in flight.
    pub depth: u64,
    /// Bytes of each.
    pub bytes: u64,
    /// No request begins after so many milliseconds.
    pub ms: u64,
    /// Nor after so many requests; 0 for no such end.
    pub requests: u64,
    /// MiB at the start of the disk that are written once before a load which is among them only; 0 for nothing, and
    /// a load anywhere.
    pub fill_mib: u64,
    /// Milliseconds before the first request, in which whoever counts on the host begins to.
    pub pause_ms: u64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            access: None,
            depth: 32,
            bytes: 4096,
            ms: 1000,
            requests: 0,
            fill_mib: 0,
            pause_ms: 0,
        }
    }
}

impl Load {
    /// Takes a word's value in; words of others are left alone. `None` when the value makes no sense.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let positive = || value.parse().ok().filter(|&number: &u64| number > 0);
        match key {
            "load" => {
                let mut all = Access::ALL.into_iter();
                self.access = Some(all.find(|(word, _)| *word == value)?.1);
            }
            "load_depth" => self.depth = positive()?,
            "load_bytes" => self.bytes = positive().filter(|bytes| bytes.is_multiple_of(512))?,
            "load_ms" => self.ms = positive()?,
            "load_pause_ms" => self.pause_ms = value.parse().ok()?,
            "load_fill_mib" => self.fill_mib = value.parse().ok()?,
            "load_requests" => self.requests = value.parse().ok()?,
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_chosen_by_its_words() {
        let mut load = Load::default();
        for (key, value) in [("load", "randread"), ("load_depth", "8"), ("load_ms", "5")] {
            assert_eq!(load.set(key, value), Some(()));
        }
        assert_eq!((load.access, load.depth), (Some(Access::RandomRead), 8));
        assert_eq!((load.bytes, load.ms, load.requests), (4096, 5, 0));
        assert_eq!(Access::RandomRead.word(), "randread");
    }

    #[test]
    fn a_block_is_whole_sectors_and_a_depth_is_not_zero() {
        for (key, value) in [("load_bytes", "100"), ("load_depth", "0"), ("load", "trim")] {
            assert_eq!(Load::default().set(key, value), None, "{key}={value}");
        }
        assert_eq!(Load::default().set("blk_kib", "x"), Some(()));
    }
}
