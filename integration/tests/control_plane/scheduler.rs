//! The reference scheduler over several nodes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::artifacts;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::process::Bound;
use integration::skip_if;
use serde_json::Value;

use crate::node::{Node, PATIENCE, guest};

/// A scheduler, on this machine.
struct Scheduler {
    directory: tempfile::TempDir,
    process: Bound,
}

impl Scheduler {
    fn start() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let process = Self::launch(&directory)?;
        Ok(Self { directory, process })
    }

    fn launch(directory: &tempfile::TempDir) -> anyhow::Result<Bound> {
        let path = |name: &str| directory.path().join(name).display().to_string();
        for socket in ["nodes", "people"] {
            if directory.path().join(socket).exists() {
                std::fs::remove_file(directory.path().join(socket))?;
            }
        }
        let mut arguments = vec![String::from("serve")];
        arguments.extend(["nodes", "people", "state.json"].map(path));
        arguments.push(String::from("1"));
        let program = artifacts::program("scheduler")?.display().to_string();
        let process = Bound::start(&program, &arguments, |_| {})?;
        let end = Instant::now() + PATIENCE;
        while !directory.path().join("nodes").exists() {
            anyhow::ensure!(Instant::now() < end, "the scheduler does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// It comes back with what it remembers.
    fn restart(&mut self) -> anyhow::Result<()> {
        self.process.kill();
        self.process = Self::launch(&self.directory)?;
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("nodes")
    }

    fn order(&self, words: &str) -> anyhow::Result<String> {
        let mut command = std::process::Command::new(artifacts::program("scheduler")?);
        command
            .arg("order")
            .arg(self.directory.path().join("people"));
        command.args(words.split(' '));
        integration::process::output(&mut command)
    }

    fn apply(&self, manifest: &str, lease: &str) -> anyhow::Result<()> {
        let file = self.directory.path().join("vmi.yaml");
        std::fs::write(&file, manifest)?;
        let order = format!("apply {} {lease}", file.display());
        self.order(order.trim_end()).map(drop)
    }

    fn book(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.order("get")?)?)
    }

    /// Where a VMI was placed; null when it is nowhere.
    fn place(&self, name: &str) -> anyhow::Result<Value> {
        Ok(self.book()?["vmis"][format!("default/{name}")]["placement"].clone())
    }

    fn is_connected(&self, node: &str) -> anyhow::Result<bool> {
        Ok(self.book()?["nodes"][node]["connected"] == true)
    }

    fn until(&self, what: &str, is_so: impl Fn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !is_so()? {
            anyhow::ensure!(Instant::now() < end, "not so: {what}: {:#}", self.book()?);
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Waits until a VMI is known to run on a node; the answer is its token.
    fn runs_on(&self, name: &str, node: &str) -> anyhow::Result<u64> {
        self.until(&format!("{name} runs on {node}"), || {
            let place = self.place(name)?;
            Ok(place["phase"] == "Running" && place["node"] == node && self.is_connected(node)?)
        })?;
        self.place(name)?["token"].as_u64().context("a token")
    }

    fn wait_for_nodes(&self, names: &[&str]) -> anyhow::Result<()> {
        self.until(&format!("{names:?} are there"), || {
            let there: anyhow::Result<Vec<bool>> =
                names.iter().map(|name| self.is_connected(name)).collect();
            Ok(there?.into_iter().all(|there| there))
        })
    }
}

fn runners(host: &Host) -> anyhow::Result<u32> {
    Ok(host.sh("pidof kvmlet-vmm | wc -w")?.trim().parse()?)
}

#[test]
fn vmis_are_placed_drained_and_never_run_twice() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let mut scheduler = Scheduler::start()?;
    let a = Node::start("a", &scheduler.socket())?;
    let b = Node::start("b", &scheduler.socket())?;
    let c = Node::start("c", &scheduler.socket())?;
    scheduler.wait_for_nodes(&["a", "b", "c"])?;

    // By room: each goes where most is left. By labels: only one node has that zone.
    let names = ["one", "two", "three"];
    for name in names {
        scheduler.apply(&guest(name), "")?;
    }
    let chosen = guest("chosen").replace("spec:\n", "spec:\n  nodeSelector:\n    zone: b\n");
    scheduler.apply(&chosen, "")?;
    let place = |name: &str| -> anyhow::Result<String> {
        let place = scheduler.place(name)?;
        Ok(place["node"].as_str().unwrap_or_default().to_owned())
    };
    let places: Vec<String> = names
        .map(place)
        .into_iter()
        .collect::<anyhow::Result<_>>()?;
    let mut sorted = places.clone();
    sorted.sort();
    assert_eq!(sorted, ["a", "b", "c"]);
    scheduler.runs_on("chosen", "b")?;
    for (name, node) in names.iter().zip(&places) {
        scheduler.runs_on(name, node)?;
    }
    let on = |node: &str| {
        let at = places.iter().position(|place| place == node);
        at.map_or("", |at| names[at])
    };

    // Drained: gone there first, then somewhere else.
    let drained = on("c");
    scheduler.order("drain c")?;
    scheduler.until("it runs elsewhere", || {
        let place = scheduler.place(drained)?;
        Ok(place["node"] != "c" && place["phase"] == "Running")
    })?;
    assert_eq!(runners(&c.0)?, 0);

    // A node loses its power: unknown, not dead, and nothing of it runs elsewhere.
    let lost = on("b");
    let token = scheduler.runs_on(lost, "b")?;
    drop(b);
    scheduler.until("b is away", || Ok(!scheduler.is_connected("b")?))?;
    // A scheduler that starts anew knows no more than before.
    scheduler.restart()?;
    scheduler.wait_for_nodes(&["a", "c"])?;
    scheduler.order("uncordon c")?;
    std::thread::sleep(Duration::from_secs(2));
    let place = scheduler.place(lost)?;
    assert_eq!(place["node"], "b", "{place}");
    assert_eq!(place["token"], token, "{place}");
    assert_eq!(place["phase"], "Unknown", "{place}");
    assert!(!scheduler.is_connected("b")?);

    // A person says that it is off.
    scheduler.order("fence b")?;
    scheduler.until("it runs elsewhere", || {
        let place = scheduler.place(lost)?;
        Ok(place["node"] != "b" && place["phase"] == "Running")
    })?;
    let place = scheduler.place(lost)?;
    assert!(place["token"].as_u64() > Some(token), "{place}");
    // The one that only b may have waits for it.
    assert_eq!(scheduler.place("chosen")?, Value::Null);
    assert_eq!(runners(&a.0)? + runners(&c.0)?, 3);
    Ok(())
}
