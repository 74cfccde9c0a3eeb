//! `cargo xtask soak firmware`.

use std::fs::File;
use std::io::{Write, sink};
use std::path::{Path, PathBuf};

use anyhow::Context;
use integration::soak::firmware::{Firmware, life};
use integration::{skip, tools};

use crate::progress::step;

/// Through which firmware.
#[derive(clap::Args)]
pub struct FirmwareOptions {
    /// Only through this one; through both, one after the other, when it is left out.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Also write what the guests' consoles show to this file.
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Only {
    Bios,
    Uefi,
}

/// Runs the campaign and prints its steps and their times.
///
/// # Errors
/// At the first step that fails.
pub fn run(root: &Path, options: &FirmwareOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    tools::ensure(tools::FIRMWARE)?;
    step("build", || crate::build::run(root))?;
    let disk = crate::images::debian()?;
    let all = match options.only {
        None => Firmware::ALL.to_vec(),
        Some(Only::Bios) => vec![Firmware::Bios],
        Some(Only::Uefi) => vec![Firmware::Uefi],
    };
    let mut shown: Box<dyn Write> = match &options.console {
        None => Box::new(sink()),
        Some(path) => Box::new(File::create(path).with_context(|| path.display().to_string())?),
    };
    for firmware in all {
        let what = format!("Debian through {}", firmware.name());
        step(&what, || {
            life(firmware, &disk, &mut *shown, &mut |step, took| {
                println!("    {step}: {:.0} s", took.as_secs_f64());
            })
        })?;
    }
    println!("Debian came up, started again and powered off through each");
    Ok(())
}
