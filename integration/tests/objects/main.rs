//! Objects without guests on this machine: Secrets and other data, namespaces, and the verbs of `kvmctl` for any kind.

#![forbid(unsafe_code)]

mod clients_that_leave;
mod dry_runs;
mod garbage;
mod guests;
mod inputs;
mod messages;
mod several;

use std::time::Duration;

use integration::agent::{Agent, CONFIG, GuestSpec, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(30);

const PLAIN: &str = "correct-horse-battery";

const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: web}\nstringData: {password: correct-horse-battery}\n";

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {mode: slow}\n";

fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.start()?;
    Ok(agent)
}

fn put(host: &Host, manifest: &str) -> anyhow::Result<()> {
    host.put("/run/kvmlet-test/object.yaml", 0o644, manifest.as_bytes())
}

/// What a command prints when it succeeds.
fn succeed(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    anyhow::ensure!(
        output.code == Some(0),
        "kvmctl {arguments}: {output}\n{}",
        agent.log()
    );
    Ok(output.stdout)
}

/// What a command says when it fails.
fn fail(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    anyhow::ensure!(output.code == Some(1), "kvmctl {arguments}: {output}");
    Ok(output.stderr)
}

#[test]
fn secrets_are_encrypted_in_the_ledger_and_refused_without_their_key() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(SECRET)?;
    agent.apply(SECRET)?;
    let decoded = "get secret web --template '{{.data.password | base64decode}}'";
    assert_eq!(succeed(&agent, decoded)?, PLAIN);
    let described = succeed(&agent, "describe secret web")?;
    assert!(
        described.contains("21 bytes") && !described.contains("Y29ycmVjd"),
        "{described}"
    );
    let table = succeed(&agent, "get secrets --no-headers")?;
    let cells: Vec<&str> = table.split_whitespace().take(3).collect();
    assert_eq!(cells, ["web", "Opaque", "1"]);
    let yaml = succeed(&agent, "get secret web -o yaml")?;
    assert_eq!(
        yaml.matches("Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5").count(),
        1,
        "{yaml}"
    );
    agent.kill()?;

    // Neither rows nor the change log hold it, in any form that it was written in.
    let state = "/var/lib/kvmlet";
    for form in [PLAIN, "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5"] {
        host.sh(&format!(
            "! grep -q -a {form} {state}/ledger.redb {state}/ledger.redb.wal"
        ))?;
    }
    assert_eq!(
        host.sh(&format!("stat -c %a {state}/secrets.key"))?.trim(),
        "600"
    );

    host.sh(&format!("mv {state}/secrets.key {state}/kept"))?;
    agent.start()?;
    let refused = fail(&agent, "get secret web")?;
    assert!(
        refused.contains("ServiceUnavailable") && refused.contains("encrypted with key"),
        "{refused}"
    );
    put(&host, SECRET)?;
    for mode in ["none", "server"] {
        let refused = fail(
            &agent,
            &format!("apply --dry-run={mode} -f /run/kvmlet-test/object.yaml"),
        )?;
        assert!(refused.contains("encrypted with key"), "{mode}: {refused}");
        put(&host, &SECRET.replace("name: web", "name: other"))?;
    }
    agent.apply(MAP)?;
    host.sh(&format!("! test -e {state}/secrets.key"))?;
    agent.kill()?;
    host.sh(&format!("mv {state}/kept {state}/secrets.key"))?;
    agent.start()?;
    assert_eq!(succeed(&agent, decoded)?, PLAIN);
    succeed(&agent, "delete secret web")?;
    Ok(())
}

#[test]
fn secrets_whose_key_is_lost_can_be_deleted_and_make_way_for_a_new_key() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(SECRET)?;
    agent.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")?;
    agent.apply(&SECRET.replace("name: web", "name: web, namespace: a"))?;
    agent.apply(&SECRET.replace(
        "name: web",
        "name: kept, namespace: a, finalizers: [example.com/keep]",
    ))?;
    agent.kill()?;
    host.sh("rm /var/lib/kvmlet/secrets.key")?;
    agent.start()?;
    let refused = fail(&agent, "get secret web")?;
    assert!(refused.contains("encrypted with key"), "{refused}");
    assert_eq!(
        succeed(&agent, "delete secret web")?,
        "secret \"web\" deleted\n"
    );
    succeed(&agent, "delete namespace a --wait=false")?;
    let remaining = "jsonpath={.status.conditions[0].message}";
    let words = "Some resources are remaining: secrets has 1 resource instances";
    host.wait_for(
        &format!("test \"$(kvmctl get ns a -o '{remaining}')\" = '{words}'"),
        PATIENCE,
    )?;
    // What is encrypted cannot be changed, and what is not can.
    let refused = fail(&agent, "patch secret kept -n a -p '{type: x}'")?;
    assert!(refused.contains("encrypted with key"), "{refused}");
    succeed(
        &agent,
        "patch secret kept -n a -p '{metadata: {finalizers: null}}'",
    )?;
    host.wait_for("! kvmctl get ns a", PATIENCE)?;

    // Nothing is left that needs the lost key.
    agent.kill()?;
    agent.start()?;
    agent.apply(SECRET)?;
    let decoded = "get secret web --template '{{.data.password | base64decode}}'";
    assert_eq!(succeed(&agent, decoded)?, PLAIN);
    agent.kill()?;
    let checked = host.sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
    assert!(checked.contains(": sound"), "{checked}");
    Ok(())
}

