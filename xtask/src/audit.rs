//! `cargo xtask audit`: known vulnerabilities of what is linked in, and the licences and sources of it.
//!
//! The tests need no network, so this is a command of its own: it wants a copy of RustSec's advisory database that is not
//! old. `cargo xtask check` runs the rest of it where cargo-deny is installed already.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use integration::process::{self, cargo};
use integration::{cache, tools};

use crate::progress::step;

/// The version that is installed. [`DATABASE`] belongs to it.
const CARGO_DENY: &str = "0.20.2";

/// The advisory database.
const ADDRESS: &str = "https://github.com/RustSec/advisory-db";

/// The directory below `db-path` in which cargo-deny looks for the database: the last part of its address, and a hash of
/// the address.
const DATABASE: &str = "advisory-db-3157b0e258782691";

/// A database whose last commit is older knows too little.
const OLDEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What needs no database.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

/// Options of `cargo xtask audit`.
#[derive(clap::Args)]
pub struct AuditOptions {
    /// A clone of the advisory database. Left out: `advisory-db` in the cache directory.
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
}

/// Judges all dependencies.
///
/// # Errors
/// When the database is absent or too old, cargo-deny cannot be installed, or a dependency is refused.
pub fn run(root: &Path, options: &AuditOptions) -> anyhow::Result<()> {
    let database = match &options.db {
        Some(path) => std::path::absolute(path)?,
        None => cache::root().join("advisory-db"),
    };
    step("advisory database", || {
        let age = age_of(&database, SystemTime::now())?;
        eprintln!(
            "    {}: its last commit is {} days old",
            database.display(),
            age.as_secs() / (24 * 60 * 60)
        );
        Ok(())
    })?;
    let cargo_deny = step("cargo-deny", || install(root))?;
    step("audit", || {
        let directory = tempfile::tempdir()?;
        let config = config(root, &database, directory.path())?;
        let mut command = Command::new(cargo_deny);
        command
            .current_dir(root)
            .args(["--offline", "--config"])
            .arg(config)
            .args(["check", "advisories"])
            .args(OFFLINE);
        process::stream(&mut command)
    })
}

/// Bans, licences and sources, where cargo-deny is there; says so where it is not.
///
/// # Errors
/// When a dependency is refused.
pub fn offline(root: &Path) -> anyhow::Result<()> {
    let program = if installed().is_file() {
        installed()
    } else if tools::is_there("cargo-deny") {
        PathBuf::from("cargo-deny")
    } else {
        eprintln!(
            "==> bans, licences and sources of dependencies: SKIPPED, cargo-deny is not installed (cargo xtask audit \
             installs it)"
        );
        return Ok(());
    };
    step("bans, licences and sources of dependencies", || {
        let mut command = Command::new(program);
        command.current_dir(root).arg("check").args(OFFLINE);
        process::stream(&mut command)
    })
}

/// How old a database is at `now`, by its last commit: a fresh clone of a mirror that stands still is old.
fn age_of(database: &Path, now: SystemTime) -> anyhow::Result<Duration> {
    let way_out = || {
        let path = database.display();
        format!("get one: git clone --depth 1 {ADDRESS} {path}, or name another by --db")
    };
    anyhow::ensure!(
        database.join("crates").is_dir(),
        "{} holds no advisory database; {}",
        database.display(),
        way_out()
    );
    let mut last = Command::new("git");
    last.arg("-C")
        .arg(database)
        .args(["log", "-1", "--format=%ct"]);
    let last = process::output(&mut last)
        .with_context(|| format!("{} is no clone; {}", database.display(), way_out()))?;
    let last: u64 = last.trim().parse().context("a time of git")?;
    let last = UNIX_EPOCH + Duration::from_secs(last);
    // A clock that is behind makes nothing old.
    let age = now.duration_since(last).unwrap_or_default();
    anyhow::ensure!(
        age <= OLDEST,
        "the last commit of the advisory database {} is {} days old, and may be {}: git -C {0} pull",
        database.display(),
        age.as_secs() / (24 * 60 * 60),
        OLDEST.as_secs() / (24 * 60 * 60)
    );
    Ok(age)
}

