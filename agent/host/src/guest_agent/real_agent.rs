//! Debian's qemu-guest-agent, for tests.

use std::path::Path;
use std::process::{Child, Command};

use tokio::net::UnixStream;

use super::conversation::GuestAgent;

/// An agent that takes a copy of `/etc` and an empty home of root's for the machine's.
pub(super) struct RealAgent {
    child: Child,
    pub(super) directory: tempfile::TempDir,
}

impl RealAgent {
    pub(super) fn start() -> Option<Self> {
        let is_there = |path: &&str| Path::new(path).exists();
        ["/usr/sbin/qemu-ga", "/usr/bin/qemu-ga"]
            .into_iter()
            .find(is_there)?;
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let script = "mkdir etc root && cp -a /etc/passwd /etc/group /etc/shadow /etc/nsswitch.conf etc/ && \
                      cp -a /etc/pam.d /etc/login.defs /etc/security etc/ && \
                      mount --bind etc /etc && mount --bind root /root && \
                      exec qemu-ga --method unix-listen --path \"$PWD/socket\" --statedir \"$PWD\"";
        let child = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .current_dir(directory.path())
            .spawn()
            .unwrap();
        Some(Self { child, directory })
    }

    pub(super) async fn greet(&self) -> GuestAgent {
        let socket = self.directory.path().join("socket");
        loop {
            if let Ok(stream) = UnixStream::connect(&socket).await {
                return GuestAgent::greet(stream).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(path)).unwrap()
    }
}

impl Drop for RealAgent {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        // Then this says so, too.
        drop(self.child.wait());
    }
}
