//! What a Secret holds, on its way through a real agent that says all it can: into the ledger, its log, events, traces
//! and metrics, and to callers who may only look.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use integration::agent::{Agent, CONFIG, GuestSpec, LOG, MANIFESTS};
use integration::commands::{Commands, Output};
use integration::host::{self, Host};
use integration::skip_if;

use super::collector::Collector;
use super::{PATIENCE, scraped};

/// Who may look and no more.
const VIEWER: u32 = 1000;

/// A confidential text that nothing else contains.
struct Value(String);

impl Value {
    fn random(host: &Host) -> anyhow::Result<Self> {
        let uuid = host.sh("cat /proc/sys/kernel/random/uuid")?;
        Ok(Self(format!("sesame-{}", uuid.trim())))
    }

    /// The text as itself, and as what programs make of bytes: base64 of a text around it, lists of numbers, hexadecimal.
    fn forms(&self) -> Vec<String> {
        let text = self.0.as_bytes();
        let mut forms = vec![self.0.clone(), self.0.to_uppercase()];
        for before in 0..3_usize {
            // Digits of base64 that bytes around the text have a part in are left out.
            let padded = [vec![b' '; before], text.to_vec()].concat();
            let first = (before * 8).div_ceil(6);
            let last = padded.len() * 8 / 6;
            for digits in [
                STANDARD_NO_PAD.encode(&padded),
                URL_SAFE_NO_PAD.encode(&padded),
            ] {
                forms.push(digits[first..last].to_owned());
            }
        }
        let decimal: Vec<String> = text.iter().map(u8::to_string).collect();
        forms.extend([decimal.join(", "), decimal.join(",")]);
        forms.push(text.iter().map(|byte| format!("{byte:02x}")).collect());
        forms
    }

    fn base64(&self) -> String {
        STANDARD.encode(&self.0)
    }

    fn is_in(&self, text: &str) -> bool {
        self.forms().iter().any(|form| text.contains(form))
    }
}

/// Where Secrets come from. Each has a value of its own, so that a value that is found says by which way it came.
struct Values {
    created: Value,
    applied: Value,
    annotated: Value,
    file: Value,
    /// What is refused bears these.
    refused: [Value; 4],
}

impl Values {
    fn random(host: &Host) -> anyhow::Result<Self> {
        let value = || Value::random(host);
        Ok(Self {
            created: value()?,
            applied: value()?,
            annotated: value()?,
            file: value()?,
            refused: [value()?, value()?, value()?, value()?],
        })
    }

    fn all(&self) -> Vec<(&'static str, &Value)> {
        let mut all = vec![
            ("created", &self.created),
            ("applied", &self.applied),
            ("annotated", &self.annotated),
            ("of a file", &self.file),
        ];
        all.extend(self.refused.iter().map(|value| ("refused", value)));
        all
    }
}

fn secret(name: &str, members: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\n{members}\n")
}

/// Manifests of Secrets that nobody takes, each with a value where the reason to refuse it is.
fn refused([no_base64, no_text, unknown, no_yaml]: &[Value; 4]) -> [(&'static str, String); 4] {
    [
        (
            "no-base64",
            secret(
                "no-base64",
                &format!("data: {{password: '!{}'}}", no_base64.0),
            ),
        ),
        (
            "no-text",
            secret(
                "no-text",
                &format!("stringData: {{password: [{}]}}", no_text.0),
            ),
        ),
        (
            "unknown",
            secret(
                "unknown",
                &format!("passwords: {{password: {}}}", unknown.0),
            ),
        ),
        (
            "no-yaml",
            secret(
                "no-yaml",
                &format!("stringData: {{password: {}]}}", no_yaml.0),
            ),
        ),
    ]
}

/// A guest with what a Secret holds on a volume.
fn guest(name: &str, secret: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=tick")
        .manifest()
        .replace(
            "emptyDisk:\n      capacity: 16Mi",
            &format!("cloudInitNoCloud:\n      secretRef: {{name: {secret}}}"),
        )
}

struct Setup<'h> {
    host: &'h Host,
    agent: Agent<'h, Host>,
}

impl<'h> Setup<'h> {
    fn start(host: &'h Host, socket: &std::path::Path) -> anyhow::Result<Self> {
        let agent = Agent::prepare(host)?;
        agent.add_image("/run/bin/testguest", "testguest")?;
        let config = format!(
            "[tracing]\nendpoint = \"unix:{}\"\n[metrics]\nlisten = \"127.0.0.1:9773\"\n[log]\nlevel = \"trace\"\n\
             [[grants]]\nrole = \"view\"\nusers = [\"{VIEWER}\"]\n",
            socket.display()
        );
        host.sh(&format!(
            "cat >> {CONFIG} <<'END'\n{config}END\nchmod 755 /run"
        ))?;
        agent.start()?;
        Ok(Self { host, agent })
    }

