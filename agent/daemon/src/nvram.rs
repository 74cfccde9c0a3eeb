//! `kvmlet nvram`: what UEFI firmware remembers for VMIs with `efi.persistent`.

use std::io::Write;
use std::process::ExitCode;

use agent_host::{KeptVariables, kept_variables, remove_kept_variables};
use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::config::Config;
use crate::facts;

/// What is done with it.
#[derive(Debug, Subcommand)]
pub(crate) enum NvramCommand {
    /// Say for which VMIs something is remembered
    #[command(after_help = "Example:\n  kvmlet nvram list")]
    List {
        /// How it is printed
        #[arg(short, long, value_enum, default_value = "table")]
        output: Output,
    },
    /// Forget it: the firmware of the next VMI of that name begins anew
    #[command(
        after_help = "Refused while a guest that runs has it.\n\nExample:\n  kvmlet nvram remove default/web"
    )]
    Remove {
        /// The VMI, as NAMESPACE/NAME
        #[arg(value_name = "NAMESPACE/NAME")]
        vmi: String,
    },
}

/// How the list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// A line for each
    Table,
    /// One JSON list
    Json,
}

/// Carries out the command.
pub(crate) fn run(config: &Config, command: &NvramCommand) -> anyhow::Result<ExitCode> {
    let state = facts::host_state_dir(config);
    let text = match command {
        NvramCommand::List { output } => {
            let kept = kept_variables(&state).map_err(|(path, error)| {
                anyhow::Error::new(error).context(path.display().to_string())
            })?;
            match output {
                Output::Table => table(&kept)?,
                Output::Json => format!("{:#}\n", list(&kept)?),
            }
        }
        NvramCommand::Remove { vmi } => {
            let Some((namespace, name)) = vmi.split_once('/') else {
                bail!("{vmi:?} is not NAMESPACE/NAME, such as default/web");
            };
            remove_kept_variables(&state, namespace, name)?;
            format!("variables of {vmi} removed\n")
        }
    };
    // Nobody reads on: what was done is done all the same.
    drop(std::io::stdout().write_all(text.as_bytes()));
    Ok(ExitCode::SUCCESS)
}

fn written(kept: &KeptVariables) -> anyhow::Result<String> {
    let at = Timestamp::try_from(kept.written).context("a time that is none")?;
    Ok(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn table(kept: &[KeptVariables]) -> anyhow::Result<String> {
    let width = kept
        .iter()
        .map(|kept| kept.namespace.len() + 1 + kept.name.len());
    let width = width.max().unwrap_or_default().max("VMI".len());
    let mut text = format!(
        "{:<width$}  {:>8}  {:<20}  IN USE\n",
        "VMI", "BYTES", "LAST WRITTEN"
    );
    for kept in kept {
        let vmi = format!("{}/{}", kept.namespace, kept.name);
        let (written, in_use) = (written(kept)?, if kept.in_use { "yes" } else { "no" });
        text.push_str(&format!(
            "{vmi:<width$}  {:>8}  {written:<20}  {in_use}\n",
            kept.bytes
        ));
    }
    Ok(text)
}

fn list(kept: &[KeptVariables]) -> anyhow::Result<Value> {
    let object = |kept: &KeptVariables| {
        Ok(json!({
            "namespace": kept.namespace,
            "name": kept.name,
            "bytes": kept.bytes,
            "lastWritten": written(kept)?,
            "inUse": kept.in_use,
        }))
    };
    kept.iter().map(object).collect()
}
