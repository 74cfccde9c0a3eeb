//! Requests on an image with a base, carried out at once.

use vmm_sys::image::{self, PUNCH_HOLE};

use super::backend::{ANY, Backend, is_unsupported};
use super::failure::Failure;
use super::overlay::Layer;
use super::request::{Extent, Refusal, Request};
use crate::virtio::queue::{Buffer, copy_in, window};
use vmm_memory::GuestRam;

/// What a block has beyond the base's end.
static ZEROS: [u8; 4096] = [0; 4096];

impl Backend {
    /// Reads an extent run by run, each from the file that has it.
    pub(super) fn read_overlaid(
        &mut self,
        memory: &GuestRam,
        buffers: &[Buffer],
        extent: Extent,
    ) -> Result<(), Failure> {
        let mut rest = extent;
        while rest.bytes > 0 {
            let Some(overlay) = &self.overlay else {
                return Err(Failure::SHORT);
            };
            let (layer, run) = overlay.first_run(rest);
            let here: Vec<Buffer> =
                window(buffers, run.offset - extent.offset, run.bytes).collect();
            match layer {
                Layer::Image | Layer::Base => {
                    self.transfer_in(memory, &here, (layer, run), true)?;
                }
                Layer::Zeros => give_zeros(memory, &here, run.bytes)?,
            }
            rest = rest.after(run.bytes);
        }
        Ok(())
    }

    /// Writes an extent, and what is missing of its first and last block before it.
    pub(super) fn write_overlaid(
        &mut self,
        memory: &GuestRam,
        buffers: &[Buffer],
        extent: Extent,
    ) -> Result<(), Failure> {
        self.fill_torn(extent)?;
        self.transfer_in(memory, buffers, (Layer::Image, extent), false)?;
        self.mark(extent);
        Ok(())
    }

    /// A discard hides the base where it covers blocks. What it covers in part, and is not in the image, it
    /// leaves alone, and all of it where the host gives no space back: it is a hint.
    pub(super) fn discard_overlaid(&mut self, extent: Extent) -> Result<(), Failure> {
        let Some(overlay) = &self.overlay else {
            return Ok(());
        };
        let whole = overlay.untorn(extent);
        if whole.bytes == 0 {
            return Ok(());
        }
        // The image may have what a write that failed left there.
        match image::allocate(&self.image, PUNCH_HOLE, whole.offset, whole.bytes) {
            Ok(()) => {
                self.mark(whole);
                Ok(())
            }
            Err(error) if is_unsupported(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Zeros hide the base.
    pub(super) fn write_zeroes_overlaid(
        &mut self,
        extent: Extent,
        unmap: bool,
    ) -> Result<(), Failure> {
        self.fill_torn(extent)?;
        self.write_zeroes(extent, unmap)?;
        self.mark(extent);
        Ok(())
    }

    /// Copies the blocks to the image that a write is going to cover in part.
    fn fill_torn(&mut self, extent: Extent) -> Result<(), Failure> {
        let Some(overlay) = &mut self.overlay else {
            return Ok(());
        };
        let torn: Vec<u64> = overlay.torn(extent).collect();
        for block in torn {
            let rest = overlay.rest_of(block);
            let read = |buffer: &mut [u8], at| overlay.read_base(buffer, at);
            let alignment = self.alignment.unwrap_or(ANY);
            self.bounce.copy((&self.image, rest), alignment, read)?;
            overlay.mark(rest);
        }
        Ok(())
    }

    /// The blocks whose rest is copied before a request is carried out.
    pub(super) fn torn_by(&self, request: Request) -> impl Iterator<Item = u64> {
        let extent = match request {
            Request::Write(extent) | Request::WriteZeroes { extent, .. } => Some(extent),
            _ => None,
        };
        let torn = self.overlay.iter().zip(extent);
        torn.flat_map(|(overlay, extent)| overlay.torn(extent))
    }

    /// The extent of a write that the image has all blocks of once it has ended, and does not have all of before.
    pub(super) fn newly_covered(&self, request: Request) -> Option<Extent> {
        let (Some(overlay), Request::Write(extent)) = (&self.overlay, request) else {
            return None;
        };
        let is_new = overlay.layer_of(extent) != Some(Layer::Image);
        (is_new && overlay.torn(extent).next().is_none()).then_some(extent)
    }

    /// The image has all blocks of an extent.
    pub(super) fn mark(&mut self, extent: Extent) {
        if let Some(overlay) = &mut self.overlay {
            overlay.mark(extent);
        }
    }
}

/// Less than a block: there is nothing beyond the base's last one but what the image has.
fn give_zeros(memory: &GuestRam, buffers: &[Buffer], bytes: u64) -> Result<(), Failure> {
    let zeros = usize::try_from(bytes)
        .ok()
        .and_then(|bytes| ZEROS.get(..bytes))
        .ok_or(Failure::SHORT)?;
    match copy_in(memory, buffers.iter().copied(), zeros) {
        Ok(copied) if copied == zeros.len() => Ok(()),
        _ => Err(Failure::Guest(Refusal::IoError)),
    }
}
