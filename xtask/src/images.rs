//! `cargo xtask images`: makes everything that tests and demo boot, and says where it lies.

use integration::image::kernel::StockKernel;
use integration::image::{busybox, kernel, rootfs, tools_disk};

use crate::progress::step;

/// Makes all images and gives the kernel in them; with `refresh` takes the newest stock kernel that apt knows.
///
/// # Errors
/// When one can not be made.
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
    Ok(kernel)
}
