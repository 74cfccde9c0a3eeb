//! Manifests that others wrote, applied as they are on a node: their images come from a mirror that has one small image
//! for all of them, and what they name beside that is made.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::agent::{Agent, CONFIG};
use crate::commands::{COMMAND_TIMEOUT, Commands, Session};
use crate::image::container;
use crate::image::debian_disk::DebianDisk;
use crate::node::{Flavour, Node, NodeSpec};

/// How long a guest may take to run: its image is pulled first.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long cloud-init may take in an emulated guest.
const CLOUD_INIT: Duration = Duration::from_secs(600);
/// How long until a guest is ready; KubeVirt's examples have probes that begin after two minutes.
const READY: Duration = Duration::from_secs(600);
/// Where the mirror listens.
const MIRROR: &str = "127.0.0.1:5000";
const OVMF: &str = "/usr/share/OVMF";
const DESCRIPTORS: &str = "/usr/share/qemu/firmware";
const SEABIOS: &str = "/usr/share/seabios/bios-256k.bin";

/// What the image's GRUB says, whichever firmware started it.
const GRUB: &str = ", cloud image";
/// Of the last words of cloud-init, followed by where its data came from.
const CLOUD_INIT_ENDS: &str = "Datasource ";
/// Of what a kernel says that had too little memory.
const NO_MEMORY: &[&str] = &["Out of memory", "out of memory", "Kernel panic"];

/// A manifest: the name of its file and its text.
#[derive(Clone, Debug)]
pub struct Example {
    /// As it is shown.
    pub file: String,
    /// As it is applied.
    pub text: String,
}

impl Example {
    /// Whether a volume of it is an image, or made for cloud-init.
    #[must_use]
    pub fn has_image_or_seed(&self) -> bool {
        ["containerDisk:", "registryDisk:", "cloudInit"]
            .iter()
            .any(|word| self.text.contains(word))
    }

    /// The values of a field, wherever it is.
    fn values(&self, field: &str) -> BTreeSet<String> {
        let value = |line: &str| {
            let line = line.trim_start().trim_start_matches("- ");
            let value = line.strip_prefix(field)?.strip_prefix(':')?.trim();
            (!value.is_empty()).then(|| value.trim_matches(['"', '\'']).to_owned())
        };
        self.text.lines().filter_map(value).collect()
    }

    fn is_started_by_hand(&self) -> bool {
        let strategies = self.values("runStrategy");
        let is_off = |strategy: &str| strategies.contains(strategy);
        is_off("Halted") || is_off("Manual") || self.values("running").contains("false")
    }
}

/// The registry of an image's name, as a pull understands it.
fn registry(image: &str) -> &str {
    let image = image.trim_start_matches("docker://");
    match image.split_once('/') {
        Some((first, _)) if first.contains(['.', ':']) || first == "localhost" => first,
        _ => "docker.io",
    }
}

/// The outcome of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node takes it not, for this reason.
    Refused(String),
    /// Each of its guests runs and is ready, and how far it came.
    Runs(Vec<String>),
    /// It was taken, and a guest does not run or is not ready.
    Fails(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => write!(f, "refused: {reason}"),
            Self::Runs(guests) => write!(f, "runs: {}", guests.join("; ")),
            Self::Fails(reason) => write!(f, "FAILS: {reason}"),
        }
    }
}

/// Boots a node and applies each manifest in it, one after the other. `report` gets the outcome of each.
///
/// # Errors
/// When the node fails. That a guest does not run is an outcome.
pub fn run(
    examples: &[Example],
    disk: &DebianDisk,
    report: &mut dyn FnMut(&Example, &Outcome),
) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let tree = scratch.path().join("tree");
    std::fs::create_dir_all(tree.join("disk"))?;
    std::fs::copy(&disk.qcow2, tree.join("disk/disk.qcow2"))?;
    let layout = scratch.path().join("layout");
    container::layout(&tree, &layout)?;
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl", "image-registry"])?
        .with(layout, "layout")
        .with(SEABIOS, "root/seabios/bios-256k.bin")
        .with(OVMF, "root/OVMF")
        .with(DESCRIPTORS, "root/qemu/firmware")
        .without_aes();
    spec.memory_mib = 3072;
    let node = Node::boot(spec)?;
    node.sh("mkdir -p /usr/share && cp -r /opt/payload/root/* /usr/share/")?;
    let agent = Agent::prepare(&node)?;
    node.sh(&format!(
        "cat >>{CONFIG} <<'END'\n{}END\n\
         mkdir -p /run/orders; setsid image-registry {MIRROR} /opt/payload/layout /run/orders </dev/null >/run/mirror.log 2>&1 &",
        settings(examples)
    ))?;
    agent.start()?;
    for example in examples {
        let outcome = Applied {
            node: &node,
            agent: &agent,
        }
        .come_to(example)
        .with_context(|| format!("{}:\n{}", example.file, agent.log()))?;
        report(example, &outcome);
    }
    Ok(())
}

/// Every registry that an image is from has the mirror, and every network that one names is there.
fn settings(examples: &[Example]) -> String {
    let all = |field: &str| -> BTreeSet<String> {
        examples.iter().flat_map(|it| it.values(field)).collect()
    };
    let images = all("image");
    let registries: BTreeSet<&str> = images.iter().map(|image| registry(image)).collect();
    let mut text = format!("\n[registries.\"{MIRROR}\"]\ninsecure = true\n");
    for name in registries {
        text += &format!("\n[registries.\"{name}\"]\nmirrors = [\"{MIRROR}\"]\n");
    }
    for name in all("networkName") {
        if name != "lan" {
            text += &format!("\n[networks.\"{name}\"]\nbridge = \"br0\"\n");
        }
    }
    text
}