#[test]
fn a_namespace_that_is_deleted_is_emptied_first() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    // Objects need no Namespace to be in one.
    let within = SECRET.replace("name: web", "name: web, namespace: a");
    agent.apply(&within)?;
    agent.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")?;
    agent.apply(&MAP.replace(
        "name: web",
        "name: web, namespace: a, finalizers: [example.com/keep]",
    ))?;
    assert!(succeed(&agent, "get ns a")?.contains("Active"));
    succeed(&agent, "delete namespace a --wait=false")?;
    let remaining = "jsonpath={.status.conditions[0].message}";
    let words = "Some resources are remaining: configmaps has 1 resource instances";
    host.wait_for(
        &format!("test \"$(kvmctl get ns a -o '{remaining}')\" = '{words}'"),
        PATIENCE,
    )?;
    put(&host, &within)?;
    let refused = fail(&agent, "apply -f /run/kvmlet-test/object.yaml")?;
    let words = "secrets \"web\" is forbidden: unable to create new content in namespace a because it is being terminated";
    assert!(refused.contains(words), "{refused}");
    agent.kill()?;
    agent.start()?;
    succeed(
        &agent,
        "patch configmap web -n a --type merge -p '{\"metadata\":{\"finalizers\":null}}'",
    )?;
    host.wait_for("! kvmctl get ns a", PATIENCE)?;
    let left =
        succeed(&agent, "get secrets -A -o name")? + &succeed(&agent, "get configmaps -A -o name")?;
    assert_eq!(left, "");
    agent.apply(&within)?;
    Ok(())
}

#[test]
fn objects_of_any_kind_are_created_changed_and_shown_as_kubectl_does() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    put(&host, &format!("{MAP}---\n{SECRET}"))?;
    let file = "-f /run/kvmlet-test/object.yaml";
    let said = succeed(&agent, &format!("create {file}"))?;
    assert_eq!(said, "configmap/web created\nsecret/web created\n");
    let refused = fail(&agent, &format!("create {file}"))?;
    let words =
        "Error from server (AlreadyExists): error when creating \"/run/kvmlet-test/object.yaml\": ";
    assert!(refused.starts_with(words), "{refused}");
    for (arguments, said) in [
        ("label configmap web tier=front", "configmap/web labeled\n"),
        (
            "label configmap/web tier=front",
            "configmap/web not labeled\n",
        ),
        (
            "label configmap web tier=back --overwrite",
            "configmap/web labeled\n",
        ),
        ("label cm --all tier-", "configmap/web unlabeled\n"),
        ("annotate cm web owner=alice", "configmap/web annotated\n"),
        (
            "patch cm web -p '{data: {mode: fast}}'",
            "configmap/web patched\n",
        ),
        (
            "patch cm web -p '{data: {mode: fast}}'",
            "configmap/web patched (no change)\n",
        ),
        (
            "get cm web --template '{{.data.mode}} {{len .data}}'",
            "fast 1",
        ),
        (
            "get cm web -o custom-columns=NAME:.metadata.name,MODE:.data.mode --no-headers",
            "web   fast\n",
        ),
    ] {
        assert_eq!(succeed(&agent, arguments)?, said, "{arguments}");
    }
    Ok(())
}

