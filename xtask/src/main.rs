//! `cargo xtask`: demo, test, check, layers, gen, images, node, bench, build.
//!
//! Owns how the project is built, proved and shown on a developer's machine and in CI. What boots
//! nodes and makes images is in the `integration` library; here are only the commands.

#![forbid(unsafe_code)]

mod r#gen;
mod workspace;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds, proves and shows kvmlet.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the code that derives from the .proto files.
    Gen {
        /// Write nothing; fail when what is checked in differs from what would be written.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let root = workspace::root()?;
    match cli.command {
        Command::Gen { check } => r#gen::run(&root, check),
    }
}
