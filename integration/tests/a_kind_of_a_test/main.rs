//! A kind that only this test has, through a real agent and a real `kvmctl`: its message is compiled here, its entry
//! stands here, and no other line of the project knows of it.
//!
//! This program is the test and, under the name `kvmlet`, the agent with one kind more.

#![forbid(unsafe_code)]

mod renamed;
mod this_agent;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use agent_domain::{FieldError, Rule};
use agent_objects::{
    Admission, AdmitContext, Column, ColumnType, Kinds, Object, ObjectKind, Scale, Writer,
};
use anyhow::{Context, ensure};
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::{self, Host};
use libtest_mimic::{Arguments, Trial};
use proto_node::Schema;
use this_agent::{RENAMED, start, succeed};

const PATIENCE: Duration = Duration::from_secs(30);

/// Where the agent finds the compiled message.
const DESCRIPTORS: &str = "KVMLET_TEST_DESCRIPTORS";

const PROTO: &str = r#"
syntax = "proto3";
package example.v1;
import "kvmlet/meta/v1/meta.proto";
message Gadget {
  string api_version = 1;
  string kind = 2;
  kvmlet.meta.v1.ObjectMeta metadata = 3;
  GadgetSpec spec = 4;
  GadgetStatus status = 5;
}
// What a gadget is to be.
message GadgetSpec {
  int32 replicas = 1;
  // What it is painted with.
  string colour = 2;
}
message GadgetStatus {
  int32 replicas = 1;
  string selector = 2;
}
"#;

const GADGET: ObjectKind = ObjectKind {
    group: "example.io",
    kind: "Gadget",
    plural: "gadgets",
    singular: "gadget",
    short_names: &["gd"],
    message: "example.v1.Gadget",
    columns: &[Column {
        name: "COLOUR",
        shown: ColumnType::Text,
        json_path: ".spec.colour",
        wide: false,
    }],
    has_status: true,
    scale: Some(Scale {
        spec_replicas: ".spec.replicas",
        status_replicas: ".status.replicas",
        label_selector: ".status.selector",
    }),
    writer: Writer::Objects(judge),
    ..ObjectKind::PLAIN
};

