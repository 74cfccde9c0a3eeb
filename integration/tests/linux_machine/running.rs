//! A machine whose host side is looked at while its guest runs.

use anyhow::{Context, ensure};
use integration::commands::Commands;
use integration::node::Node;

/// A VMM in a node whose guest need not get anywhere. Dropping it leaves it to the node's end.
pub struct Running<'a> {
    node: &'a Node,
    /// Its socket's name.
    socket: String,
    /// Process id in the node.
    pub pid: u32,
}

impl<'a> Running<'a> {
    /// Starts a machine and returns once its guest runs.
    pub fn start(node: &'a Node, name: &str, flags: &[String]) -> anyhow::Result<Self> {
        let socket = format!("@{name}");
        let quoted: Vec<String> = flags.iter().map(|flag| format!("'{flag}'")).collect();
        let log = format!("/tmp/{name}.log");
        let pid = node.sh(&format!(
            "vmm-front run --socket={socket} {} </dev/null >{log} 2>&1 & echo $!",
            quoted.join(" ")
        ))?;
        let asked = format!("vmm-front ask {socket} status | grep -q MACHINE_STATE_RUNNING");
        let started = node.wait_for(&asked, std::time::Duration::from_secs(60));
        started.with_context(|| node.sh(&format!("cat {log}")).unwrap_or_default())?;
        Ok(Self {
            node,
            socket,
            pid: pid.trim().parse()?,
        })
    }

    /// A file of `/proc/PID`.
    pub fn proc(&self, file: &str) -> anyhow::Result<String> {
        self.node.sh(&format!("cat /proc/{}/{file}", self.pid))
    }

    /// Ends it, and waits until all that it had is free.
    pub fn stop(self) -> anyhow::Result<()> {
        self.node
            .sh(&format!("vmm-front ask {} stop", self.socket))?;
        let gone = format!("[ ! -e /proc/{} ]", self.pid);
        self.node
            .wait_for(&gone, std::time::Duration::from_secs(30))?;
        Ok(())
    }
}

/// Tries to start a machine that cannot be; what the VMM said.
pub fn refusal(node: &Node, flags: &[String]) -> anyhow::Result<String> {
    let mut argv = vec!["timeout", "60", "vmm-front", "run"];
    argv.extend(flags.iter().map(String::as_str));
    let output = node.run(&argv)?;
    let refused = output.stderr.lines().find(|line| line.contains("refused:"));
    ensure!(refused.is_some(), "not refused: {output}");
    Ok(refused.unwrap_or_default().to_owned())
}
