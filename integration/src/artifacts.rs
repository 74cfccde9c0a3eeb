//! The project's own programs, as cargo built them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The directory in which cargo put the binaries of this build: that of the running program, or its
/// parent for a test in `deps`. `KVMLET_ARTIFACTS` overrides it.
///
/// # Errors
/// When the running program's own path is unknown.
pub fn directory() -> anyhow::Result<PathBuf> {
    if let Some(set) = std::env::var_os("KVMLET_ARTIFACTS") {
        return Ok(PathBuf::from(set));
    }
    own_directory()
}

fn own_directory() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("the path of the running program")?;
    let directory = program.parent().context("a program without a directory")?;
    Ok(if directory.ends_with("deps") {
        directory
            .parent()
            .map(Path::to_path_buf)
            .context("deps without a parent")?
    } else {
        directory.to_path_buf()
    })
}

/// The profile of `Cargo.toml` that this build was made with. What is built for the running program is built with it too,
/// so that it lies in [`directory`].
///
/// # Errors
/// When the running program's own path is unknown.
pub fn profile() -> anyhow::Result<String> {
    let directory = own_directory()?;
    let name = directory.file_name().and_then(OsStr::to_str);
    let name = name.context("a build directory without a name")?;
    // Where cargo puts its `dev` profile.
    Ok(if name == "debug" { "dev" } else { name }.to_owned())
}

/// The path of the built program `name`.
///
/// # Errors
/// When it was not built yet; the error says how.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = directory()?.join(name);
    anyhow::ensure!(
        path.is_file(),
        "{} is missing; build it with `cargo xtask build`",
        path.display()
    );
    Ok(path)
}

/// The root of the clone.
///
/// # Errors
/// Never while the crate lies in the workspace.
pub fn workspace() -> anyhow::Result<PathBuf> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir
        .parent()
        .map(Path::to_path_buf)
        .context("the crate lies in no workspace")
}
