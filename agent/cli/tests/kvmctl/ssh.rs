//! `kvmctl ssh` and `kvmctl scp`: what the local programs are given, and what is waited for before.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proto_node::vmi::{ContainerDiskSource, Devices, Disk, VirtualMachineInstance, Volume};

use crate::support::Agent;
use crate::support::output::{code, err, out, with_web};

/// A directory with an `ssh` that says how the real one reads its arguments, and an `scp` that prints them.
fn programs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in [
        ("ssh", "#!/bin/sh\nexec /usr/bin/ssh -G \"$@\"\n"),
        ("scp", "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    directory
}

fn run(agent: &Agent, programs: &Path, args: &[&str]) -> Output {
    let mut command: Command = agent.command(args);
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    command.env("USER", "me").output().unwrap()
}

fn devices(vmi: &mut VirtualMachineInstance) -> &mut Devices {
    let spec = vmi.spec.get_or_insert_default();
    let domain = spec.domain.get_or_insert_default();
    domain.devices.get_or_insert_default()
}

#[test]
fn ssh_is_given_a_way_through_the_agent() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let programs = programs();
    let key = agent.dir().join("key");
    std::fs::write(&key, "").unwrap();
    let key = key.display().to_string();
    // Port 2 speaks first, as servers of SSH do.
    let args = [
        "ssh",
        "-p",
        "2",
        "-i",
        &key,
        "-t",
        "-o StrictHostKeyChecking=accept-new",
        "-c",
        "uname -r",
        "debian@vmi/web/team",
    ];
    let output = run(&agent, programs.path(), &args);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let read = out(&output);
    let socket: PathBuf = agent.socket();
    let proxy = format!(
        "proxycommand {} --socket {} port-forward --stdio=true vmi/web/team 2",
        env!("CARGO_BIN_EXE_kvmctl"),
        socket.display()
    );
    for line in [
        "user debian",
        "hostname vmi.web.team",
        &format!("identityfile {key}"),
        "stricthostkeychecking accept-new",
        &proxy,
    ] {
        assert!(read.lines().any(|read| read == line), "{line}:\n{read}");
    }
}

#[test]
fn the_host_key_of_a_guest_that_is_made_anew_is_looked_up_by_the_vmis_uid() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let programs = programs();
    let alias = |options: &[&str]| {
        let args = [
            &["ssh", "-p", "2", "-c", "true"],
            options,
            &["vmi/web/team"],
        ]
        .concat();
        let output = run(&agent, programs.path(), &args);
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
        let read = out(&output);
        assert!(read.lines().any(|it| it == "hostname vmi.web.team"));
        let alias = |line: &str| line.strip_prefix("hostkeyalias ").map(str::to_owned);
        read.lines().find_map(alias)
    };
    assert_eq!(alias(&[]), None);
    agent.touch("web", |vmi| {
        let name = || "root".to_owned();
        devices(vmi).disks.push(Disk {
            name: name(),
            ..Disk::default()
        });
        let spec = vmi.spec.get_or_insert_default();
        spec.volumes.push(Volume {
            name: name(),
            container_disk: Some(ContainerDiskSource::default()),
            ..Volume::default()
        });
    });
    assert_eq!(alias(&[]).as_deref(), Some("vmi.web.team.uid"));
    let own = ["-t", "-o HostKeyAlias=web"];
    assert_eq!(alias(&own).as_deref(), Some("web"));
}

#[test]
fn scp_is_given_both_places_and_the_user_of_whoever_types() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let programs = programs();
    let args = ["-n", "team", "scp", "-r", "-p", "2", "./a", "vmi/web:b c"];
    let output = run(&agent, programs.path(), &args);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    let read = out(&output);
    let words: Vec<&str> = read.lines().skip(2).collect();
    assert_eq!(words, ["-r", "--", "./a", "me@vmi.web.team:b c"]);
}

#[test]
fn a_guest_that_refuses_is_waited_for_and_reported() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.touch("web", |vmi| {
        let interface = proto_node::vmi::Interface::default();
        devices(vmi).interfaces.push(interface);
    });
    let programs = programs();
    let refused = "dial tcp 10.0.0.2:1: Connection refused";
    let ssh = |wait: &str| {
        let args = ["-n", "team", "ssh", "-p", "1", "--wait", wait, "vmi/web"];
        let output = run(&agent, programs.path(), &args);
        (code(&output), out(&output), err(&output))
    };
    let text = format!("error: vmi/web does not answer on port 1: {refused}\n");
    assert_eq!(ssh("0s"), (1, String::new(), text));
    let text = format!(
        "waiting for vmi/web: {refused}\nerror: timed out waiting for vmi/web to answer on port 1: {refused} (--wait gives it \
         longer)\n"
    );
    assert_eq!(ssh("1s"), (124, String::new(), text));
}

#[test]
fn a_guest_without_a_network_interface_is_not_waited_for() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let programs = programs();
    for (target, guest, option) in [
        ("vmi/web/team", "vmi/web", " -n team"),
        ("me@vm/web", "vm/web", ""),
    ] {
        let args = ["ssh", "-p", "1", "--wait", "1h", target];
        let output = run(&agent, programs.path(), &args);
        let text = format!(
            "error: {guest} has no network interface (spec.domain.devices.autoattachPodInterface is false), so it answers \
             on no port: `kvmctl console {guest}{option}` needs none\n"
        );
        assert_eq!(
            (code(&output), out(&output), err(&output)),
            (1, String::new(), text)
        );
    }
    agent.touch("web", |vmi| {
        devices(vmi).autoattach_pod_interface = None;
    });
    let args = ["scp", "-p", "1", "a", "vmi/web:b"];
    let output = run(&agent, programs.path(), &args);
    let why = "vmi/web has no network interface (spec.domain.devices.interfaces is empty)";
    assert!(err(&output).contains(why), "{}", err(&output));
    assert_eq!(code(&output), 1);
}

#[test]
fn what_is_no_guest_is_wrong_usage_in_the_words_of_virtctl() {
    let agent = Agent::new();
    for (args, why) in [
        (
            &["ssh", "web"][..],
            "target must contain type and name separated by '/'",
        ),
        (&["ssh", "@vm/web"], "expected username before '@'"),
        (&["ssh", "me@"], "expected target after '@'"),
        (&["ssh", "pod/web"], "unsupported resource type 'pod'"),
        (
            &["port-forward", "vm/web/", "80"],
            "namespace cannot be empty",
        ),
    ] {
        let output = agent.kvmctl(args);
        let said = (code(&output), err(&output));
        assert_eq!(said, (2, format!("error: {why}\n")), "{args:?}");
    }
}

#[test]
fn verbs_that_are_not_there_yet_are_refused_by_name() {
    let agent = Agent::new();
    for verb in [
        "migrate",
        "migrate-cancel",
        "vnc",
        "addvolume",
        "removevolume",
        "memory-dump",
        "guestfs",
    ] {
        let output = agent.kvmctl(&[verb, "--what", "web"]);
        assert_eq!((code(&output), out(&output).as_str()), (1, ""), "{verb}");
        let said = err(&output);
        let opening = format!("error: {verb} is not there yet: ");
        assert!(said.starts_with(&opening), "{said}");
    }
}