#[test]
fn what_others_changed_is_not_replaced_unseen() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(MAP)?;
    succeed(&agent, "patch cm web -p '{data: {mode: fast}}'")?;
    succeed(&agent, "label cm web tier=front")?;
    let refused = fail(&agent, "label cm web tier=back")?;
    assert_eq!(
        refused,
        "error: 'tier' already has a value (front), and --overwrite is false\n"
    );
    host.sh("kvmctl get cm web -o yaml >/run/kvmlet-test/old.yaml")?;
    let edit = "sh -c \"EDITOR='sed -i s/fast/faster/' kvmctl edit cm web\"";
    assert_eq!(host.sh(edit)?, "configmap/web edited\n");
    let refused = fail(&agent, "replace -f /run/kvmlet-test/old.yaml")?;
    assert!(
        refused.contains("(Conflict): error when replacing"),
        "{refused}"
    );
    host.sh("sed -i /resourceVersion/d /run/kvmlet-test/old.yaml")?;
    assert_eq!(
        succeed(&agent, "replace -f /run/kvmlet-test/old.yaml")?,
        "configmap/web replaced\n"
    );
    assert_eq!(
        succeed(&agent, "get cm web -o jsonpath={.data.mode}")?,
        "fast"
    );
    let kinds = succeed(&agent, "api-resources --no-headers")?;
    let secrets: Vec<&str> = kinds
        .lines()
        .find(|line| line.starts_with("secrets "))
        .into_iter()
        .flat_map(str::split_whitespace)
        .collect();
    assert_eq!(secrets, ["secrets", "v1", "true", "Secret"]);
    Ok(())
}

#[test]
fn what_depends_on_a_deleted_object_goes_however_often_the_agent_is_killed() -> anyhow::Result<()> {
    const DEPENDENTS: usize = 900;
    /// More of them, which a controller of others has to let go.
    const HELD: usize = 100;
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(MAP)?;
    let uid = succeed(&agent, "get cm web -o jsonpath={.metadata.uid}")?;
    let owner =
        format!("ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: web, uid: {uid}}}]");
    let mut manifest = String::new();
    for number in 0..DEPENDENTS {
        manifest.push_str(&format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: a{number}, {owner}}}\n---\n"
        ));
    }
    for number in 0..HELD {
        let finalizers = "finalizers: [example.com/keep]";
        manifest.push_str(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: held{number}, {owner}, {finalizers}}}\n---\n"
        ));
    }
    put(&host, &manifest)?;
    let created = succeed(&agent, "create -f /run/kvmlet-test/object.yaml")?;
    assert_eq!(created.lines().count(), DEPENDENTS + HELD);
    succeed(&agent, "delete cm web --wait=false")?;
    let left = "kvmctl get sa -o name 2>/dev/null | wc -l";
    for _ in 0..20 {
        agent.kill()?;
        agent.start()?;
        if host.sh(left)?.trim() == "0" {
            break;
        }
    }
    host.wait_for(&format!("test $({left}) = 0"), PATIENCE)?;
    let marks = "jsonpath='{range .items[*]}{.metadata.deletionTimestamp} {.metadata.finalizers}{\"\\n\"}{end}'";
    let marked = format!("kvmctl get cm -o {marks} | grep -c '^2.*example.com/keep'");
    host.wait_for(&format!("test $({marked}) = {HELD}"), PATIENCE)?;
    host.sh(&format!(
        "for n in $(seq 0 {}); do kvmctl patch cm held$n -p '{{metadata: {{finalizers: null}}}}' || exit 1; done",
        HELD - 1
    ))?;
    let left = succeed(&agent, "get cm -o name")?;
    assert_eq!(left, "");
    agent.kill()?;
    let checked = host.sh("kvmlet check-store --config /var/lib/kvmlet/kvmlet.toml")?;
    assert!(checked.contains(": sound"), "{checked}");
    Ok(())
}

#[test]
fn objects_of_any_kind_come_and_go_with_their_manifest() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let file = format!("{MANIFESTS}/a.yaml");
    host.put(&file, 0o600, format!("{MAP}---\n{SECRET}").as_bytes())?;
    let mode = |wanted: &str| {
        format!("test \"$(kvmctl get cm web -o jsonpath='{{.data.mode}}')\" = {wanted}")
    };
    host.wait_for(&mode("slow"), PATIENCE)?;
    host.wait_for("kvmctl get secret web", PATIENCE)?;
    let yaml = succeed(&agent, "get secret web -o yaml")?;
    assert!(
        !yaml.contains("config.hash"),
        "a digest tells guesses apart: {yaml}"
    );
    let refused = fail(&agent, "patch cm web -p '{data: {mode: mine}}'")?;
    assert!(refused.contains("belongs to"), "{refused}");
    host.put(&file, 0o600, MAP.replace("slow", "fast").as_bytes())?;
    host.wait_for(&mode("fast"), PATIENCE)?;
    host.wait_for("! kvmctl get secret web", PATIENCE)?;
    agent.kill()?;
    host.sh(&format!("rm {file}"))?;
    agent.start()?;
    host.wait_for("! kvmctl get cm web", PATIENCE)?;
    Ok(())
}

