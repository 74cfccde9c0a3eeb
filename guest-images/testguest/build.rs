//! Hands the linker the guest's memory layout. Only the guest binary is linked that way; the
//! library's tests are ordinary host programs.

use std::error::Error;
use std::path::PathBuf;

/// The name of the script that says where what is.
const SCRIPT: &str = "link.ld";

fn main() -> Result<(), Box<dyn Error>> {
    // A copy beside what is built: a build directory that another clone goes on with names no file of
    // this one.
    let script = PathBuf::from(std::env::var("OUT_DIR")?).join(SCRIPT);
    std::fs::copy(SCRIPT, &script)?;
    println!("cargo:rerun-if-changed={SCRIPT}");
    for argument in [
        "-nostartfiles",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
        "-Wl,-z,max-page-size=4096",
    ] {
        println!("cargo:rustc-link-arg-bins={argument}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{}", script.display());
    Ok(())
}
