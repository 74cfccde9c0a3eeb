//! How `kvmctl` finds its agent, and its errors for what makes no sense.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

fn kvmctl(variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvmctl"));
    command.env_clear().envs(variables.iter().copied());
    command.args(args).output().unwrap()
}

#[track_caller]
fn is_refused(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(words), "{words:?} is not in {said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn an_agent_on_another_node_takes_https_and_three_files() {
    let url = "https://node1:9774";
    let get = |args: &[&str]| kvmctl(&[], &[args, &["get", "vmi"]].concat());
    is_refused(
        &get(&["--server", "http://node1"]),
        "must begin with https://",
    );
    is_refused(
        &get(&["--server", url]),
        "needs --cert FILE (or KVMLET_CERT",
    );
    is_refused(&get(&["--server", url, "--cert", "/c"]), "needs --key FILE");
    is_refused(
        &get(&["--server", url, "--cert", "/c", "--key", "/k"]),
        "needs --cacert",
    );
    let all = [
        "--server", url, "--cert", "/no/c", "--key", "/no/k", "--cacert", "/no/a",
    ];
    is_refused(
        &get(&all),
        "error: --cacert (or KVMLET_CACERT, or cacert in the file of settings): /no/a: no such file\n",
    );
    let absent = "error: --config (or KVMCTL_CONFIG): /no/f: no such file\n";
    is_refused(&get(&["--config", "/no/f"]), absent);
    is_refused(
        &kvmctl(&[("KVMCTL_CONFIG", "/no/f")], &["get", "vmi"]),
        absent,
    );
    is_refused(
        &get(&["--server", url, "--socket", "/s"]),
        "cannot be used with",
    );
}

#[test]
fn options_go_before_the_environment_and_that_before_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kvmctl.toml");
    std::fs::write(&file, "server = \"https://from-file:1\"\ncert = \"/c\"\n").unwrap();
    let file = file.to_str().unwrap();
    let in_file = [("KVMCTL_CONFIG", file)];
    is_refused(
        &kvmctl(&in_file, &["get", "vmi"]),
        "--server https://from-file:1 needs --key",
    );
    let variable = [in_file[0], ("KVMLET_SERVER", "https://from-variable:1")];
    is_refused(
        &kvmctl(&variable, &["get", "vmi"]),
        "https://from-variable:1 needs --key",
    );
    let option = ["--server", "https://from-option:1", "get", "vmi"];
    is_refused(
        &kvmctl(&variable, &option),
        "https://from-option:1 needs --key",
    );
    // The socket of this node, where nobody is.
    let socket = kvmctl(&variable, &["--socket", "/no/socket", "get", "vmi"]);
    assert_eq!(socket.status.code(), Some(3));
    let both = [("KVMLET_SOCKET", "/s"), ("KVMLET_SERVER", "https://x")];
    is_refused(&kvmctl(&both, &["get", "vmi"]), "are both set");
}

#[test]
fn a_file_of_settings_that_is_wrong_is_named_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join(".config/kvmlet");
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("kvmctl.toml");
    std::fs::write(&file, "sever = \"https://node1\"\n").unwrap();
    let home = [("HOME", home.path().to_str().unwrap())];
    let output = kvmctl(&home, &["get", "vmi"]);
    is_refused(&output, "kvmctl.toml: ");
    is_refused(&output, "sever");
    // What asks nobody needs no settings.
    assert!(kvmctl(&home, &["explain-support"]).status.success());
}
