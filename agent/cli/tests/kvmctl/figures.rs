//! What `kvmctl` tells of what guests printed and use, and what it generates of itself.

use crate::support::Agent;
use crate::support::output::{code, err, out};

#[test]
fn a_log_is_printed_as_it_is_and_losses_apart_from_it() {
    let agent = Agent::new();
    let _server = agent.serve();
    let logs = agent.kvmctl(&["logs", "vmi/web"]);
    assert_eq!(
        (code(&logs), out(&logs).as_str()),
        (0, "abc\x1b[2Jdehijklm")
    );
    assert_eq!(
        err(&logs),
        "2 bytes were printed faster than they could be read, and are lost\n"
    );
    let previous = agent.kvmctl(&["logs", "--previous", "web"]);
    assert_eq!((code(&previous), out(&previous).as_str()), (1, ""));
    assert_eq!(
        err(&previous),
        "Error from server (Forbidden): nothing is kept\n"
    );
    let both = agent.kvmctl(&["logs", "--previous", "-f", "web"]);
    assert_eq!(code(&both), 2, "{}", err(&both));
}

#[test]
fn a_log_that_is_followed_goes_on_where_it_was_when_the_agent_comes_back() {
    let agent = Agent::new();
    let _server = agent.serve();
    agent.cut_off_logs();
    let logs = agent.kvmctl(&["logs", "-f", "web"]);
    assert_eq!(
        (code(&logs), out(&logs).as_str(), err(&logs).as_str()),
        (0, "abc\x1b[2Jdefghijklm", "")
    );
    assert_eq!(
        agent.requests(),
        [
            "logs web since None of \"\"",
            "logs web since Some(9) of \"uid-of-web\"",
        ]
    );
    // One that is not followed ends with what it could not read.
    agent.cut_off_logs();
    assert_eq!(code(&agent.kvmctl(&["logs", "web"])), 3);
}

#[test]
fn what_guests_use_is_the_difference_of_two_reads() {
    let agent = Agent::new();
    let _server = agent.serve();
    let table = |args: &[&str]| {
        let args = [&["top", "--interval", "10ms"], args].concat();
        let output = agent.kvmctl(&args);
        assert_eq!(code(&output), 0, "{}", err(&output));
        out(&output)
    };
    assert_eq!(
        table(&["--sort", "cpu", "--once"]),
        "NAME   CPU    VCPUS   RESIDENT   MEMORY   READ/S   WRITE/S   IOPS   RX/S   TX/S\n\
         web    500m   2       50Mi       1.0Gi    0        40Ki      5      0      0\n\
         db     50m    2       5.0Mi      1.0Gi    0        40Ki      5      0      0\n"
    );
    let json: serde_json::Value = serde_json::from_str(&table(&["-o", "json"])).unwrap();
    assert_eq!(json["items"][1]["name"], "web");
    assert_eq!(json["items"][1]["cpus"], 0.5);
    assert_eq!(json["items"][1]["writeBytesPerSecond"], 40_960.0);
    assert!(table(&["-A"]).starts_with("NAMESPACE   NAME"));
}

#[test]
fn shells_complete_verbs_and_manuals_describe_them() {
    let agent = Agent::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = out(&agent.kvmctl(&["completion", shell]));
        assert!(script.contains("soft-reboot"), "{shell}: {script}");
        assert!(!script.is_empty());
    }
    let directory = agent.dir().to_str().unwrap();
    let written = agent.kvmctl(&["manual-pages", directory]);
    assert_eq!(code(&written), 0, "{}", err(&written));
    for (page, words) in [
        ("kvmctl.1", "kvmctl\\-apply"),
        ("kvmctl-logs.1", "\\-\\-previous"),
    ] {
        let text = std::fs::read_to_string(agent.dir().join(page)).unwrap();
        assert!(text.contains(words), "{page}: {text}");
    }
    assert!(!agent.dir().join("kvmctl-manual-pages.1").exists());
}
