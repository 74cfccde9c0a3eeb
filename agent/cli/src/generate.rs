//! What is generated from the command line's own description: completions of shells, and manual pages.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};

use crate::args::{Cli, Completion, ManualPages};
use crate::failure::Failure;
use crate::output::write_all;

/// Prints the completion of a shell.
pub fn completion(args: &Completion) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kvmctl", &mut script);
    write_all(&mut std::io::stdout().lock(), &script)
}

/// Writes `kvmctl.1` and a page for each verb.
pub fn manual_pages(args: &ManualPages) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    write_page(&args.directory, &command, "kvmctl")?;
    for verb in command.get_subcommands() {
        if !verb.is_hide_set() && verb.get_name() != "help" {
            write_page(
                &args.directory,
                verb,
                &format!("kvmctl-{}", verb.get_name()),
            )?;
        }
    }
    Ok(())
}

fn write_page(directory: &Path, command: &Command, name: &str) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    let failed = |error: std::io::Error| Failure::refused(format!("{}: {error}", path.display()));
    let page = clap_mangen::Man::new(command.clone())
        .title(name.to_uppercase())
        .section("1")
        .manual("kvmlet")
        .source(format!("kvmlet {}", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text).map_err(failed)?;
    fs::write(&path, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As wide as terminals are that nobody has made wider.
    const COLUMNS: usize = 80;

    #[test]
    fn examples_are_not_torn_over_lines() {
        for verb in Cli::command().get_subcommands() {
            let after = verb.get_after_help().map(ToString::to_string);
            let torn = after.iter().flat_map(|text| text.lines());
            let torn = torn.filter(|line| line.starts_with("  kvmctl") && line.len() > COLUMNS);
            assert_eq!(torn.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}
