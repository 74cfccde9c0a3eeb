//! `cargo xtask soak clients`.

use std::path::Path;

use integration::skip;
use integration::soak::clients::{CLIENTS, Client, check_clients, failures, line};

use crate::progress::step;

/// The guests to be tried.
#[derive(clap::Args)]
pub struct ClientsOptions {
    /// This guest alone, by its name in the table; several times for several. All without it.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

/// Runs a campaign and prints its result.
///
/// # Errors
/// When a guest fails a check; the error names it, the check and what was seen.
pub(super) fn run(root: &Path, options: &ClientsOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    let chosen = chosen(&options.only)?;
    step("build", || crate::build::run(root))?;
    step("packages", || crate::package::for_tests(root))?;
    let rows = step("clients", || {
        check_clients(&chosen, &mut |said| eprintln!("    {said}"))
    })?;
    for row in &rows {
        println!("{}", line(row));
    }
    match failures(&rows) {
        Some(failures) => anyhow::bail!("{failures}"),
        None => Ok(()),
    }
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Client>> {
    let all = || CLIENTS.iter().map(|client| client.name);
    for name in names {
        let known: Vec<&str> = all().collect();
        anyhow::ensure!(
            all().any(|client| client == name),
            "there is no guest {name:?}, but {known:?}"
        );
    }
    let is_chosen =
        |client: &&Client| names.is_empty() || names.iter().any(|name| name == client.name);
    Ok(CLIENTS.iter().filter(is_chosen).collect())
}
