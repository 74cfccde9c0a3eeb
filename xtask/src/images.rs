//! `cargo xtask images`: makes what tests, demo and campaigns boot, and says where it lies.

use integration::image::kernel::StockKernel;
use integration::image::{busybox, debian_disk, kernel, rootfs, tools_disk};

use crate::progress::step;

/// As [`run`]; with `debian` the Debian disk, too, which takes longer than all others.
///
/// # Errors
/// When one cannot be made.
pub fn all(refresh: bool, debian: bool) -> anyhow::Result<()> {
    run(refresh)?;
    if debian {
        self::debian()?;
    }
    Ok(())
}

/// Makes the Debian disk.
///
/// # Errors
/// When it cannot be made.
pub fn debian() -> anyhow::Result<debian_disk::DebianDisk> {
    let disk = step("Debian disk", debian_disk::debian_disk)?;
    eprintln!("    {}, {}", disk.raw.display(), disk.qcow2.display());
    Ok(disk)
}

/// Makes the small cloud image's disk.
///
/// # Errors
/// When it cannot be made.
pub fn cloud() -> anyhow::Result<debian_disk::DebianDisk> {
    let disk = step("small cloud image", debian_disk::cloud_disk)?;
    eprintln!("    {}", disk.qcow2.display());
    Ok(disk)
}

/// Makes what tests, demo and benchmarks boot, and gives the kernel in it; with `refresh` takes the newest stock
/// kernel that apt knows.
///
/// # Errors
/// When one cannot be made.
pub fn run(refresh: bool) -> anyhow::Result<StockKernel> {
    let kernel = step("stock kernel", || {
        if refresh {
            kernel::refresh()
        } else {
            kernel::stock()
        }
    })?;
    eprintln!("    {} in {}", kernel.release, kernel.directory.display());
    let guest = step("busybox guest", busybox::guest)?;
    eprintln!("    {}", guest.directory.display());
    let generic = step("generic guest", busybox::generic_guest)?;
    eprintln!("    {}", generic.directory.display());
    let initramfs = step("node initramfs", || busybox::node(&kernel))?;
    eprintln!("    {}", initramfs.display());
    let root = step("systemd node", || rootfs::systemd(&kernel))?;
    eprintln!("    {}", root.display());
    let tools = step("tools disk", || tools_disk::tools_disk(&kernel))?;
    eprintln!("    {}", tools.display());
    cloud()?;
    Ok(kernel)
}
