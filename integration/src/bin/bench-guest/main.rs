//! `/init` of the benchmark guest: says that it runs, does what `bench.work=` of the kernel's command
//! line asks for, prints figures, and resets the machine.
//!
//! In a guest that is up already it is `bench-guest net NODE TEST MS`: talks to the node at that address by one test, for so
//! many milliseconds, and ends.

#![forbid(unsafe_code)]

mod disk;
mod figure;
mod net;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use anyhow::Context;
use integration::vmm_bench::{DONE_LINE, INIT_LINE};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};

fn main() -> anyhow::Result<()> {
    // Words that the kernel does not know are arguments of /init.
    if std::process::id() == 1 {
        match init()? {}
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["net", node, test, ms] => net::talk(node, test, Duration::from_millis(ms.parse()?)),
        _ => anyhow::bail!("usage: bench-guest net NODE TEST MS"),
    }
}

fn init() -> anyhow::Result<Infallible> {
    println!("{INIT_LINE}");
    if let Err(error) = work() {
        println!("BENCH error {error:#}");
    }
    println!("{DONE_LINE}");
    Ok(reboot(RebootMode::RB_AUTOBOOT)?)
}

fn work() -> anyhow::Result<()> {
    attach("proc", "/proc")?;
    let words = Words::read()?;
    match words.get("bench.work") {
        "disk" => {
            attach("devtmpfs", "/dev")?;
            disk::run(words.time()?)?;
        }
        "net" => {
            // Programs that are started get /dev/null.
            attach("devtmpfs", "/dev")?;
            attach("sysfs", "/sys")?;
            net::run(words.time()?)?;
        }
        other => anyhow::bail!("bench.work={other}: there is no such work"),
    }
    Ok(())
}

fn attach(kind: &str, at: &str) -> anyhow::Result<()> {
    let no_data = None::<&str>;
    mount(Some(kind), at, Some(kind), MsFlags::empty(), no_data)
        .with_context(|| format!("mounting {kind}"))
}

/// The words of the command line that have a value.
struct Words(BTreeMap<String, String>);

impl Words {
    fn read() -> anyhow::Result<Self> {
        let line = fs::read_to_string("/proc/cmdline")?;
        let words = line.split_whitespace();
        let pairs = words.filter_map(|word| word.split_once('='));
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Ok(Self(pairs.map(owned).collect()))
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// How long each test goes on.
    fn time(&self) -> anyhow::Result<Duration> {
        let ms = self.get("bench.ms").parse().context("bench.ms")?;
        Ok(Duration::from_millis(ms))
    }
}
