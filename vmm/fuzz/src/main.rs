//! `vmm-fuzz`: a campaign on one target or on all, without a special compiler.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use vmm_fuzz::campaign::{self, Limit};
use vmm_fuzz::{TARGETS, Target, targets};

#[derive(Parser)]
#[command(about = "Runs programs by chance on fuzz targets, and says which of them fail.")]
struct Cli {
    /// One target; all of them, one after another, when it is left out.
    target: Option<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The same seed makes the same programs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs this program alone, such as one that failed before.
    #[arg(long, requires = "target")]
    program: Option<std::path::PathBuf>,
    /// Names the targets, and no more.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        for target in TARGETS {
            println!("{}", target.name);
        }
        return ExitCode::SUCCESS;
    }
    let chosen: Vec<Target> = match &cli.target {
        None => TARGETS.to_vec(),
        Some(name) => targets::find(name).into_iter().collect(),
    };
    if chosen.is_empty() {
        eprintln!("vmm-fuzz: there is no such target; --list names them");
        return ExitCode::FAILURE;
    }
    if let (Some(path), [target]) = (&cli.program, chosen.as_slice()) {
        return alone(*target, path);
    }
    let mut is_clean = true;
    for target in chosen {
        is_clean &= campaign(target, cli.seed, Duration::from_secs(cli.seconds));
    }
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn alone(target: Target, path: &std::path::Path) -> ExitCode {
    match std::fs::read(path) {
        Ok(program) => {
            (target.run)(&program);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("vmm-fuzz: {}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}

/// Whether nothing was found. What was found is kept beside the current directory's files.
fn campaign(target: Target, seed: u64, time: Duration) -> bool {
    let outcome = campaign::run(target, seed, Limit::Time(time));
    println!(
        "{}: {} executions, {} findings, seed {seed}",
        target.name,
        outcome.executions,
        outcome.findings.len()
    );
    for (number, finding) in outcome.findings.iter().enumerate() {
        let file = format!("finding-{}-{seed}-{number}", target.name);
        match std::fs::write(&file, &finding.program) {
            Ok(()) => println!("  {file}: {}", finding.what),
            Err(error) => println!("  {}; not kept: {error}", finding.what),
        }
    }
    outcome.findings.is_empty()
}