struct Applied<'a> {
    node: &'a Node,
    agent: &'a Agent<'a, Node>,
}

impl Applied<'_> {
    fn come_to(&self, example: &Example) -> anyhow::Result<Outcome> {
        const FILE: &str = "/run/example.yaml";
        self.node.put(FILE, 0o644, example.text.as_bytes())?;
        let applied = self.agent.kvmctl(&format!("apply -f {FILE}"))?;
        if applied.code != Some(0) {
            return Ok(Outcome::Refused(beginning(&applied.stderr)));
        }
        for name in example.values("secretName") {
            self.agent.apply(&format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{key: ssh-ed25519 AAAA somebody@example}}\n"
            ))?;
        }
        let outcome = self.guests(example)?;
        let deleted = self
            .agent
            .kvmctl(&format!("delete -f {FILE} --grace-period 0"))?;
        ensure!(deleted.code == Some(0), "{deleted}");
        self.node
            .wait_for("test -z \"$(kvmctl get vmi -o name)\"", PATIENCE)?;
        Ok(outcome)
    }

    fn guests(&self, example: &Example) -> anyhow::Result<Outcome> {
        if example.is_started_by_hand() {
            self.node
                .sh("for each in $(kvmctl get vm -o name); do kvmctl start ${each##*/}; done")?;
        }
        let named = self
            .node
            .wait_for("kvmctl get vmi -o name | grep .", PATIENCE)?;
        let mut run = Vec::new();
        for line in named.lines() {
            let name = line.rsplit('/').next().unwrap_or(line);
            match self.guest(name)? {
                Ok(state) => run.push(format!("{name} {state}")),
                Err(reason) => return Ok(Outcome::Fails(format!("{name}: {reason}"))),
            }
        }
        Ok(Outcome::Runs(run))
    }

    /// How far the guest came, or why it does not run.
    fn guest(&self, name: &str) -> anyhow::Result<Result<String, String>> {
        let is_running = "Running";
        if self
            .agent
            .wait_for_phase(name, is_running, PATIENCE)
            .is_err()
        {
            let why = self.agent.kvmctl(&format!("why vmi {name}"))?;
            return Ok(Err(beginning(&why.stdout)));
        }
        let mut console = self.agent.console(name)?;
        if let Err(error) = console.read_until(GRUB, PATIENCE) {
            let output = format!("{error:#}");
            return Ok(Err(format!("its disk does not boot: {}", end(&output))));
        }
        let came = match line_with(&mut console, &[&[CLOUD_INIT_ENDS], NO_MEMORY].concat())? {
            Some(line) if line.contains(CLOUD_INIT_ENDS) => {
                let source = line.split(CLOUD_INIT_ENDS).nth(1).unwrap_or_default();
                format!("booted, cloud-init ended with {}", beginning(source))
            }
            Some(line) => format!(
                "booted, and the small image wants more memory: {}",
                end(&line)
            ),
            None => {
                let output = end(&console.printed());
                return Ok(Err(format!("cloud-init did not end: {output}")));
            }
        };
        console.kill()?;
        let wait = format!(
            "kvmctl wait --for=condition=Ready vmi/{name} --timeout={}s",
            READY.as_secs()
        );
        let ready = self
            .node
            .run_for(&["sh", "-c", &wait], READY + COMMAND_TIMEOUT)?;
        if ready.code != Some(0) {
            let why = self.agent.kvmctl(&format!("why vmi {name}"))?;
            return Ok(Err(format!(
                "{came}, not ready: {}",
                beginning(&why.stdout)
            )));
        }
        let phase = self.agent.value(name, ".status.phase")?;
        Ok(Ok(format!("{phase}, Ready, {came}")))
    }
}

/// The first line of a guest's console that has one of these texts.
fn line_with(console: &mut Session, texts: &[&str]) -> anyhow::Result<Option<String>> {
    let until = Instant::now() + CLOUD_INIT;
    while Instant::now() < until {
        let line = console.next_line(Duration::from_secs(1))?;
        let is_one = |line: &String| texts.iter().any(|text| line.contains(text));
        if let Some(line) = line.filter(is_one) {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

/// Most of a text that a row has.
const MOST: usize = 400;

/// Text of several lines in one, its beginning if it is long.
fn beginning(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MOST).collect()
}

/// Its end if it is long.
fn end(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let skipped = line.chars().count().saturating_sub(MOST);
    line.chars().skip(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(text: &str) -> Example {
        Example {
            file: "a.yaml".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn what_a_manifest_names_is_found_wherever_it_stands() {
        let one = example(
            "spec:\n  runStrategy: Halted\n  volumes:\n  - containerDisk:\n      image: quay.io/a/b:1\n  - image: \"c/d\"\n",
        );
        let images: Vec<String> = one.values("image").into_iter().collect();
        assert_eq!(images, ["c/d", "quay.io/a/b:1"]);
        assert!(one.is_started_by_hand() && one.has_image_or_seed());
        assert!(!example("spec:\n  runStrategy: Always\n").is_started_by_hand());
        assert!(!example("kind: Secret\n").has_image_or_seed());
        assert!(example("  running: false\n").is_started_by_hand());
    }

    #[test]
    fn every_registry_of_an_image_has_the_mirror() {
        let all = [
            example("image: registry:5000/a:1\nnetworkName: ptp\n"),
            example("image: kubevirt/b\nnetworkName: lan\n"),
        ];
        let text = settings(&all);
        for part in [
            "[registries.\"registry:5000\"]\nmirrors",
            "[registries.\"docker.io\"]\nmirrors",
            "[networks.\"ptp\"]\nbridge = \"br0\"",
        ] {
            assert!(text.contains(part), "{text}");
        }
        // The node has that one already.
        assert!(!text.contains("networks.\"lan\""), "{text}");
    }
}
