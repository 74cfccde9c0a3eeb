//! A machine that runs in a node: its console, and the way to its VMM.

use std::time::Duration;

use crate::commands::{Commands, Output, Session};
use crate::node::Node;
use anyhow::ensure;

/// Its control socket.
const SOCKET: &str = "@machine";
/// No answer of a guest's shell takes this long.
const ANSWER: Duration = Duration::from_secs(300);

/// A machine. A node has one at a time.
#[derive(Debug)]
pub struct Machine<'a> {
    node: &'a Node,
    console: Session,
}

impl<'a> Machine<'a> {
    /// Starts it, by `vmm-front` with `flags`.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn start(node: &'a Node, flags: &[String]) -> anyhow::Result<Self> {
        let socket = format!("--socket={SOCKET}");
        let mut argv = vec!["vmm-front", "run", &socket];
        argv.extend(flags.iter().map(String::as_str));
        Ok(Self {
            node,
            console: node.exec(&argv)?,
        })
    }

    /// Waits until its console shows `text`.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> anyhow::Result<String> {
        self.console.read_until(text, limit)
    }

    /// Types a line, and does not wait for its output.
    ///
    /// # Errors
    /// When the console is gone.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        self.console.type_line(line)
    }

    /// What `command` prints in the guest's shell, as one line.
    ///
    /// # Errors
    /// When the shell does not answer.
    pub fn shell_output(&mut self, command: &str) -> anyhow::Result<String> {
        self.console.shell_output(command, ANSWER)
    }

    /// Asks its VMM.
    ///
    /// # Errors
    /// When the VMM refuses.
    pub fn ask(&self, question: &str) -> anyhow::Result<String> {
        self.node.sh(&format!("vmm-front ask {SOCKET} {question}"))
    }

    /// Asks its VMM until the status contains `part`.
    ///
    /// # Errors
    /// When it does not within `limit`.
    pub fn wait_for_status(&self, part: &str, limit: Duration) -> anyhow::Result<String> {
        let script = format!("vmm-front ask {SOCKET} status | grep '{part}'");
        self.node.wait_for(&script, limit)
    }

    /// Writes a snapshot to `file` of the node. The machine is paused then.
    ///
    /// # Errors
    /// When the VMM refuses.
    pub fn save(&self, file: &str) -> anyhow::Result<()> {
        self.ask("pause")?;
        self.node.sh(&format!("rm -f {file}"))?;
        self.ask(&format!("save {file}"))?;
        Ok(())
    }

    /// Stops it.
    ///
    /// # Errors
    /// When it ends otherwise.
    pub fn stop(self) -> anyhow::Result<()> {
        self.ask("stop")?;
        self.end("EXIT_REASON_STOPPED").map(drop)
    }

    /// Waits for its end, which must be for `reason`.
    ///
    /// # Errors
    /// When it ends otherwise, or not.
    pub fn end(self, reason: &str) -> anyhow::Result<Output> {
        let printed = self.console.printed();
        let output = self.console.wait(ANSWER)?;
        let ended = format!("vmm-front: ended: {reason} ");
        ensure!(output.stderr.contains(&ended), "{printed}{output}");
        Ok(output)
    }
}
