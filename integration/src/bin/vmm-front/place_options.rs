//! Values of flags about where on the host a machine's memory and threads are.

use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use proto_vmm::v1;

use crate::options::SizeFlag;

/// More than any host has; a range does not fill memory.
const MAX_NUMBER: u32 = 8192;

/// `SIZE,vcpus=LIST` and more.
#[derive(Clone, Debug)]
pub struct NumaFlag(pub v1::NumaNode);

/// `WHO=CPUS`.
#[derive(Clone, Debug)]
pub struct PinFlag {
    pub who: Pinned,
    pub cpus: v1::HostCpus,
}

/// Whose thread is pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinned {
    Vcpu(usize),
    Emulator,
    /// The thread of disks that has this name.
    Thread(String),
}

/// Numbers and ranges, as `0-2:5`; commas are between options.
fn list(text: &str) -> anyhow::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.split(':') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse()?, last.parse()?);
        ensure!(last < MAX_NUMBER, "{last} is not below {MAX_NUMBER}");
        numbers.extend(first..=last);
    }
    Ok(numbers)
}

impl FromStr for NumaFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.split(',');
        let size: SizeFlag = parts.next().unwrap_or_default().parse()?;
        let mut node = v1::NumaNode {
            size_bytes: size.0,
            ..v1::NumaNode::default()
        };
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .with_context(|| format!("{part} has no value"))?;
            let policy = match key {
                "vcpus" => {
                    node.vcpus = list(value)?;
                    continue;
                }
                "distances" => {
                    node.distances = list(value)?;
                    continue;
                }
                "bind" => v1::HostNumaPolicy::Bind,
                "preferred" => v1::HostNumaPolicy::Preferred,
                "interleave" => v1::HostNumaPolicy::Interleave,
                _ => bail!("{part} is not known here"),
            };
            node.set_host_policy(policy);
            node.host_nodes = list(value)?;
        }
        Ok(Self(node))
    }
}

impl FromStr for PinFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (who, cpus) = text.split_once('=').context("a pin is WHO=CPUS")?;
        let who = match who.parse() {
            Ok(index) => Pinned::Vcpu(index),
            Err(_) if who == "emulator" => Pinned::Emulator,
            Err(_) => Pinned::Thread(who.to_owned()),
        };
        let cpus = v1::HostCpus { cpus: list(cpus)? };
        Ok(Self { who, cpus })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_size_and_vcpus_and_lies_somewhere() {
        let flag: NumaFlag = "64M,vcpus=0-1:3,bind=1,distances=10:20".parse().unwrap();
        assert_eq!(flag.0.size_bytes, 64 << 20);
        assert_eq!(flag.0.vcpus, [0, 1, 3]);
        assert_eq!(flag.0.host_policy(), v1::HostNumaPolicy::Bind);
        assert_eq!(flag.0.host_nodes, [1]);
        assert_eq!(flag.0.distances, [10, 20]);
        assert!("64M,vcpus".parse::<NumaFlag>().is_err());
        assert!("64M,vcpus=0-99999999".parse::<NumaFlag>().is_err());
    }

    #[test]
    fn vcpus_have_numbers_and_threads_have_names() {
        let pin = |text: &str| text.parse::<PinFlag>().unwrap();
        assert_eq!(pin("3=0-1").who, Pinned::Vcpu(3));
        assert_eq!(pin("3=0-1").cpus.cpus, [0, 1]);
        assert_eq!(pin("emulator=2").who, Pinned::Emulator);
        assert_eq!(pin("slow=2").who, Pinned::Thread("slow".to_owned()));
        assert!("3".parse::<PinFlag>().is_err());
    }
}
