//! Requests of `kvmctl` to guests, and how it says why they are as they are.

use std::process::Stdio;

use serde_json::json;

use crate::support::Agent;
use crate::support::output::{WEB, code, err, out, with_web, write};

#[test]
fn guests_are_paused_and_unpaused_and_the_column_shows_it() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    // READY and, where there is one, PAUSED; nothing is live-migratable.
    let last_columns = || {
        let table = out(&agent.kvmctl(&["get", "vmi", "-o", "wide", "--no-headers"]));
        let cells = table.split_whitespace().skip(4);
        cells.map(str::to_owned).collect::<Vec<_>>()
    };
    let paused = agent.kvmctl(&["pause", "vmi", "web"]);
    assert_eq!(
        (out(&paused).as_str(), err(&paused).as_str()),
        ("VMI web was scheduled to pause\n", "")
    );
    let waited = agent.kvmctl(&["wait", "--for=condition=Paused", "vmi/web"]);
    assert_eq!(code(&waited), 0, "{}", err(&waited));
    assert_eq!(last_columns(), ["True", "True"]);
    let again = agent.kvmctl(&["pause", "vmi", "web"]);
    assert_eq!((code(&again), out(&again).as_str()), (1, ""));
    assert_eq!(
        err(&again),
        "Error from server (Conflict): it is so already\n"
    );
    let unpaused = agent.kvmctl(&["unpause", "web"]);
    assert_eq!(out(&unpaused), "VMI web was scheduled to unpause\n");
    assert_eq!(last_columns(), ["True"]);
}

#[test]
fn one_guest_that_refuses_does_not_stop_the_others() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let output = agent.kvmctl(&["reset", "vmi", "nobody", "web"]);
    assert_eq!(
        (code(&output), out(&output).as_str()),
        (1, "VMI web was scheduled to reset\n")
    );
    assert!(
        err(&output).contains("(NotFound): \"nobody\" not found"),
        "{}",
        err(&output)
    );
    let other = agent.kvmctl(&["reset", "node", "web"]);
    assert_eq!((code(&other), out(&other).as_str()), (1, ""));
    assert!(err(&other).ends_with(": type vmi web\n"), "{}", err(&other));
    for args in [
        &["soft-reboot", "web"][..],
        &["stop", "vmi/web"],
        &["stop", "web", "--grace-period", "7"],
        &["stop", "web", "--force"],
    ] {
        let output = agent.kvmctl(args);
        assert_eq!(code(&output), 0, "{args:?} {}", err(&output));
    }
    let wanted = [
        "reset",
        "soft-reboot",
        "stop None",
        "stop Some(7)",
        "stop Some(0)",
    ];
    assert_eq!(
        agent.requests(),
        wanted.map(|what| format!("default web: {what}"))
    );
}

#[test]
fn a_machine_without_a_guest_is_asked_for_by_its_own_name() {
    let agent = Agent::new();
    let _server = agent.serve();
    let keep = |name: &str, strategy: &str, state: &str| {
        agent.keep(&json!({
            "kind": "VirtualMachine",
            "metadata": {"name": name},
            "spec": {"runStrategy": strategy},
            "status": {"printableStatus": state},
        }));
    };
    keep("dev", "Halted", "Stopped");
    keep("manual", "Manual", "Stopped");
    keep("soon", "Always", "CrashLoopBackOff");
    let halted = "error: VirtualMachine dev is not set to run: `kvmctl start vm dev` starts it\n";
    for (args, wanted) in [
        (&["pause", "vm", "dev"][..], halted),
        (&["unpause", "vm/dev"], halted),
        (&["reset", "vm/dev"], halted),
        (&["soft-reboot", "vm/dev"], halted),
        (&["console", "vm/dev"], halted),
        (
            &["pause", "vm/manual"],
            "error: VirtualMachine manual has no guest (Stopped, run strategy Manual): `kvmctl start vm manual` starts it\n",
        ),
        (
            &["console", "vm/soon"],
            "error: VirtualMachine soon has no guest at present (CrashLoopBackOff, run strategy Always): `kvmctl why vm/soon` says \
             more\n",
        ),
        (
            &["pause", "vm/none"],
            "Error from server (NotFound): VirtualMachine \"none\" not found in namespace \"default\"\n",
        ),
        (
            &["pause", "vmi/dev"],
            "Error from server (NotFound): \"dev\" not found\n",
        ),
    ] {
        let output = agent.kvmctl(args);
        let said = (code(&output), err(&output));
        assert_eq!(said, (1, wanted.to_owned()), "{args:?}");
    }
}

#[test]
fn apply_waits_for_ready_and_for_no_more_than_was_asked_for() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let apply = |manifest: &str| {
        let file = write(&agent, "waits.yaml", manifest);
        let mut apply = agent.command(&["apply", "-f", &file, "--wait", "--timeout", "2s"]);
        apply.stdout(Stdio::null()).stderr(Stdio::piped());
        let waiting = agent.until_watched(|| apply.spawn().unwrap());
        assert_eq!(code(&agent.kvmctl(&["pause", "web"])), 0);
        waiting.wait_with_output().unwrap()
    };
    let waited = apply(WEB);
    assert_eq!(code(&waited), 124);
    assert!(
        err(&waited).contains("web: not ready: VMI was paused by user"),
        "{}",
        err(&waited)
    );
    let held = apply(&WEB.replace("spec:\n", "spec:\n  startStrategy: Paused\n"));
    assert_eq!(code(&held), 0, "{}", err(&held));
    assert!(
        err(&held).contains("as its startStrategy says; `kvmctl unpause vmi web` starts it"),
        "{}",
        err(&held)
    );
}