    /// `kvmctl` of a caller that may do all.
    fn admin(&self, arguments: &str) -> anyhow::Result<String> {
        let output = self.agent.kvmctl(arguments)?;
        ensure!(output.code == Some(0), "kvmctl {arguments}: {output}");
        Ok(output.stdout)
    }

    /// `kvmctl` of a caller that may only read.
    fn viewer(&self, arguments: &str) -> anyhow::Result<Output> {
        let script = format!(
            "setpriv --reuid {VIEWER} --regid {VIEWER} --clear-groups env HOME=/ kvmctl {arguments}"
        );
        self.host.run_for(&["sh", "-c", &script], PATIENCE)
    }

    fn put(&self, manifest: &str) -> anyhow::Result<()> {
        self.host
            .put("/run/kvmlet-test/secret.yaml", 0o600, manifest.as_bytes())
    }

    /// Secrets by all ways, and guests that use them.
    fn use_all(&self, values: &Values) -> anyhow::Result<()> {
        let seed = |value: &Value| format!("stringData: {{userdata: \"password: {}\"}}", value.0);
        self.put(&secret("created", &seed(&values.created)))?;
        self.admin("create -f /run/kvmlet-test/secret.yaml")?;
        // Applied twice, for what was applied last to be read and written again.
        for members in ["", "\ntype: Opaque"] {
            let manifest = secret("applied", &format!("{}{members}", seed(&values.applied)));
            self.agent.apply(&manifest)?;
        }
        let last = format!(
            "{{\"kind\":\"Secret\",\"stringData\":{{\"password\":\"{}\"}}}}",
            values.annotated.0
        );
        let annotation = "kubectl.kubernetes.io/last-applied-configuration";
        let annotated = secret("annotated", "data: {}").replace(
            "{name: annotated}",
            &format!("{{name: annotated, annotations: {{{annotation}: '{last}'}}}}"),
        );
        self.put(&annotated)?;
        self.admin("create -f /run/kvmlet-test/secret.yaml")?;
        let file = format!("data: {{userdata: {}}}", values.file.base64());
        let file = secret("file", &format!("{file}\n"));
        self.host
            .put(&format!("{MANIFESTS}/secret.yaml"), 0o600, file.as_bytes())?;
        for name in ["created", "applied", "file"] {
            let guest = guest(name, name);
            self.agent.apply(&guest)?;
            self.agent.wait_for_phase(name, "Running", PATIENCE)?;
        }
        Ok(())
    }

    /// Secrets that are refused, over gRPC and as files.
    fn refuse_all(&self, values: &Values) -> anyhow::Result<()> {
        for (name, manifest) in refused(&values.refused) {
            self.put(&manifest)?;
            for verb in ["create", "apply", "replace"] {
                let output = self
                    .agent
                    .kvmctl(&format!("{verb} -f /run/kvmlet-test/secret.yaml"))?;
                ensure!(output.code != Some(0), "{name}: {output}");
            }
            let path = format!("{MANIFESTS}/{name}.yaml");
            self.host.put(&path, 0o600, manifest.as_bytes())?;
            let reported = format!("kvmctl get events -A -o json | grep -q '{name}'");
            self.host
                .wait_for(&reported, PATIENCE)
                .with_context(|| format!("no event of {name}: {}", self.agent.log()))?;
        }
        Ok(())
    }

    /// All answers that callers get who may only look, and what no caller gets of values.
    fn read_all(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut printed = Vec::new();
        for name in ["created", "applied", "annotated", "file"] {
            let secret = format!("get secret {name} -o yaml");
            let output = self.viewer(&secret)?;
            ensure!(output.code == Some(1), "{output}");
            printed.push((secret, output.to_string()));
            let described = format!("describe secret {name}");
            printed.push((described.clone(), self.viewer(&described)?.to_string()));
            printed.push((described.clone(), self.admin(&described)?));
            let annotations = format!("get secret {name} -o jsonpath='{{.metadata}}'");
            printed.push((annotations.clone(), self.admin(&annotations)?));
        }
        for arguments in [
            "get secrets",
            "get secrets -A -o json",
            "get vmi -A -o yaml",
            "describe vmi created",
            "describe node",
            "why applied",
            "events -A",
            "get events -A -o json",
            "get nodes -o json",
            "get all -A",
            "top",
            "version -o json",
        ] {
            printed.push((arguments.to_owned(), self.viewer(arguments)?.to_string()));
        }
        for arguments in [
            "get secrets",
            "describe vmi created",
            "get vmi -A -o json",
            "get events -A -o json",
            "why file",
        ] {
            printed.push((arguments.to_owned(), self.admin(arguments)?));
        }
        let watch = "sh -c 'timeout 3 kvmctl get secrets -A -w -o json; timeout 3 kvmctl get events -A -w -o json; true'";
        let watch = format!(
            "setpriv --reuid {VIEWER} --regid {VIEWER} --clear-groups env HOME=/ {watch} 2>&1"
        );
        printed.push((watch.clone(), self.host.sh(&watch)?));
        printed.push((String::from("metrics"), scraped(self.host)?));
        let arguments =
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' ' '; true";
        printed.push((
            String::from("arguments of processes"),
            self.host.sh(arguments)?,
        ));
        Ok(printed)
    }

