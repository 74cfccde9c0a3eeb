//! What `kvmctl` prints, where it prints it, and how it exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use crate::support::Agent;
use crate::support::output::{WEB, code, err, out, with_web, write};

#[test]
fn an_agent_that_is_not_there_is_exit_code_3_and_named() {
    let agent = Agent::new();
    for args in [
        &["get", "vmi"][..],
        &["version"],
        &["wait", "--for=delete", "vmi/web"],
        &["console", "web"],
        &["pause", "vmi", "web"],
    ] {
        let output = agent.kvmctl(args);
        assert_eq!(code(&output), 3, "{args:?} {}", err(&output));
        assert!(err(&output).contains(agent.socket().to_str().unwrap()));
        assert!(err(&output).contains("is the service running?"));
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let agent = Agent::new();
    for args in [
        &["get"][..],
        &["frobnicate"],
        &["wait", "vmi/web", "--for=ready"],
        &["get", "vmi", "-o", "toml"],
        &["describe", "vmi"],
        &["pause"],
        &["unpause", "vmi"],
        &["reset", "event", "web"],
        &["stop", "web", "--force", "--grace-period", "5"],
        &["stop", "web", "--grace-period", "-5"],
    ] {
        assert_eq!(code(&agent.kvmctl(args)), 2, "{args:?}");
    }
}

#[test]
fn help_lists_the_options_of_the_connection_apart() {
    let agent = Agent::new();
    for verb in [&["create", "vm"][..], &["stop"], &["pause"], &["apply"]] {
        let args = [verb, &["--help"]].concat();
        let help = out(&agent.kvmctl(&args));
        let (own, node) = help.split_once("\nConnection:\n").unwrap();
        for option in ["--socket", "--server", "--cert", "--context", "--namespace"] {
            assert!(!own.contains(&format!("{option} <")), "{verb:?} {option}");
            assert!(node.contains(&format!("{option} <")), "{verb:?} {option}");
        }
    }
    let create = out(&agent.kvmctl(&["create", "vm", "--help"]));
    let (own, _) = create.split_once("\nConnection:\n").unwrap();
    assert!(own.contains("--name <") && own.contains("--run-strategy <"));
    let stop = out(&agent.kvmctl(&["stop", "--help"]));
    assert!(stop.contains("Names of VirtualMachines"), "{stop}");
    let neither = agent.kvmctl(&["expand"]);
    let text = "error: VirtualMachine name or file must be provided: --vm NAME or --file FILE\n";
    assert_eq!((code(&neither), err(&neither).as_str()), (2, text));
}

#[test]
fn apply_says_what_was_done_in_one_line() {
    let agent = Agent::new();
    let _server = agent.serve();
    let file = write(&agent, "web.yaml", WEB);
    for wanted in ["created", "configured"] {
        let output = agent.kvmctl(&["apply", "-f", &file]);
        assert_eq!(
            out(&output),
            format!("virtualmachineinstance.kubevirt.io/web {wanted}\n")
        );
        assert_eq!((code(&output), err(&output).as_str()), (0, ""));
    }
    let named = agent.kvmctl(&["apply", "-f", &file, "-o", "name"]);
    assert_eq!(out(&named), "virtualmachineinstance.kubevirt.io/web\n");
}

#[test]
fn a_refused_manifest_lists_every_field_and_spares_its_neighbours() {
    let agent = Agent::new();
    let _server = agent.serve();
    let bad = WEB
        .replace("name: web, ", "name: bad, ")
        .replace("guest: 512Mi", "guest: -1Mi")
        .replace("kernelPath: /vmlinuz", "kernelPath: vmlinuz");
    let worse = WEB
        .replace("name: web, ", "name: worse, ")
        .replace("memory:", "memroy:");
    let file = write(&agent, "all.yaml", &format!("{bad}---\n{worse}---\n{WEB}"));
    let output = agent.kvmctl(&["apply", "-f", &file]);
    assert_eq!(code(&output), 1);
    assert_eq!(
        out(&output),
        "virtualmachineinstance.kubevirt.io/web created\n"
    );
    let errors = err(&output);
    assert!(errors.contains("The VirtualMachineInstance \"bad\" is invalid:\n* spec.domain.memory.guest: Invalid value: \"-1Mi\""), "{errors}");
    assert!(errors.contains("\n* spec.domain.firmware.kernelBoot.container.kernelPath: Invalid value: \"vmlinuz\": spec.domain.firmware.kernelBoot.container.kernelPath must be an absolute path"), "{errors}");
    assert!(errors.contains("The VirtualMachineInstance \"worse\" is invalid:\n* spec.domain.memroy: unknown field \"spec.domain.memroy\""), "{errors}");
    assert!(errors.contains("all.yaml, document at line 11"), "{errors}");
}

#[test]
fn get_shows_columns_documents_and_paths() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    let table = out(&agent.kvmctl(&["get", "vmi"]));
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        ["NAME", "AGE", "PHASE", "IP", "NODENAME", "READY"]
    );
    assert_eq!(
        (lines[1][0], &lines[1][2..]),
        ("web", &["Running", "node1", "True"][..])
    );
    let path = agent.kvmctl(&["get", "vmi/web", "-o", "jsonpath={.status.phase}"]);
    assert_eq!(out(&path), "Running");
    let all = agent.kvmctl(&[
        "get",
        "vmis",
        "-A",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ]);
    assert_eq!(out(&all), "web");
    let json: serde_json::Value =
        serde_json::from_str(&out(&agent.kvmctl(&["get", "vmi", "web", "-o", "json"]))).unwrap();
    assert_eq!(json["metadata"]["labels"]["app"], "web");
    let yaml = out(&agent.kvmctl(&["get", "vmi", "web", "-o", "yaml"]));
    assert!(
        yaml.starts_with("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\n"),
        "{yaml}"
    );
    let missing = agent.kvmctl(&["get", "vmi", "nobody"]);
    assert_eq!((code(&missing), out(&missing).as_str()), (1, ""));
    assert_eq!(
        err(&missing),
        "Error from server (NotFound): virtualmachineinstances.kubevirt.io \"nobody\" not found\n"
    );
    let columns = agent.kvmctl(&[
        "get",
        "vmi",
        "-o",
        "custom-columns=N:.metadata.name,IP:.status.ip",
    ]);
    assert_eq!(out(&columns), "N     IP\nweb   <none>\n");
}

