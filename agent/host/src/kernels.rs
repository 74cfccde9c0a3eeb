//! Kernels and initrds: found in their image, unpacked by an unprivileged child, kept by digest.

mod cache;
mod error;
mod eviction;
mod image;
mod layers;
mod lock;

use agent_domain::KernelBoot;
use agent_images::kernel::{KernelFormat, UnpackLimits, kernel_format};

use crate::beneath::AllowedPaths;
use crate::work::{ClosedElsewhere, Work, on_thread};
pub(crate) use cache::{KernelCache, KernelCacheSettings, PackedKernel};
pub(crate) use error::KernelError;
use image::BootFiles;
pub(crate) use image::open_layout;
pub(crate) use layers::{LayerReading, TakenFile, find_in_archive, read_layers};
pub(crate) use lock::shared;

/// Finds kernel and initrd of a VMI and unpacks the kernel where that is wanted and needed.
pub(crate) async fn boot_files(
    boot: &KernelBoot,
    allowed: &AllowedPaths,
    (cache, unpack): (&KernelCache, bool),
    work: &Work,
) -> Result<ClosedElsewhere<BootFiles>, KernelError> {
    let place = image::image_path(&boot.image);
    let found = image::find(boot, allowed, &cache.extracted_files(), work).await?;
    let initrd = ClosedElsewhere::new(found.initrd);
    let path = boot.kernel_path.display().to_string();
    let mut kernel = found.kernel;
    let (kernel, format) = work
        .files(place, move || {
            let format = kernel_format(&mut kernel);
            Ok::<_, KernelError>((kernel, format))
        })
        .await?;
    let mut kernel = ClosedElsewhere::new(kernel);
    let format = format.map_err(|source| KernelError::Format {
        path: path.clone(),
        source,
    })?;
    let needs_unpacking = match format {
        KernelFormat::Elf => false,
        KernelFormat::Compressed(_) => true,
        KernelFormat::BzImage(_) => unpack,
    };
    if needs_unpacking {
        let packed = PackedKernel {
            name: &path,
            place,
            max_bytes: UnpackLimits::default().input_bytes,
        };
        let unpacked = cache.unpacked(&packed, kernel, work).await?;
        kernel = ClosedElsewhere::new(unpacked);
    }
    Ok(ClosedElsewhere::new(BootFiles {
        kernel: kernel.into_inner(),
        initrd: initrd.into_inner(),
    }))
}

/// Runs what reads files on a thread that may wait.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, KernelError> + Send + 'static,
) -> Result<T, KernelError> {
    on_thread(call).await?
}