fn judge(object: &Object, _: &AdmitContext<'_>) -> Admission {
    let mut admission = Admission::default();
    if object.text(&["spec", "colour"]) == "mauve" {
        let error = FieldError::new("spec.colour", Rule::Invalid, "no gadget is mauve");
        admission.errors.push(error);
    }
    admission
}

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    if Path::new(&called)
        .file_name()
        .is_some_and(|name| name == "kvmlet")
    {
        return agent();
    }
    let arguments = Arguments::from_args();
    let trial = |name: &str, run: fn() -> anyhow::Result<()>| {
        Trial::test(name, move || {
            if let Some(why) = host::without_host() {
                integration::skip::report(&why);
                return Ok(());
            }
            run().map_err(|error| format!("{error:?}").into())
        })
    };
    let trials = vec![
        trial(
            "a_kind_of_a_test_is_served_as_all_others",
            a_kind_of_a_test_is_served_as_all_others,
        ),
        trial(
            "kinds_of_data_are_served_under_any_name",
            renamed::kinds_of_data_are_served_under_any_name,
        ),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The agent of this release, with one kind more, or with kinds under other names.
fn agent() -> ExitCode {
    if std::env::var_os(RENAMED).is_some() {
        return match Kinds::install(renamed::kinds()) {
            Ok(()) => agent_daemon::main(),
            Err(_) => ExitCode::FAILURE,
        };
    }
    let mut kinds: Vec<ObjectKind> = Kinds::built_in().all().copied().collect();
    kinds.push(GADGET);
    let descriptors = std::env::var_os(DESCRIPTORS).map(std::fs::read);
    let schema = match descriptors {
        Some(Ok(descriptors)) => Schema::of_descriptors(&descriptors),
        // A helper of the agent's, which serves nothing.
        _ => return agent_daemon::main(),
    };
    match schema {
        Ok(schema) => {
            if Kinds::install(Kinds::new(Box::leak(Box::new(schema)), kinds)).is_err() {
                return ExitCode::FAILURE;
            }
            agent_daemon::main()
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

/// The messages of this release and that of the kind.
fn compiled(directory: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::write(directory.join("gadget.proto"), PROTO)?;
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/node/proto");
    let mut compiler = protox::Compiler::new([directory, ours.as_ref()])?;
    compiler.include_imports(true);
    compiler.include_source_info(true);
    compiler.open_file("gadget.proto")?;
    for entry in walk(Path::new(ours))? {
        compiler.open_file(entry)?;
    }
    Ok(compiler.encode_file_descriptor_set())
}

/// The .proto files below a directory.
fn walk(directory: &Path) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(walk(&path)?);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            found.push(path);
        }
    }
    Ok(found)
}

const RED: &str = "apiVersion: example.io/v1\nkind: Gadget\nmetadata: {name: red, labels: {app: web}}\nspec: {colour: red, replicas: 1}\n";

fn explained_by_the_agent(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let page = succeed(agent, "explain gd.spec.colour")?;
    let wanted = "GROUP:      example.io\nKIND:       Gadget\nVERSION:    v1\n\nFIELD: colour <string>\n\n\
                  DESCRIPTION:\n    What it is painted with.\n\nSUPPORT:\n    honoured\n";
    assert_eq!(page, wanted);
    let all = succeed(agent, "explain gadgets --recursive")?;
    ensure!(
        all.contains("\n    replicas\t<integer>\n    colour\t<string>\n"),
        "{all}"
    );
    Ok(())
}

/// By the release of `kvmctl`, which does not have the kind.
fn explained_without_an_agent(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let unknown = agent.kvmctl("explain gd")?;
    ensure!(
        unknown.code == Some(1) && unknown.stderr.contains("couldn't find resource for \"gd\""),
        "{unknown}"
    );
    let known = agent.kvmctl("explain vmi.spec")?;
    ensure!(
        known.code == Some(0)
            && known.stderr.contains("as this release of kvmctl has it")
            && known.stdout.contains("  domain\t<object>"),
        "{known}"
    );
    Ok(())
}

fn a_kind_of_a_test_is_served_as_all_others() -> anyhow::Result<()> {
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    let this = std::env::current_exe()?;
    host.sh(&format!("cp {} /run/bin/kvmlet", this.display()))?;
    let variable = format!("{DESCRIPTORS}=/run/descriptors");
    let descriptors = compiled(host.directory())?;
    host.put("/run/descriptors", 0o644, &descriptors)?;
    start(&host, &agent, &variable)?;
    let known = succeed(&agent, "api-resources")?;
    let line = known.lines().find(|line| line.starts_with("gadgets"));
    let line = line.with_context(|| known.clone())?;
    ensure!(
        line.contains("gd") && line.contains("example.io/v1"),
        "{line}"
    );

    explained_by_the_agent(&agent)?;

    // Created, refused, applied, patched, scaled, selected and shown.
    host.put("/run/red.yaml", 0o644, RED.as_bytes())?;
    host.put(
        "/run/blue.yaml",
        0o644,
        RED.replace("red", "blue").replace("web", "db").as_bytes(),
    )?;
    assert_eq!(
        succeed(&agent, "create -f /run/red.yaml")?,
        "gadget.example.io/red created\n"
    );
    assert_eq!(
        succeed(&agent, "apply -f /run/blue.yaml")?,
        "gadget.example.io/blue created\n"
    );
    host.put(
        "/run/mauve.yaml",
        0o644,
        RED.replace("colour: red", "colour: mauve").as_bytes(),
    )?;
    let refused = agent.kvmctl("apply -f /run/mauve.yaml")?;
    ensure!(refused.stderr.contains("spec.colour"), "{refused}");
    host.sh("(timeout 60 kvmctl get gd -w -o name >/run/watched 2>&1 &)")?;
    host.wait_for("grep -q red /run/watched", PATIENCE)?;
    let patch = "patch gd red --type merge -p '{\"spec\":{\"colour\":\"green\"}}'";
    assert_eq!(succeed(&agent, patch)?, "gadget.example.io/red patched\n");
    succeed(&agent, "scale gadget red --replicas 3")?;
    host.wait_for("[ $(grep -c red /run/watched) -ge 3 ]", PATIENCE)?;
    let shown = succeed(&agent, "get gadgets -l app=web")?;
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows, [["NAME", "COLOUR"], ["red", "green"]]);
    let path =
        "jsonpath='{.spec.replicas} {.metadata.generation} {.metadata.managedFields[*].manager}'";
    let output = succeed(&agent, &format!("get gd red -o {path}"))?;
    assert_eq!(output, "3 3 kvmctl-create kvmctl-patch kvmctl-scale");
    let chosen = succeed(&agent, "get gd --field-selector metadata.name=blue -o name")?;
    assert_eq!(chosen, "gadget.example.io/blue\n");

    // Collected with its owner, across the death of the agent.
    let uid = succeed(&agent, "get gd red -o jsonpath='{.metadata.uid}'")?;
    let owner = format!(
        "{{\"metadata\":{{\"ownerReferences\":[{{\"apiVersion\":\"example.io/v1\",\"kind\":\"Gadget\",\"name\":\"red\",\"uid\":\"{uid}\"}}]}}}}"
    );
    succeed(&agent, &format!("patch gd blue --type merge -p '{owner}'"))?;
    agent.kill()?;
    explained_without_an_agent(&agent)?;
    start(&host, &agent, &variable)?;
    succeed(&agent, "delete gd red")?;
    host.wait_for("[ -z \"$(kvmctl get gd -o name)\" ]", PATIENCE)
        .with_context(|| agent.log())?;
    Ok(())
}
