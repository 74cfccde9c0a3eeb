//! What `kvmctl validate` says of manifests: the goldens are for readers as much as for the machine.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `kvmctl validate` among the manifests of this test, with no agent anywhere.
fn validate(args: &[&str]) -> Output {
    command(args).stdin(Stdio::null()).output().unwrap()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvmctl"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/manifests"))
        .env("KVMLET_SOCKET", "/nowhere/kvmlet.sock")
        .arg("validate")
        .args(args);
    command
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn every_object_has_one_line_with_its_verdict() {
    let output = validate(&["-f", ".", "-R", "-o", "json"]);
    assert_eq!(code(&output), 1);
    let lines = out(&output);
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let members: Vec<&String> = line.as_object().unwrap().keys().collect();
        let wanted = [
            "file", "index", "kind", "name", "verdict", "causes", "warnings", "ignored",
        ];
        assert_eq!(members, wanted);
        let is_accepted = line["verdict"] == "accepted";
        assert_eq!(line["causes"].as_array().unwrap().is_empty(), is_accepted);
    }
    insta::assert_snapshot!(lines);
    assert_eq!(
        err(&output),
        "error: 10 of 14 objects would not be accepted\n"
    );
}

#[test]
fn people_read_sentences() {
    let output = validate(&["-f", "unsupported.yaml", "-f", "accepted.yaml"]);
    assert_eq!(code(&output), 1);
    insta::assert_snapshot!(out(&output));
}

#[test]
fn kinds_that_no_node_takes_are_judged_all_the_same() {
    let output = validate(&["-f", "../kinds/unserved.yaml"]);
    assert_eq!(code(&output), 1);
    insta::assert_snapshot!(out(&output));
}

#[test]
fn defaults_are_filled_in_and_nothing_that_a_node_generates() {
    let output = validate(&["-f", "buses.yaml", "-f", "accepted.yaml", "--defaulted"]);
    assert_eq!(code(&output), 0, "{}", err(&output));
    let yaml = out(&output);
    for generated in ["uid", "macAddress", "uuid"] {
        assert!(
            !yaml.contains(&format!("{generated}:")),
            "{generated}:\n{yaml}"
        );
    }
    insta::assert_snapshot!(yaml);
    // What was defaulted once means the same.
    let mut again = command(&["-f", "-", "--defaulted", "-o", "yaml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    again
        .stdin
        .take()
        .unwrap()
        .write_all(yaml.as_bytes())
        .unwrap();
    let again = again.wait_with_output().unwrap();
    assert_eq!(out(&again), yaml);
}

#[test]
fn verdicts_of_what_is_not_accepted_do_not_mix_with_defaulted_objects() {
    let output = validate(&["-f", "refused.yaml", "-f", "accepted.yaml", "--defaulted"]);
    assert_eq!(code(&output), 1);
    assert!(out(&output).starts_with("apiVersion:") && !out(&output).contains("refused"));
    assert!(err(&output).contains("VirtualMachineInstance \"misspelt\": refused\n"));
}

#[test]
fn what_cannot_be_read_is_exit_code_2_and_spares_its_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.yaml");
    std::fs::write(&broken, "a: [1\n---\nkind: Secret\napiVersion: v1\n").unwrap();
    let (broken, empty) = (broken.to_str().unwrap(), dir.path().join("none"));
    std::fs::create_dir(&empty).unwrap();
    for (args, seen) in [
        (&["-f", broken, "-o", "json"][..], 1),
        (
            &["-f", "missing.yaml", "-f", "accepted.yaml", "-o", "json"],
            2,
        ),
        (&["-f", empty.to_str().unwrap()], 0),
    ] {
        let output = validate(args);
        assert_eq!(code(&output), 2, "{args:?} {}", err(&output));
        assert_eq!(out(&output).lines().count(), seen, "{args:?}");
        assert!(err(&output).starts_with("error: "), "{}", err(&output));
    }
    assert_eq!(code(&validate(&["-f", "accepted.yaml", "-o", "name"])), 2);
}

#[test]
fn accepted_is_exit_code_0() {
    let output = validate(&["-f", "accepted.yaml", "-o", "json"]);
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
}

#[test]
fn machines_are_judged_by_the_common_instance_types_that_their_node_has() {
    let directory = tempfile::tempdir().unwrap();
    let machine = directory.path().join("machine.json");
    // One is of both releases, the other of the later alone.
    let object = serde_json::json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "dev"},
        "spec": {
            "runStrategy": "Halted",
            "instancetype": {"name": "u1.nano"}, "preference": {"name": "linux"},
            "template": {"spec": {"domain": {"devices": {}}}},
        },
    });
    std::fs::write(&machine, object.to_string()).unwrap();
    let run = |common: Option<&str>| {
        let mut node = serde_json::json!({
            "name": "a", "architecture": "amd64", "maxVcpus": 8, "memoryBytes": 16_u64 << 30,
            "networks": {}, "labels": {}, "refuseSubstitution": false,
        });
        if let Some(common) = common {
            node["commonInstancetypes"] = common.into();
        }
        let report = directory.path().join("node.json");
        let text = serde_json::json!({"node": node}).to_string();
        std::fs::write(&report, text).unwrap();
        let (machine, report) = (machine.to_str().unwrap(), report.to_str().unwrap());
        validate(&["-f", machine, "--node", report, "-o", "json"])
    };
    for (common, missing) in [
        (None, &[][..]),
        (Some("head"), &[]),
        (Some("v1.0.0"), &["linux"]),
        (Some("none"), &["u1.nano", "linux"]),
    ] {
        let output = run(common);
        let line: Value = serde_json::from_str(&out(&output)).unwrap();
        assert_eq!(line["verdict"], "accepted", "{line}");
        let warnings = line["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), missing.len(), "{common:?}: {line}");
        for (warning, name) in warnings.iter().zip(missing) {
            let warning = warning.as_str().unwrap();
            let wanted = format!("{name:?} not found");
            assert!(warning.contains(&wanted), "{common:?}: {warning}");
        }
    }
    let output = run(Some("v2.0.0"));
    let said = err(&output);
    assert!(said.contains("commonInstancetypes \"v2.0.0\""), "{said}");
}