#[test]
fn what_was_got_can_be_applied_again() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    for format in ["yaml", "json"] {
        let text = out(&agent.kvmctl(&["get", "vmi", "-o", format]));
        let file = write(&agent, "again", &text);
        let output = agent.kvmctl(&["apply", "-f", &file]);
        assert_eq!(code(&output), 0, "{}\n{text}", err(&output));
    }
}

#[test]
fn describe_ends_with_the_events() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let text = out(&agent.kvmctl(&["describe", "vmi", "web"]));
    assert!(
        text.starts_with("Name:         web\nNamespace:    default\nLabels:       app=web\n"),
        "{text}"
    );
    assert!(text.ends_with("was created\n"), "{text}");
    assert!(text.contains("\n      Kernel Boot:\n"), "{text}");
}

#[test]
fn wait_ends_when_ready_and_with_124_when_the_time_is_over() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let late = agent.kvmctl(&[
        "wait",
        "--for=condition=Ready",
        "vmi/web",
        "--timeout",
        "300ms",
    ]);
    assert_eq!(code(&late), 124);
    assert_eq!(
        err(&late),
        "error: timed out waiting for condition Ready on virtualmachineinstance.kubevirt.io/web\n"
    );
    let mut wait = agent.command(&[
        "wait",
        "--for=condition=Ready",
        "vmi/web",
        "--timeout",
        "20s",
    ]);
    wait.stdout(Stdio::piped());
    let waiting = agent.until_watched(|| wait.spawn().unwrap());
    agent.run("web");
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(
        out(&output),
        "virtualmachineinstance.kubevirt.io/web condition met\n"
    );
    agent.touch("web", |vmi| {
        let status = vmi.status.as_mut().unwrap();
        "Failed".clone_into(&mut status.phase);
        "NodeRebooted".clone_into(&mut status.reason);
        status.conditions.clear();
    });
    let never = agent.kvmctl(&["wait", "--for=condition=Ready", "vmi/web"]);
    assert_eq!(code(&never), 1);
    assert!(
        err(&never).contains("phase Failed, NodeRebooted"),
        "{}",
        err(&never)
    );
}

