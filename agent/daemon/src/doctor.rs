//! `kvmlet doctor`: what this node has for guests and what it lacks, for people and for
//! `kvmctl validate --node`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use agent_domain::{CommonRelease, Lack, NodeCaps, PathRules};
use agent_host::{DHCP_PROGRAM, Finding, Health, NodeFacts, Patient, examine, find_program};
use anyhow::Context;
use serde_json::{Value, json};

use crate::config::Config;
use crate::{facts, memory};

/// How findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// One JSON object.
    Json,
}

/// Looks, and says what was seen. Fails when something was found without which guests cannot run.
pub(crate) fn run(config: &Config, output: Option<Output>) -> anyhow::Result<ExitCode> {
    let facts = NodeFacts::collect().context("this node cannot be inspected")?;
    let mut findings = examine(&Patient {
        vmm_program: config.vmm.program.clone(),
        dhcp_program: find_program(DHCP_PROGRAM),
        state_dir: config.state_dir.clone(),
        paths: facts::path_rules(config),
        bridges: facts::bridges(config),
        pod_network: facts::pod_network(config),
        authorities: facts::authorities(config),
        firmware: facts::firmware(config),
    });
    findings.push(memory::finding(Path::new("/")));
    let text = match output {
        Some(Output::Json) => {
            let caps = facts::caps(config, &facts);
            format!(
                "{:#}\n",
                whole(&caps, config.instancetypes.common(), &findings)
            )
        }
        None => table(&findings),
    };
    // Nobody reads on: what was found is the answer all the same.
    drop(std::io::stdout().write_all(text.as_bytes()));
    let sick = findings
        .iter()
        .any(|finding| finding.health == Health::Fail);
    Ok(if sick {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// One line for each finding, and under it the way out.
fn table(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.check.len())
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for finding in findings {
        let (health, check) = (finding.health.as_str(), finding.check);
        text.push_str(&format!(
            "{health:<4}  {check:<width$}  {}\n",
            finding.message
        ));
        if !finding.way_out.is_empty() {
            text.push_str(&format!(
                "{:<4}  {:<width$}  way out: {}\n",
                "", "", finding.way_out
            ));
        }
    }
    text
}

fn whole(caps: &NodeCaps, common: Option<CommonRelease>, findings: &[Finding]) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            json!({
                "check": finding.check,
                "health": finding.health.as_str(),
                "message": finding.message,
                "wayOut": finding.way_out,
            })
        })
        .collect();
    json!({
        "findings": findings,
        "node": {
            "name": caps.node_name,
            "architecture": caps.architecture,
            "maxVcpus": caps.max_vcpus,
            "memoryBytes": caps.memory_bytes,
            "networks": caps.networks,
            "paths": path_rules(&caps.paths),
            // What kvmctl of earlier releases reads.
            "allowedDirs": caps.paths.roots().collect::<Vec<_>>(),
            "allowedDirsSetting": caps.paths.setting,
            "podNetwork": caps.pod_network.map(|pool| format!("{}/{}", pool.network, pool.prefix)),
            "labels": caps.labels,
            "refuseSubstitution": caps.refuse_substitution,
            "commonInstancetypes": common.map_or("none", CommonRelease::as_str),
            "lacksBios": caps.firmware.bios.as_ref().map(lack),
            "lacksEfi": caps.firmware.efi.as_ref().map(lack),
        },
    })
}

fn path_rules(rules: &PathRules) -> Value {
    let grants = rules.grants.iter();
    let grants = grants.map(|grant| json!({"path": grant.path, "namespaces": grant.namespaces}));
    json!({
        "disks": rules.disks,
        "boot": rules.boot,
        "grants": grants.collect::<Vec<_>>(),
        "setting": rules.setting,
    })
}

fn lack(lack: &Lack) -> Value {
    json!({"why": lack.why, "wayOut": lack.way_out})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_stand_in_columns_and_the_way_out_under_them() {
        let finding = |check, health, way_out: &str| Finding {
            check,
            health,
            message: String::from("seen"),
            way_out: way_out.to_owned(),
        };
        let findings = [
            finding("kvm", Health::Ok, ""),
            finding("hugepages", Health::Warn, "reserve some"),
        ];
        assert_eq!(
            table(&findings),
            "ok    kvm        seen\n\
             warn  hugepages  seen\n                 way out: reserve some\n"
        );
    }
}
