//! Hands the linker the guest's memory layout. Only the guest binary is linked that way; the
//! library's tests are ordinary host programs.

fn main() {
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rerun-if-changed=link.ld");
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
    println!("cargo:rustc-link-arg-bins=-Wl,-T,{directory}/link.ld");
}