#[test]
fn a_timeout_prints_what_the_agent_knows() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    agent.touch("web", |vmi| {
        let status = vmi.status.as_mut().unwrap();
        "Scheduled".clone_into(&mut status.phase);
        let condition = |kind: &str, reason: &str, message: &str| proto_node::vmi::Condition {
            r#type: kind.to_owned(),
            status: "False".to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Default::default()
        };
        status.conditions = vec![
            condition("Ready", "GuestNotRunning", "not reported as running"),
            condition("Synchronized", "KernelNotFound", "/k: no such file"),
        ];
    });
    let waited = agent.kvmctl(&[
        "wait",
        "--for=condition=Ready",
        "vmi/web",
        "--timeout",
        "1s",
    ]);
    let wanted_end =
        "on virtualmachineinstance.kubevirt.io/web: KernelNotFound: /k: no such file\n";
    assert_eq!(code(&waited), 124);
    assert!(err(&waited).ends_with(wanted_end), "{}", err(&waited));
}

#[test]
fn why_says_what_holds_a_guest_and_what_to_do() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    assert_eq!(code(&agent.kvmctl(&["pause", "web"])), 0);
    let page = out(&agent.kvmctl(&["why", "web"]));
    assert!(page.starts_with("web  Running, on node1\n"), "{page}");
    for words in [
        "PausedByUser, VMI was paused by user\n",
        "Created: was created\n",
        "kvmctl unpause vmi web: the guest goes on\n",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert_eq!(code(&agent.kvmctl(&["why", "nobody"])), 1);
    agent.touch("web", |vmi| {
        let status = vmi.status.as_mut().unwrap();
        "Failed".clone_into(&mut status.phase);
    });
    let page = out(&agent.kvmctl(&["why", "web"]));
    let line = "\"abc [2Jdehijklm\" (last line)\n";
    assert!(page.contains(line), "{page}");
    let events = agent.kvmctl(&["events", "--for", "vmi/web", "--no-headers"]);
    assert!(out(&events).contains("was created"), "{}", err(&events));
    assert_eq!(code(&agent.kvmctl(&["events", "--types", "Odd"])), 2);
}

#[test]
fn events_that_are_not_to_be_had_do_not_hide_the_other_guests() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let file = write(&agent, "s.yaml", &WEB.replace("name: web", "name: secret"));
    assert_eq!(code(&agent.kvmctl(&["apply", "-f", &file])), 0);
    for verb in ["describe", "why"] {
        let output = agent.kvmctl(&[verb, "vmi", "secret", "web"]);
        assert_eq!(code(&output), 1, "{verb}");
        assert!(
            out(&output).contains("was created\n"),
            "{verb}: {}",
            out(&output)
        );
        let wanted_end = "Error from server (Forbidden): events of it are not for you\n";
        assert_eq!(err(&output), wanted_end, "{verb}");
    }
}

#[test]
fn proposed_commands_name_a_namespace_that_is_not_your_own() {
    let agent = Agent::new();
    let _server = agent.serve();
    let file = write(&agent, "web.yaml", WEB);
    let settings = write(&agent, "kvmctl.toml", "namespace = \"prod\"\n");
    assert_eq!(
        code(&agent.kvmctl(&["apply", "-n", "prod", "-f", &file])),
        0
    );
    agent.touch("web", |vmi| {
        let status = vmi.status.get_or_insert_default();
        "Failed".clone_into(&mut status.phase);
    });
    let typed = &["-n", "prod"][..];
    let configured = &["--config", &settings][..];
    for (scope, option) in [(typed, " -n prod"), (configured, "")] {
        let kvmctl = |args: &[&str]| agent.kvmctl(&[scope, args].concat());
        let page = out(&kvmctl(&["why", "web"]));
        let proposed = format!("kvmctl logs web{option}: the whole");
        assert!(page.contains(&proposed), "{page}");
        let never = kvmctl(&["wait", "--for=condition=Ready", "vmi/web"]);
        let proposed = format!("`kvmctl why web{option}` says more");
        assert!(err(&never).contains(&proposed), "{}", err(&never));
    }
}

#[test]
fn the_error_of_a_console_in_use_has_the_option_that_takes_it_over() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    agent.take_consoles();
    let refused = agent.kvmctl(&["console", "web", "--idle", "300ms"]);
    assert_eq!((code(&refused), out(&refused).as_str()), (1, ""));
    assert_eq!(
        err(&refused),
        "Error from server (AlreadyExists): the console is in use by \"x\"; --force takes it over\n"
    );
    let taken = agent.kvmctl(&["console", "web", "--force", "--idle", "300ms"]);
    assert_eq!(code(&taken), 0, "{}", err(&taken));
}
