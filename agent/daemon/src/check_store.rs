//! `kvmlet check-store`: whether the ledger is sound.

use std::io::Write;
use std::process::ExitCode;

use agent_store::Ledger;

use crate::config::Config;
use crate::service;

/// Says what the ledger holds, and each thing that is wrong with it.
pub(crate) fn run(config: &Config) -> anyhow::Result<ExitCode> {
    let path = service::ledger_file(config);
    let checked = Ledger::check(&path)?;
    let mut out = std::io::stdout().lock();
    for problem in &checked.problems {
        writeln!(out, "{problem}")?;
    }
    let outcome = match checked.wrong {
        0 => String::from("sound"),
        wrong => format!("{wrong} things are wrong with it"),
    };
    writeln!(
        out,
        "{}: format {}, version {}, {} objects, {} records, {} changes, {} assignments: {outcome}",
        path.display(),
        checked.format,
        checked.version,
        checked.objects,
        checked.records,
        checked.changes,
        checked.assignments,
    )?;
    Ok(if checked.wrong == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