/// The project's configuration, with the database where cargo-deny looks for it.
fn config(root: &Path, database: &Path, directory: &Path) -> anyhow::Result<PathBuf> {
    let ours = root.join("deny.toml");
    let ours = fs::read_to_string(&ours).with_context(|| ours.display().to_string())?;
    anyhow::ensure!(
        !ours.lines().any(|line| line.starts_with("[advisories")),
        "deny.toml has a table [advisories]: it is made by cargo xtask audit"
    );
    let link = directory.join(DATABASE);
    symlink(database, &link).with_context(|| link.display().to_string())?;
    let path = directory.join("deny.toml");
    // Which releases were taken back only the registry knows.
    let text = format!(
        "{ours}\n[advisories]\ndb-path = \"{}\"\ndb-urls = [\"{ADDRESS}\"]\nmaximum-db-staleness = \"P30D\"\n\
         disable-yank-checking = true\n",
        directory.display()
    );
    fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn directory() -> PathBuf {
    cache::root()
        .join("tools")
        .join(format!("cargo-deny-{CARGO_DENY}"))
}

fn installed() -> PathBuf {
    directory().join("bin/cargo-deny")
}

/// cargo-deny, installed beside the images where it is not there.
fn install(root: &Path) -> anyhow::Result<PathBuf> {
    let (directory, program) = (directory(), installed());
    if program.is_file() {
        return Ok(program);
    }
    let _held = cache::lock("cargo-deny")?;
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    let mut install = cargo(root);
    install
        .args(["install", "cargo-deny", "--version", CARGO_DENY, "--locked"])
        .arg("--root")
        .arg(&directory)
        .arg("--target-dir")
        .arg(directory.join("build"))
        // Our own flags are for what is shipped.
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir("/");
    process::stream(&mut install)?;
    fs::remove_dir_all(directory.join("build")).context("what cargo-deny was built of stays")?;
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone_of(committed: Duration) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("crates")).expect("is made");
        let date = format!("@{} +0000", committed.as_secs());
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command
                .arg("-C")
                .arg(directory.path())
                .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
                .args(arguments)
                .envs([("GIT_COMMITTER_DATE", &date), ("GIT_AUTHOR_DATE", &date)]);
            process::output(&mut command).expect("git works");
        };
        git(&["init", "--quiet"]);
        git(&["commit", "--quiet", "--allow-empty", "--message", "one"]);
        directory
    }

    #[test]
    fn a_database_that_is_absent_or_old_is_refused_with_the_way_out() {
        let day = Duration::from_secs(24 * 60 * 60);
        let committed = 20_000 * day;
        let database = clone_of(committed);
        let at = |days| age_of(database.path(), UNIX_EPOCH + committed + days * day);
        assert_eq!(at(29).expect("is fresh"), 29 * day);
        let old = at(31).expect_err("is old").to_string();
        assert!(old.contains("31 days old, and may be 30"), "{old}");
        let now = SystemTime::now();
        let empty = tempfile::tempdir().expect("a directory");
        let absent = age_of(empty.path(), now)
            .expect_err("is absent")
            .to_string();
        assert!(absent.contains("git clone --depth 1"), "{absent}");
    }

    #[test]
    fn the_configuration_has_the_database_where_cargo_deny_looks_for_it() {
        let (root, database) = (crate::workspace::root().expect("here"), Path::new("/db"));
        let directory = tempfile::tempdir().expect("a directory");
        let path = config(&root, database, directory.path()).expect("is made");
        let text = fs::read_to_string(path).expect("is there");
        assert!(
            text.contains("[licenses]") && text.contains("[advisories]"),
            "{text}"
        );
        let link = fs::read_link(directory.path().join(DATABASE)).expect("a link");
        assert_eq!(link, database);
    }
}
