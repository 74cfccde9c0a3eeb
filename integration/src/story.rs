//! From the Debian package on a node to a login: one command makes a machine of an image in a registry, sized and with a
//! key, and the next one logs in.

pub mod strikes;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::agent::Agent;
use crate::commands::Commands;
use crate::image::container;
use crate::image::debian_disk::DebianDisk;
use crate::node::{Flavour, Node, NodeSpec};
use crate::{package, tools};

/// What the node's operator writes into the agent's configuration: this registry is the node itself, without TLS; and metrics.
const SETTINGS: &str =
    "[registries.\"registry.test\"]\ninsecure = true\n\n[metrics]\nlisten = \"127.0.0.1:9773\"\n";
/// The unit as it is packaged lets nothing in; the metrics are read all the same.
const SCRAPE: &str = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/9773; printf \"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3; \
    timeout 20 grep -m 1 ^kvmlet_ <&3'";
const CONFIGURATION: &str = "/etc/kvmlet/kvmlet.toml";

/// Of Debian's registry, which only reads here.
const SERVED: &str = "version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: /opt/payload/registry}, maintenance: {uploadpurging: {enabled: false}, readonly: {enabled: true}}}
http: {addr: \"127.0.0.1:80\"}
";

/// Where Debian has OVMF, and what says so.
const OVMF: &str = "/usr/share/OVMF";
const DESCRIPTORS: &str = "/usr/share/qemu/firmware";

const KEY: &str = "ssh-keygen -q -t ed25519 -N '' -f k";
const CREATE: &str = "kvmctl create vm --name dev --instancetype u1.nano --preference debian \\
    --volume-containerdisk src:registry.test/debian:12 --user debian --ssh-key \"$(cat k.pub)\" \\
    | kvmctl apply -f - --wait";
const LIST: &str = "kvmctl get vms";
const LOG_IN: &str =
    "kvmctl ssh -i k -t '-o StrictHostKeyChecking=accept-new' -c hostname debian@vm/dev";

/// How long a command may take beyond the wait that it is given.
const BESIDES: Duration = Duration::from_secs(240);
/// How long `apply --wait` and `ssh` wait when nobody says how long.
const USUAL: Duration = Duration::from_secs(300);

/// A node on which the story can run.
#[derive(Debug)]
pub struct Story {
    node: Node,
}

impl Story {
    /// Boots a node with systemd, has `registry.test` serve `disk` there as `debian:12`, and installs the package.
    ///
    /// # Errors
    /// When something that the node needs is missing, or the node or the agent does not come up.
    pub fn begin(disk: &DebianDisk) -> anyhow::Result<Self> {
        tools::ensure(tools::FIRMWARE)?;
        tools::ensure(&[tools::REGISTRY])?;
        let spec = NodeSpec::bare(Flavour::Systemd)
            .with(package::path(1)?, "kvmlet.deb")
            .with("/usr/bin/docker-registry", "bin/docker-registry")
            .with(
                container::registry(&disk.qcow2, "debian", "12")?,
                "registry",
            )
            .with(OVMF, "root/OVMF")
            .with(DESCRIPTORS, "root/qemu/firmware")
            .without_aes();
        let node = Node::boot(spec)?;
        node.sh(
            "cp -r /opt/payload/root/* /usr/share/ && echo 127.0.0.1 registry.test >>/etc/hosts",
        )?;
        node.put("/etc/registry.yml", 0o644, SERVED.as_bytes())?;
        node.sh("systemd-run --quiet --unit=registry /opt/payload/bin/docker-registry serve /etc/registry.yml")?;
        let install = format!(
            "dpkg -i /opt/payload/kvmlet.deb && printf '%s' '{SETTINGS}' >>{CONFIGURATION} && systemctl restart kvmlet"
        );
        let installed = node.run_for(&["sh", "-c", &install], BESIDES)?;
        ensure!(installed.code == Some(0), "{install}: {installed}");
        Agent::of(&node).wait_until_it_answers()?;
        node.sh(SCRAPE).context("metrics of the packaged unit")?;
        Ok(Self { node })
    }

    /// Types the story's commands, and writes them and what they print to `screen`. They wait as long as they do by
    /// themselves for the machine to be ready and to answer, or as long as `wait` says.
    ///
    /// # Errors
    /// When a command fails, or it is not the machine that answers; the error holds what the guest printed on its console
    /// and the agent's log.
    pub fn run(&self, wait: Option<Duration>, screen: &mut dyn Write) -> anyhow::Result<()> {
        self.run_commands(wait, screen).with_context(|| {
            const STATE_COMMANDS: &str =
                "kvmctl logs vmi/dev --raw | tail -c 20000; kvmctl events; kvmctl why dev";
            let shown = self.node.sh(STATE_COMMANDS);
            let shown = shown.unwrap_or_else(|error| format!("{error:#}"));
            format!("{shown}\n{}", Agent::of(&self.node).log())
        })
    }

    fn run_commands(&self, wait: Option<Duration>, screen: &mut dyn Write) -> anyhow::Result<()> {
        let option = |name: &str| {
            wait.map_or_else(String::new, |wait| format!(" {name} {}s", wait.as_secs()))
        };
        let limit = wait.unwrap_or(USUAL) + BESIDES;
        self.type_in(KEY, limit, screen)?;
        let create = format!("{CREATE}{}", option("--timeout"));
        self.type_in(&create, limit, screen)?;
        let listed = self.type_in(LIST, limit, screen)?;
        ensure!(listed.contains("Running"), "{listed}");
        let log_in = LOG_IN.replace("kvmctl ssh", &format!("kvmctl ssh{}", option("--wait")));
        let answer = self.type_in(&log_in, limit, screen)?;
        ensure!(answer.lines().any(|line| line.trim() == "dev"), "{answer}");
        Ok(())
    }

    /// Shows a command and, as it comes, what it prints on a terminal; it has to succeed.
    fn type_in(
        &self,
        command: &str,
        limit: Duration,
        screen: &mut dyn Write,
    ) -> anyhow::Result<String> {
        writeln!(screen, "$ {command}")?;
        let script = format!("cd && {command}");
        let session = self.node.exec_in_terminal(&["sh", "-c", &script])?;
        let output = session.follow(limit, screen)?;
        ensure!(output.code == Some(0), "{command}: {output}");
        Ok(output.stdout)
    }
}