#[test]
fn the_node_is_an_object_that_the_agent_alone_writes() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let field = |path: &str| succeed(&agent, &format!("get no node1 -o jsonpath={{{path}}}"));
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    let ready = format!("get node node1 -o 'jsonpath={{{ready}}}'");
    assert_eq!(succeed(&agent, &ready)?, "True");
    let selected = "get nodes -l kubernetes.io/os=linux -o name";
    assert_eq!(succeed(&agent, selected)?, "node/node1\n");
    assert_eq!(field(".spec.unschedulable")?, "");
    let (uid, boot) = (field(".metadata.uid")?, field(".status.nodeInfo.bootID")?);
    assert_eq!(boot, host.sh("cat /proc/sys/kernel/random/boot_id")?.trim());
    let memory = field(".status.capacity.memory")?;
    let total = host.sh("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1Ki/p' /proc/meminfo")?;
    assert_eq!(memory, total.trim());

    succeed(&agent, "cordon")?;
    assert_eq!(field(".spec.unschedulable")?, "true");
    let row = succeed(&agent, "get nodes --no-headers")?;
    assert!(
        row.starts_with("node1   Ready,SchedulingDisabled "),
        "{row}"
    );
    let refused = fail(&agent, "label node node1 a=b")?;
    assert!(
        refused.contains("a Node is written by the agent alone"),
        "{refused}"
    );
    let refused = fail(&agent, "delete node node1")?;
    assert!(
        refused.contains("a Node is written by the agent alone"),
        "{refused}"
    );

    agent.kill()?;
    agent.start()?;
    succeed(&agent, "uncordon")?;
    assert_eq!(field(".metadata.uid")?, uid);
    assert_eq!(field(".metadata.generation")?, "3");
    let row = succeed(&agent, "get nodes --no-headers")?;
    assert!(row.starts_with("node1   Ready "), "{row}");
    Ok(())
}

/// Commits of the ledger so far.
fn commits(host: &Host) -> anyhow::Result<u64> {
    let scrape =
        "exec 3<>/dev/tcp/127.0.0.1/9773; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let printed = host.run(&["bash", "-c", scrape])?;
    let series = "kvmlet_store_commit_duration_seconds_count ";
    let line = printed
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(series));
    let count = line.ok_or_else(|| anyhow::anyhow!("no commits are counted: {printed}"))?;
    Ok(count.trim().parse()?)
}

#[test]
fn manifests_that_say_what_they_said_before_are_not_written_again() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    host.sh(&format!(
        "printf '[metrics]\\nlisten = \"127.0.0.1:9773\"\\n' >>{CONFIG}"
    ))?;
    agent.start()?;
    let guest = GuestSpec::testguest("guest", "tests=none then=idle").without_devices();
    let files = [
        ("map", MAP.to_owned()),
        ("secret", SECRET.to_owned()),
        ("guest", guest.manifest()),
        (
            "machine",
            guest
                .machine("Halted")
                .replace("name: guest", "name: halted"),
        ),
    ];
    let put = || {
        files.iter().try_for_each(|(name, manifest)| {
            let path = format!("{MANIFESTS}/{name}.yaml");
            host.put(&path, 0o600, manifest.as_bytes())
        })
    };
    put()?;
    agent.wait_for_phase("guest", "Running", PATIENCE)?;
    host.wait_for("kvmctl get cm web && kvmctl get secret web", PATIENCE)?;
    let stopped =
        "test \"$(kvmctl get vm halted -o jsonpath='{.status.printableStatus}')\" = Stopped";
    host.wait_for(stopped, PATIENCE)?;
    // Whatever the agent has left to say of them is said by then.
    host.sh("sleep 2")?;
    let before = commits(&host)?;
    for _ in 0..5 {
        put()?;
        // Several scans of the directory see the file, each with the content of the one before.
        host.sh("sleep 0.3")?;
    }
    // The directory was read since: what is new in it is there, for the one write that it takes.
    let other = MAP.replace("name: web", "name: other");
    host.put(&format!("{MANIFESTS}/other.yaml"), 0o600, other.as_bytes())?;
    host.wait_for("kvmctl get cm other", PATIENCE)?;
    // A commit too many may come after the object: that none comes is observed for a while.
    host.sh("sleep 1")?;
    assert_eq!(commits(&host)? - before, 1);

    let versions = "for kind in cm secret vm; do kvmctl get $kind -o jsonpath='{.items[*].metadata.resourceVersion} '; done";
    let written = host.sh(versions)?;
    agent.kill()?;
    agent.start()?;
    // That an agent that has just started writes nothing is observed for a while.
    host.sh("sleep 2")?;
    assert_eq!(host.sh(versions)?, written);
    Ok(())
}
