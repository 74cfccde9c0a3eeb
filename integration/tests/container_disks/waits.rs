//! Guests that wait for a Secret.

use anyhow::{Context, ensure};
use integration::agent::{CONFIG, IMAGES};
use integration::commands::Commands;
use integration::host::Host;
use integration::{registry, skip_if};

use super::{PATIENCE, REGISTRY, guest, missing, prepared, wait_for_message};

/// Answers for Windows under a key, and a guest that is given them.
fn answers(key: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: answers}}\ndata: {{{key}: <unattend/>}}\n"
    )
}

const SEED: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: seed}\nstringData: {userdata: '#cloud-config'}\n";

#[test]
fn a_guest_waits_for_a_secret_that_is_not_there_and_says_which() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = prepared(&host)?;
    host.sh(&format!(
        "printf '%s' '\n[registries.\"{REGISTRY}\"]\ninsecure = true\n' >>{CONFIG}"
    ))?;
    agent.start()?;
    let local = format!("oci:{IMAGES}/disk");
    let seeded = guest("seeded", &local).replace(
        "\n  - name: data\n",
        "\n  - name: seed\n    cloudInitNoCloud: {secretRef: {name: seed}}\n  - name: data\n",
    );
    ensure!(seeded.contains("secretRef"), "{seeded}");
    agent.apply(&seeded)?;
    agent.apply(&answers("answers.xml"))?;
    let windows = guest("windows", &local).replace(
        "\n  - name: data\n",
        "\n  - name: answers\n    sysprep: {configMap: {name: answers}}\n  - name: data\n",
    );
    ensure!(windows.contains("sysprep"), "{windows}");
    agent.apply(&windows)?;
    let words =
        "Sysprep drive should contain autounattend.xml or unattend.xml but neither were found.";
    wait_for_message(&host, "default", "windows", &["FailedMount", words])
        .with_context(|| agent.log())?;
    let image = format!("{REGISTRY}/vm/disk:1");
    let private = guest("private", &image).replace("\"}\n", "\", imagePullSecret: registry}\n");
    ensure!(private.contains("imagePullSecret"), "{private}");
    agent.apply(&private)?;
    for (name, secret, reason) in [
        ("seeded", "seed", "FailedMount"),
        ("private", "registry", "FailedToRetrieveImagePullSecret"),
    ] {
        let words = format!("secret \\\"{secret}\\\" not found");
        wait_for_message(&host, "default", name, &[reason, &words]).with_context(|| agent.log())?;
        let phase = agent.value(name, ".status.phase")?;
        ensure!(phase != "Running", "{name} is {phase}");
    }

    // Nobody has to do more than to make them.
    agent.apply(SEED)?;
    agent.wait_for_phase("seeded", "Running", PATIENCE)?;
    agent.apply(&answers("Unattend.XML"))?;
    agent.wait_for_phase("windows", "Running", PATIENCE)?;
    agent.apply(&registry::pull_secret(REGISTRY, "default", "any"))?;
    // There is no registry; that it is asked is enough.
    host.wait_for(
        "kvmctl events --for vmi/private --types Warning | grep ErrImagePull",
        PATIENCE,
    )
    .with_context(|| agent.log())?;
    let deleted = agent.kvmctl("delete vmi seeded windows private --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}
