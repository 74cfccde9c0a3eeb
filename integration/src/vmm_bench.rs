//! What `cargo xtask bench vmm` and `vmm-bench`, its program in the node, tell each other: a plan in,
//! a line for each run of a hypervisor out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where `vmm-bench` keeps the disk that guests read and write: in memory.
pub const DISK: &str = "/run/bench/disk.raw";
/// The tap of the guest's NIC.
pub const TAP: &str = "tap0";
/// The node's address on it.
pub const NODE_ADDRESS: &str = "172.31.7.1";
/// The guest's.
pub const GUEST_ADDRESS: &str = "172.31.7.2";
/// The guest is to receive here.
pub const SINK_PORT: u16 = 5001;
/// The guest is to send here.
pub const SOURCE_PORT: u16 = 5002;
/// What comes here goes back.
pub const ECHO_PORT: u16 = 5003;

/// First line of the guest's program.
pub const INIT_LINE: &str = "BENCH init";
/// Its last.
pub const DONE_LINE: &str = "BENCH done";
/// What lines with a figure start with; a name and a number follow.
pub const FIGURE_LINE: &str = "BENCH figure ";

/// In a command: stands for the guest's kernel command line, in an argument of its own.
pub const CMDLINE: &str = "{cmdline}";

/// Names of what is measured while a guest runs.
pub mod names {
    /// From exec to [`super::INIT_LINE`], microseconds.
    pub const BOOT: &str = "boot_us";
    /// Exits of the guest until then, as KVM counts them.
    pub const EXITS: &str = "exits";
    /// Of these, accesses to I/O ports.
    pub const PORT_EXITS: &str = "io_exits";
    /// Of these, accesses to other addresses outside memory.
    pub const MMIO_EXITS: &str = "mmio_exits";
    /// Resident memory of all mappings but the guest's, KiB.
    pub const MEMORY: &str = "memory_kib";
    /// The anonymous part of it, KiB.
    pub const ANONYMOUS: &str = "anonymous_kib";
}

/// What a guest does once it is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Nothing.
    Boot,
    /// It sleeps, and the hypervisor's memory is looked at.
    Idle,
    /// Reads and writes its disk.
    Disk,
    /// Talks to the node.
    Net,
}

impl Work {
    /// Its word on the guest's command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Idle => "idle",
            Self::Disk => "disk",
            Self::Net => "net",
        }
    }
}

/// A hypervisor under test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contender {
    /// For people.
    pub name: String,
    /// Its program, an absolute path, and arguments.
    pub command: Vec<String>,
}

/// What is to be run: every contender in turn, and so `count` times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// All of them.
    pub contenders: Vec<Contender>,
    /// What the guests do.
    pub work: Work,
    /// Number of repetitions.
    pub count: u32,
    /// How long each test of a disk or network goes on, in the guest's milliseconds.
    pub test_ms: u32,
    /// Of guest memory, to know it among the mappings.
    pub guest_mib: u32,
}

impl Plan {
    /// What is left of it once `samples` are there: as many rounds as all that are left need. `None` when
    /// it is done.
    #[must_use]
    pub fn rest(&self, samples: &[Sample]) -> Option<Self> {
        let mut rest = self.clone();
        let mut count = self.count;
        rest.contenders.retain(|contender| {
            let of_it = samples.iter().filter(|it| it.name == contender.name);
            let left = (of_it.count()..self.count as usize).len();
            if left > 0 {
                count = count.min(u32::try_from(left).unwrap_or(u32::MAX));
            }
            left > 0
        });
        rest.count = count;
        (!rest.contenders.is_empty()).then_some(rest)
    }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Of the contender.
    pub name: String,
    /// What was measured.
    pub values: BTreeMap<String, f64>,
}

/// What [`Sample`]s' lines start with.
pub const SAMPLE_LINE: &str = "SAMPLE ";

impl Sample {
    /// The sample in a line of `vmm-bench`, if it is one.
    ///
    /// # Errors
    /// When such a line is no sample.
    pub fn of_line(line: &str) -> serde_json::Result<Option<Self>> {
        line.strip_prefix(SAMPLE_LINE)
            .map(serde_json::from_str)
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(names: &[&str], count: u32) -> Plan {
        let contender = |name: &&str| Contender {
            name: (*name).to_owned(),
            command: Vec::new(),
        };
        Plan {
            contenders: names.iter().map(contender).collect(),
            work: Work::Disk,
            count,
            test_ms: 30,
            guest_mib: 256,
        }
    }

    fn samples(names: &[&str]) -> Vec<Sample> {
        let sample = |name: &&str| Sample {
            name: (*name).to_owned(),
            values: BTreeMap::new(),
        };
        names.iter().map(sample).collect()
    }

    fn left(plan: &Plan, done: &[&str]) -> Option<(Vec<String>, u32)> {
        let rest = plan.rest(&samples(done))?;
        let names = rest.contenders.into_iter().map(|it| it.name);
        Some((names.collect(), rest.count))
    }

    #[test]
    fn what_is_left_of_a_plan_brings_all_to_the_same_number_of_samples() {
        let plan = plan(&["a", "b", "c"], 3);
        let of = |names: &[&str], count| {
            let names = names.iter().map(|it| (*it).to_owned());
            Some((names.collect(), count))
        };
        assert_eq!(left(&plan, &[]), of(&["a", "b", "c"], 3));
        // The second round broke off after a: one more for those that have most.
        assert_eq!(left(&plan, &["a", "b", "c", "a"]), of(&["a", "b", "c"], 1));
        let later = ["a", "b", "c", "a", "a", "b", "c"];
        assert_eq!(left(&plan, &later), of(&["b", "c"], 1));
        assert_eq!(left(&plan, &["a", "b", "c"].repeat(3)), None);
    }
}