#[test]
fn waiting_survives_a_restart_of_the_agent() {
    let agent = Agent::new();
    let server = agent.serve();
    with_web(&agent);
    let mut wait = agent.command(&[
        "wait",
        "--for=condition=Ready",
        "vmi/web",
        "--timeout",
        "30s",
    ]);
    wait.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut waiting = agent.until_watched(|| wait.spawn().unwrap());
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines();
    drop(server);
    let mut wait_for = |words: &str| {
        let found = said.find(|line| line.as_ref().unwrap().contains(words));
        assert!(found.is_some(), "it does not say {words:?}");
    };
    wait_for("the agent went away");
    // It tries to come back several times meanwhile, and says nothing of that.
    std::thread::sleep(Duration::from_millis(500));
    let _server = agent.serve();
    wait_for("the agent is back");
    agent.run("web");
    assert!(waiting.wait().unwrap().success());
}

#[test]
fn delete_waits_until_the_object_is_gone() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let output = agent.kvmctl(&["delete", "vmi", "web"]);
    assert_eq!(
        out(&output),
        "virtualmachineinstance.kubevirt.io \"web\" deleted\n"
    );
    assert_eq!(code(&agent.kvmctl(&["get", "vmi", "web"])), 1);
    assert_eq!(code(&agent.kvmctl(&["delete", "vmi", "web"])), 1);
    assert_eq!(
        code(&agent.kvmctl(&["delete", "vmi", "web", "--ignore-not-found"])),
        0
    );
}

#[test]
fn one_object_that_is_not_there_does_not_hide_the_others() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let file = write(&agent, "db.yaml", &WEB.replace("name: web", "name: db"));
    assert_eq!(code(&agent.kvmctl(&["apply", "-f", &file])), 0);
    let missing = "virtualmachineinstances.kubevirt.io \"nobody\" not found";
    for args in [
        &["get", "vmi", "web", "nobody", "db"][..],
        &["get", "vmi", "nobody", "web", "db", "-o", "json"],
        &["describe", "vmi", "nobody", "web", "db"],
        &["why", "nobody", "web", "db"],
    ] {
        let output = agent.kvmctl(args);
        assert_eq!(code(&output), 1, "{args:?}");
        let printed = out(&output);
        assert!(
            printed.contains("web") && printed.contains("db"),
            "{args:?} {printed}"
        );
        assert_eq!(err(&output).matches(missing).count(), 1, "{args:?}");
    }
    let created = "--for=jsonpath={.metadata.name}";
    let waited = agent.kvmctl(&["wait", "vmi", "nobody", "web", created]);
    assert_eq!(code(&waited), 1, "{}", err(&waited));
    assert!(
        out(&waited).contains("/web condition met\n"),
        "{}",
        err(&waited)
    );
    let deleted = agent.kvmctl(&["delete", "vmi", "nobody", "web", "nobody-else", "db"]);
    assert_eq!(code(&deleted), 1);
    assert_eq!(err(&deleted).matches("(NotFound)").count(), 2);
    let left = agent.kvmctl(&["get", "vmi"]);
    assert!(err(&left).contains("No resources found"), "{}", out(&left));
}

