//! A shell at the other end of a session, such as a guest's on its console.

use std::io::Write;
use std::time::Duration;

use super::Session;

impl Session {
    /// Types a line, and does not wait for its output.
    ///
    /// # Errors
    /// When the node is gone.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        self.write(format!("{line}\n").as_bytes())
    }

    /// What `command` prints in the shell, as one line.
    ///
    /// # Errors
    /// As [`Self::read_until`].
    pub fn shell_output(&mut self, command: &str, limit: Duration) -> anyhow::Result<String> {
        self.follow_shell_output(command, limit, &mut std::io::sink())
    }

    /// As [`Self::shell_output`]; what comes in is also written to `sink` at once.
    ///
    /// # Errors
    /// As [`Self::follow_until`].
    pub fn follow_shell_output(
        &mut self,
        command: &str,
        limit: Duration,
        sink: &mut dyn Write,
    ) -> anyhow::Result<String> {
        // What is echoed has apostrophes where the answer has none.
        self.type_line(&format!("echo answer'='$({command})'='end"))?;
        self.follow_until("answer=", limit, sink)?;
        let answer = self.follow_until("=end", limit, sink)?;
        Ok(answer.trim_end_matches("=end").to_owned())
    }
}
