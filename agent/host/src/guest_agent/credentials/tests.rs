//! Keys and passwords as Debian's qemu-guest-agent sets them, in a copy of the machine's users.

use super::super::real_agent::RealAgent;
use super::*;

#[tokio::test]
async fn a_real_agent_sets_keys_and_passwords_and_says_which_it_does_not() {
    let Some(real) = RealAgent::start() else {
        test_skip::report("qemu-guest-agent is not installed, or this is not root");
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
