//! The ELF image inside a bzImage, which compresses it by LZ4 or XZ.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::Context;

const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// The ELF image inside a bzImage (Documentation/arch/x86/boot.rst: `setup_sects` at 0x1f1,
/// `payload_offset` at 0x248, `payload_length` at 0x24c).
pub(super) fn unpack(bzimage: &[u8]) -> anyhow::Result<Vec<u8>> {
    let word = |offset: usize| -> anyhow::Result<usize> {
        let bytes = bzimage
            .get(offset..offset + 4)
            .context("a bzImage shorter than its header")?;
        Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    let setup_sectors = match bzimage.get(0x1f1) {
        Some(0) => 4,
        Some(count) => usize::from(*count),
        None => anyhow::bail!("a bzImage shorter than its header"),
    };
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    let payload = bzimage
        .get(start..start + word(0x24c)?)
        .context("a payload outside the bzImage")?;
    let elf = if payload.starts_with(XZ_MAGIC) {
        unpack_xz(payload)?
    } else {
        unpack_lz4_legacy(payload)?
    };
    anyhow::ensure!(
        elf.starts_with(b"\x7fELF"),
        "the kernel's payload is no ELF image"
    );
    Ok(elf)
}

/// By the program: nothing else here is compressed like that. The kernel's build appends the unpacked
/// length.
fn unpack_xz(payload: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut xz = Command::new("xz")
        .args(["--decompress", "--stdout", "--single-stream"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("xz cannot be started")?;
    let mut input = xz.stdin.take().context("xz has no input")?;
    std::thread::scope(|scope| {
        // It may end without having read what follows the stream; its own verdict counts.
        scope.spawn(move || input.write_all(payload).ok());
        let output = xz.wait_with_output()?;
        anyhow::ensure!(output.status.success(), "xz ended with {}", output.status);
        Ok(output.stdout)
    })
}

/// LZ4's legacy frame: a magic number, then blocks of at most 8 MiB, each after its length. The
/// kernel's build appends the unpacked length, which looks like one more block header.
fn unpack_lz4_legacy(payload: &[u8]) -> anyhow::Result<Vec<u8>> {
    const BLOCK_BYTES: usize = 8 << 20;
    let mut rest = payload
        .strip_prefix(&0x184c_2102_u32.to_le_bytes())
        .context("the kernel is compressed neither by LZ4 nor by XZ")?;
    let mut elf = Vec::new();
    while rest.len() > 4 {
        let (length, after) = rest.split_at(4);
        let length = u32::from_le_bytes(length.try_into()?) as usize;
        let block = after
            .get(..length)
            .context("an LZ4 block outside the payload")?;
        elf.extend(lz4_flex::block::decompress(block, BLOCK_BYTES).context("a broken LZ4 block")?);
        rest = &after[length..];
    }
    Ok(elf)
}