#[test]
fn a_machine_is_explained_with_its_vmi_and_a_vmi_with_its_machine() {
    let agent = Agent::new();
    let _server = agent.serve();
    let machine = |name: &str, strategy: &str, state: &str| {
        serde_json::json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": name, "namespace": "default", "uid": "5"},
            "spec": {"runStrategy": strategy}, "status": {"printableStatus": state},
        })
    };
    agent.keep(&machine("dev", "Halted", "Stopped"));
    // With its type and without, because no VMI has the name.
    for name in ["vm/dev", "dev"] {
        let output = agent.kvmctl(&["why", name]);
        assert_eq!(code(&output), 0, "{}", err(&output));
        assert_eq!(
            out(&output),
            "dev  Stopped, run strategy Halted\n\
             \x20 look at   kvmctl start vm dev: starts it\n\
             \x20 look at   kvmctl describe vm dev: everything\n"
        );
    }
    let missing = agent.kvmctl(&["why", "vm/nobody"]);
    assert_eq!(code(&missing), 1);
    let words = "virtualmachines.kubevirt.io \"nobody\" not found";
    assert!(err(&missing).contains(words), "{}", err(&missing));
    with_web(&agent);
    agent.keep(&machine("web", "Always", "Running"));
    let output = agent.kvmctl(&["why", "vm/web"]);
    let pages = out(&output);
    assert!(
        pages.starts_with("web  Running, run strategy Always\n") && pages.contains("\n\nweb  "),
        "{pages}"
    );
    // One that is no machine's is explained alone.
    let alone = out(&agent.kvmctl(&["why", "vmi/web"]));
    assert!(
        !alone.contains("run strategy") && !alone.contains("owner"),
        "{alone}"
    );
}

#[test]
fn a_console_takes_input_from_a_pipe_and_leaves_when_idle() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    let mut child = agent
        .command(&["console", "web", "--replay", "--idle", "300ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"uptime\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", err(&output));
    assert_eq!(out(&output), "abcdefghijklmnopqrstuvwxyzuptime\n");
}

#[test]
fn a_lost_console_prints_the_words_of_the_agent() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    agent.run("web");
    let mut child = agent
        .command(&["console", "web", "--idle", "10s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"lose it\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 1, "{}", err(&output));
    let end = "\nerror: the console was taken over by another client\n";
    assert!(err(&output).ends_with(end), "{}", err(&output));
}

#[test]
fn a_console_survives_a_restart_of_the_agent_without_repeating_output() {
    let agent = Agent::new();
    let server = agent.serve();
    with_web(&agent);
    agent.run("web");
    let mut child = agent
        .command(&["console", "web", "--replay"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut alphabet = [0; 26];
    stdout.read_exact(&mut alphabet).unwrap();
    drop(server);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let has_noticed = said.any(|line| line.unwrap().contains("the agent went away"));
    assert!(has_noticed, "it does not say that the agent went away");
    let _server = agent.serve();
    stdin.write_all(b"again\x1d").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    // Ctrl+] may be faster than the echo; what counts is that nothing came twice.
    assert!("again".starts_with(&rest), "{rest:?}");
    assert!(child.wait().unwrap().success());
}

#[test]
fn output_that_nobody_reads_is_no_panic() {
    let agent = Agent::new();
    let mut child = agent
        .command(&["explain-support", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
}

#[test]
fn versions_of_both_sides_are_printed() {
    let agent = Agent::new();
    let _server = agent.serve();
    let text = out(&agent.kvmctl(&["version"]));
    assert!(
        text.contains("Client Version: ") && text.contains("Agent Version: 9.9.9 on node1"),
        "{text}"
    );
}

#[test]
fn what_a_guest_says_of_itself_is_json() {
    let agent = Agent::new();
    let _server = agent.serve();
    for name in ["web", "vm/web", "vmi/web"] {
        let all = agent.kvmctl(&["guestosinfo", name]);
        assert_eq!(code(&all), 0, "{name}: {}", err(&all));
        let info: serde_json::Value = serde_json::from_str(&out(&all)).unwrap();
        assert_eq!(info["hostname"], "web", "{name}");
    }
    let other = agent.kvmctl(&["fslist", "event/web"]);
    assert_eq!(
        (code(&other), err(&other).as_str()),
        (2, "error: a VMI was expected, not event\n")
    );
    let users = agent.kvmctl(&["userlist", "web"]);
    let users: serde_json::Value = serde_json::from_str(&out(&users)).unwrap();
    let wanted = serde_json::json!({"metadata": {}, "items": [{"userName": "debian"}]});
    assert_eq!(users, wanted);
    let none = agent.kvmctl(&["fslist", "web"]);
    assert!(out(&none).contains("\"items\": []"), "{}", out(&none));
    let silent = agent.kvmctl(&["guestosinfo", "db"]);
    assert_eq!(code(&silent), 1);
    let words = "VMI does not have guest agent connected";
    assert!(err(&silent).contains(words), "{}", err(&silent));
}
