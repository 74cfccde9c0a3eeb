//! Keys and passwords as Debian's qemu-guest-agent sets them, in a copy of the machine's users.

use std::path::Path;
use std::process::{Child, Command};

use tokio::net::UnixStream;

use super::super::GuestAgent;
use super::*;

/// An agent that takes a copy of `/etc` and an empty home of root's for the machine's.
struct RealAgent {
    child: Child,
    directory: tempfile::TempDir,
}

impl RealAgent {
    fn start() -> Option<Self> {
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

    async fn greet(&self) -> GuestAgent {
        let socket = self.directory.path().join("socket");
        loop {
            if let Ok(stream) = UnixStream::connect(&socket).await {
                return GuestAgent::greet(stream).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(path)).unwrap()
    }
}

impl Drop for RealAgent {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test]
async fn a_real_agent_sets_keys_and_passwords_and_says_which_it_does_not() {
    let Some(real) = RealAgent::start() else {
        eprintln!("skipped: qemu-guest-agent is not installed, or this is not root");
        return;
    };
    let before = real_shadow(&real);
    let mut agent = real.greet().await;
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMxk me@example";
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    let mut credentials = GuestCredentials {
        keys: [(String::from("root"), keys(&["ssh-rsa AAAA other", key]))].into(),
        passwords: [(String::from("root"), b"s3cret and \"more\"".to_vec())].into(),
    };
    agent.set_credentials(&credentials).await.unwrap();
    assert_eq!(
        real.read("root/.ssh/authorized_keys").trim_end(),
        format!("ssh-rsa AAAA other\n{key}")
    );
    assert_ne!(real_shadow(&real), before);
    // What is there before is replaced.
    credentials.keys = [(String::from("root"), keys(&[key]))].into();
    credentials
        .keys
        .insert(String::from("nobody-of-that-name"), keys(&[key]));
    let why = agent.set_credentials(&credentials).await.unwrap_err();
    assert!(
        why.starts_with(
            "Error encountered writing ssh pub key access credentials for user [nobody-of-that-name]: "
        ),
        "{why}"
    );
    assert_eq!(real.read("root/.ssh/authorized_keys").trim_end(), key);
    assert!(!format!("{credentials:?}").contains("s3cret"));
}

/// Root's line of the copy of `/etc/shadow`.
fn real_shadow(real: &RealAgent) -> Option<String> {
    let path = real.directory.path().join("etc/shadow");
    // It may not be copied yet: then the machine's own is what it will be.
    let text = std::fs::read_to_string(path).or_else(|_| std::fs::read_to_string("/etc/shadow"));
    let text = text.unwrap();
    text.lines()
        .find(|line| line.starts_with("root:"))
        .map(str::to_owned)
}
