//! Kinds of this release under names that no source has: whatever recognizes one of them by its name, where it should ask
//! the table, does not do so here.

use std::time::Duration;

use agent_objects::{Kinds, ObjectKind};
use anyhow::ensure;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::Host;
use proto_node::Schema;

use crate::this_agent::{RENAMED, start, succeed};

const PATIENCE: Duration = Duration::from_secs(30);

const PLAIN: &str = "correct-horse-battery";

const ENCODED: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5";

/// A kind and its other names: kind, plural and singular.
struct Renamed {
    from: &'static str,
    names: (&'static str, &'static str, &'static str),
    api_version: &'static str,
    /// Its members beside metadata.
    content: &'static str,
}

const ALL: [Renamed; 4] = [
    Renamed {
        from: "ConfigMap",
        names: ("Leaflet", "leaflets", "leaflet"),
        api_version: "v1",
        content: "data: {mode: slow}\n",
    },
    Renamed {
        from: "Secret",
        names: ("Riddle", "riddles", "riddle"),
        api_version: "v1",
        content: "stringData: {password: correct-horse-battery}\n",
    },
    Renamed {
        from: "ServiceAccount",
        names: ("Badge", "badges", "badge"),
        api_version: "v1",
        content: "",
    },
    Renamed {
        from: "ControllerRevision",
        names: ("Imprint", "imprints", "imprint"),
        api_version: "apps/v1",
        content: "revision: 7\ndata: {a: b}\n",
    },
];

/// The table of this release, with those kinds renamed.
pub fn kinds() -> Kinds {
    let built_in = Kinds::built_in();
    let kinds = built_in.all().map(|kind| {
        let renamed = ALL.iter().find(|renamed| renamed.from == kind.kind);
        renamed.map_or(*kind, |renamed| ObjectKind {
            kind: renamed.names.0,
            plural: renamed.names.1,
            singular: renamed.names.2,
            short_names: &[],
            ..*kind
        })
    });
    Kinds::new(Schema::this_release(), kinds.collect())
}

pub fn kinds_of_data_are_served_under_any_name() -> anyhow::Result<()> {
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    let this = std::env::current_exe()?;
    host.sh(&format!("cp {} /run/bin/kvmlet", this.display()))?;
    let variable = format!("{RENAMED}=1");
    start(&host, &agent, &variable)?;
    for renamed in &ALL {
        is_served(&host, &agent, renamed)?;
    }
    is_kept_confidential(&host, &agent)?;
    agent.kill()?;
    start(&host, &agent, &variable)?;
    for renamed in &ALL {
        is_deleted(&host, &agent, renamed)?;
    }
    Ok(())
}

/// Created, applied, watched, patched, selected and described.
fn is_served(host: &Host, agent: &Agent<'_, Host>, renamed: &Renamed) -> anyhow::Result<()> {
    let (kind, plural, singular) = renamed.names;
    let manifest = format!(
        "apiVersion: {}\nkind: {kind}\nmetadata: {{name: web}}\n{}",
        renamed.api_version, renamed.content
    );
    host.put("/run/object.yaml", 0o644, manifest.as_bytes())?;
    let group = renamed.api_version.strip_suffix("/v1");
    let full = group.map_or(singular.to_owned(), |group| format!("{singular}.{group}"));
    let watched = format!("/run/watched-{plural}");
    let created = succeed(agent, "create -f /run/object.yaml")?;
    assert_eq!(created, format!("{full}/web created\n"));
    host.sh(&format!(
        "(timeout 60 kvmctl get {plural} -w -o name >{watched} 2>&1 &)"
    ))?;
    host.wait_for(&format!("grep -q {full}/web {watched}"), PATIENCE)?;
    let patch = format!("patch {singular} web -p '{{metadata: {{labels: {{app: web}}}}}}'");
    assert_eq!(succeed(agent, &patch)?, format!("{full}/web patched\n"));
    host.wait_for(
        &format!("[ $(grep -c {full}/web {watched}) -ge 2 ]"),
        PATIENCE,
    )?;
    succeed(agent, "apply -f /run/object.yaml")?;
    let chosen = succeed(agent, &format!("get {plural} -l app=web -o name"))?;
    assert_eq!(chosen, format!("{full}/web\n"));
    let shown = succeed(agent, &format!("get {singular} web -o yaml"))?;
    ensure!(shown.contains(&format!("kind: {kind}\n")), "{shown}");
    let described = succeed(agent, &format!("describe {singular} web"))?;
    ensure!(described.contains("web"), "{described}");
    Ok(())
}

/// What is confidential stands in clear nowhere but where its reader asks for it.
fn is_kept_confidential(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let decoded = "get riddle web --template '{{.data.password | base64decode}}'";
    assert_eq!(succeed(agent, decoded)?, PLAIN);
    let described = succeed(agent, "describe riddle web")?;
    let is_size = described.contains("21 bytes") && !described.contains(ENCODED);
    ensure!(is_size, "{described}");
    // Its own data alone, and not the annotation of what was applied.
    let yaml = succeed(agent, "get riddle web -o yaml")?;
    ensure!(yaml.matches(ENCODED).count() == 1, "{yaml}");
    ensure!(!yaml.contains(PLAIN), "{yaml}");
    agent.kill()?;
    for form in [PLAIN, ENCODED] {
        host.sh(&format!(
            "! grep -q -a {form} /var/lib/kvmlet/ledger.redb /var/lib/kvmlet/ledger.redb.wal {}",
            integration::agent::LOG
        ))?;
    }
    // What is not confidential is legible, so that the search is one.
    host.sh("grep -q -a slow /var/lib/kvmlet/ledger.redb /var/lib/kvmlet/ledger.redb.wal")?;
    let variable = format!("{RENAMED}=1");
    start(host, agent, &variable)
}

/// With what depends on it.
fn is_deleted(host: &Host, agent: &Agent<'_, Host>, renamed: &Renamed) -> anyhow::Result<()> {
    let (kind, plural, singular) = renamed.names;
    let uid = succeed(
        agent,
        &format!("get {singular} web -o jsonpath={{.metadata.uid}}"),
    )?;
    let owner = format!(
        "ownerReferences: [{{apiVersion: {}, kind: {kind}, name: web, uid: {uid}}}]",
        renamed.api_version
    );
    let manifest = format!(
        "apiVersion: {}\nkind: {kind}\nmetadata: {{name: dependent, {owner}}}\n{}",
        renamed.api_version, renamed.content
    );
    host.put("/run/object.yaml", 0o644, manifest.as_bytes())?;
    succeed(agent, "create -f /run/object.yaml")?;
    succeed(agent, &format!("delete {singular} web"))?;
    let left = format!("[ -z \"$(kvmctl get {plural} -o name)\" ]");
    host.wait_for(&left, PATIENCE)?;
    Ok(())
}