    /// The files of the agent and of its run directory that hold a value in any form.
    fn files_with(&self, value: &Value) -> anyhow::Result<BTreeSet<String>> {
        let patterns: Vec<String> = value.forms();
        self.host.put(
            "/run/kvmlet-test/patterns",
            0o600,
            (patterns.join("\n") + "\n").as_bytes(),
        )?;
        let found = self.host.sh(
            "grep -r -l -a -F -f /run/kvmlet-test/patterns /var/lib/kvmlet /run/kvmlet; true",
        )?;
        Ok(found.lines().map(str::to_owned).collect())
    }

    fn stop(&self) -> anyhow::Result<()> {
        // A shell cannot wait for a process that is not its child, so it looks again.
        self.host
            .sh("pid=$(pidof kvmlet) && kill -TERM $pid && while kill -0 $pid 2>/dev/null; do sleep 0.05; done")
            .map(drop)
    }
}

/// Fails where any answer, log or file bears a value.
fn refuse_values(values: &Values, printed: &[(String, String)]) -> anyhow::Result<()> {
    for (what, text) in printed {
        for (which, value) in values.all() {
            ensure!(
                !value.is_in(text),
                "the value {which} is in {what}:\n{text}"
            );
        }
    }
    Ok(())
}

#[test]
fn what_a_secret_holds_is_found_nowhere_but_where_its_owner_may_read_it() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let socket = host.directory().join("otel.sock");
    let mut collector = Collector::start(&socket)?;
    let setup = Setup::start(&host, &socket)?;
    let values = Values::random(&host)?;
    setup.use_all(&values)?;
    setup.refuse_all(&values)?;
    refuse_values(&values, &setup.read_all()?)?;

    // Its owner reads it, also after the next agent has read it again; what finds it there would find it elsewhere.
    setup.agent.kill()?;
    setup.agent.start()?;
    for (name, value) in [
        ("created", &values.created),
        ("applied", &values.applied),
        ("file", &values.file),
    ] {
        let yaml = setup.admin(&format!("get secret {name} -o yaml"))?;
        ensure!(value.is_in(&yaml), "{yaml}");
    }
    // What was applied last is no place for values: of a caller's own annotation the keys are left.
    let annotated = setup.admin("get secret annotated -o yaml")?;
    let keys = r#"\"stringData\":{\"password\":\"\"}"#;
    ensure!(annotated.contains(keys), "{annotated}");
    refuse_values(&values, &setup.read_all()?)?;
    setup.admin("delete vmi applied --grace-period 0")?;
    setup.admin("delete secret applied")?;
    setup.stop()?;
    collector.drain();
    ensure!(!collector.spans.is_empty(), "there are traces");
    let spans = format!("{:#?}", collector.spans);
    let log = host.sh(&format!("cat {LOG}"))?;
    ensure!(
        log.contains("TRACE") && log.contains("DEBUG"),
        "the log says all it can"
    );
    let printed = [
        (String::from("traces"), spans),
        (String::from("the log"), log),
    ];
    refuse_values(&values, &printed)?;

    // Of all files, volumes of running guests have it, and manifests of the administrator's.
    for (which, value) in values.all() {
        for path in setup.files_with(value)? {
            let is_volume =
                path.starts_with("/var/lib/kvmlet/host/disks/") && path.ends_with(".iso");
            ensure!(
                is_volume || path.starts_with(MANIFESTS),
                "the value {which} is in {path}"
            );
            let mode = host.sh(&format!("stat -c %a {path}"))?;
            ensure!(mode.trim().ends_with("00"), "{path} has mode {mode}");
        }
    }
    for value in [&values.created, &values.file] {
        let found = setup.files_with(value)?;
        ensure!(!found.is_empty(), "a guest has it on a volume");
    }
    Ok(())
}
