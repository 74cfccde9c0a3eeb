use std::io::Cursor;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

/// An ELF-like file: the magic number and enough bytes to fill more than one LZ4 block.
fn elf(bytes: usize) -> Vec<u8> {
    let mut elf = ELF_MAGIC.to_vec();
    elf.extend((0..bytes).map(|at| u8::try_from(at * 7 % 251).unwrap()));
    elf
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn xz(plain: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zstd(plain: &[u8]) -> Vec<u8> {
    ::zstd::encode_all(plain, 1).unwrap()
}

fn lz4(plain: &[u8]) -> Vec<u8> {
    let mut packed = 0x184c_2102_u32.to_le_bytes().to_vec();
    for block in plain.chunks(8 << 20) {
        let block = lz4_flex::block::compress(block);
        packed.extend(u32::try_from(block.len()).unwrap().to_le_bytes());
        packed.extend(block);
    }
    packed
}

/// A bzImage of boot protocol 2.15 around a payload.
fn bzimage(payload: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 5 * 512];
    image[0x1f1] = 4;
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
    image[0x248..0x24c].copy_from_slice(&100_u32.to_le_bytes());
    let length = u32::try_from(payload.len()).unwrap();
    image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
    image.extend([0; 100]);
    image.extend(payload);
    image.extend([0xcc; 64]);
    image
}

fn with_size(mut packed: Vec<u8>, size: usize) -> Vec<u8> {
    packed.extend(u32::try_from(size).unwrap().to_le_bytes());
    packed
}

fn unpack(input: &[u8]) -> Result<(Unpacked, Vec<u8>), UnpackKernelError> {
    unpack_within(input, UnpackLimits::default())
}

fn unpack_within(
    input: &[u8],
    limits: UnpackLimits,
) -> Result<(Unpacked, Vec<u8>), UnpackKernelError> {
    let mut output = Vec::new();
    let unpacked = unpack_kernel(&mut Cursor::new(input), &mut output, limits)?;
    Ok((unpacked, output))
}

#[test]
fn an_elf_is_passed_on_as_it_is() {
    let elf = elf(5000);
    let (unpacked, output) = unpack(&elf).unwrap();
    assert_eq!(unpacked.format, KernelFormat::Elf);
    assert_eq!(output, elf);
}

#[test]
fn every_supported_payload_of_a_bzimage_comes_out_whole() {
    let elf = elf(9 << 20);
    let cases = [
        (Compression::Gzip, gzip(&elf)),
        (Compression::Xz, with_size(xz(&elf), elf.len())),
        (Compression::Zstd, with_size(zstd(&elf), elf.len())),
        (Compression::Lz4Legacy, with_size(lz4(&elf), elf.len())),
    ];
    for (compression, payload) in cases {
        let (unpacked, output) = unpack(&bzimage(&payload)).unwrap();
        assert_eq!(unpacked.format, KernelFormat::BzImage(compression));
        assert!(output == elf, "{compression} changed the kernel");
    }
}

#[test]
fn compressed_elf_files_are_unpacked_too() {
    let elf = elf(70_000);
    for packed in [gzip(&elf), xz(&elf), zstd(&elf), lz4(&elf)] {
        let (unpacked, output) = unpack(&packed).unwrap();
        assert!(matches!(unpacked.format, KernelFormat::Compressed(_)));
        assert_eq!(output, elf);
    }
}

#[test]
fn unsupported_compressions_are_named() {
    for (magic, name) in [
        (&b"BZh91AY&SY"[..], "bzip2"),
        (&b"\x89LZO\x00\x0d\x0a"[..], "LZO"),
        (&b"\x5d\x00\x00\x80\x00"[..], "LZMA"),
        (&b"\x04\x22\x4d\x18aaaa"[..], "LZ4 frame"),
    ] {
        let error = unpack(&bzimage(&with_size(magic.to_vec(), 1))).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_bomb_stops_at_the_limit() {
    let limits = UnpackLimits {
        input_bytes: 1 << 20,
        output_bytes: 1 << 20,
    };
    let bomb = elf(4 << 20);
    for packed in [gzip(&bomb), xz(&bomb), zstd(&bomb), lz4(&bomb)] {
        let error = unpack_within(&packed, limits).unwrap_err();
        assert!(
            matches!(error, UnpackKernelError::OutputTooLarge(_)),
            "{error:?}"
        );
    }
}

#[test]
fn an_input_above_the_limit_is_not_read() {
    let limits = UnpackLimits {
        input_bytes: 10,
        output_bytes: 10,
    };
    let error = unpack_within(&elf(100), limits).unwrap_err();
    assert!(matches!(error, UnpackKernelError::InputTooLarge { .. }));
}

#[test]
fn a_payload_that_is_no_elf_is_refused() {
    for payload in [gzip(b"hello"), gzip(b""), gzip(b"\x7fE")] {
        let error = unpack(&bzimage(&payload)).unwrap_err();
        assert!(
            matches!(error, UnpackKernelError::NotElfInside),
            "{error:?}"
        );
    }
}

#[test]
fn a_payload_of_another_size_than_announced_is_refused() {
    let elf = elf(1000);
    let error = unpack(&bzimage(&with_size(zstd(&elf), 999))).unwrap_err();
    assert!(matches!(error, UnpackKernelError::WrongSize { .. }));
}

#[test]
fn truncated_data_is_damaged() {
    let elf = elf(100_000);
    for packed in [gzip(&elf), xz(&elf), zstd(&elf), lz4(&elf)] {
        let error = unpack(&packed[..packed.len() / 2]).unwrap_err();
        assert!(matches!(error, UnpackKernelError::Damaged(..)), "{error:?}");
    }
}

#[test]
fn a_payload_outside_of_the_file_is_refused() {
    let mut image = bzimage(&gzip(&elf(100)));
    image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
    let error = unpack(&image).unwrap_err();
    assert!(matches!(error, UnpackKernelError::PayloadOutside { .. }));
}

#[test]
fn an_old_boot_protocol_is_named() {
    let mut image = bzimage(&gzip(&elf(100)));
    image[0x206..0x208].copy_from_slice(&[0x07, 0x02]);
    let error = unpack(&image).unwrap_err();
    assert!(error.to_string().contains("2.7"), "{error}");
}

#[test]
fn what_the_lz4_program_packs_as_the_kernel_does_is_unpacked() {
    let elf = elf(9 << 20);
    let Ok(mut child) = Command::new("lz4")
        .args(["-l", "-9", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    else {
        test_skip::report("the program lz4 is not installed");
        return;
    };
    let mut stdin = child.stdin.take().unwrap();
    let copy = elf.clone();
    let feeder = std::thread::spawn(move || stdin.write_all(&copy).unwrap());
    let packed = child.wait_with_output().unwrap().stdout;
    feeder.join().unwrap();
    assert!(unpack(&packed).unwrap().1 == elf);
}

#[test]
fn a_distribution_kernel_unpacks_to_an_elf_with_a_pvh_note() {
    let Some(path) = std::env::var_os("KVMLET_TEST_BZIMAGE") else {
        test_skip::report("KVMLET_TEST_BZIMAGE names no kernel");
        return;
    };
    let image = std::fs::read(path).unwrap();
    let (unpacked, output) = unpack(&image).unwrap();
    println!("{:?}: {} bytes", unpacked.format, unpacked.elf_bytes);
    assert!(matches!(unpacked.format, KernelFormat::BzImage(_)));
    // XEN_ELFNOTE_PHYS32_ENTRY is 18; its note has the name "Xen".
    let note = b"\x04\0\0\0\x04\0\0\0\x12\0\0\0Xen\0";
    let long_note = b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0";
    let found = |note: &[u8]| output.windows(note.len()).any(|window| window == note);
    assert!(found(note) || found(long_note));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let limits = UnpackLimits { input_bytes: 4096, output_bytes: 4096 };
        drop(unpack_within(&bytes, limits));
    }

    #[test]
    fn no_payload_makes_it_panic(
        which in 0_usize..4,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let elf = elf(3000);
        let mut payload = match which {
            0 => gzip(&elf),
            1 => with_size(xz(&elf), elf.len()),
            2 => with_size(zstd(&elf), elf.len()),
            _ => with_size(lz4(&elf), elf.len()),
        };
        for (at, value) in damage {
            let at = at.index(payload.len());
            payload[at] = value;
        }
        let mut image = bzimage(&payload);
        image.truncate(cut.index(image.len()) + 1);
        let limits = UnpackLimits { input_bytes: 1 << 20, output_bytes: 1 << 20 };
        drop(unpack_within(&image, limits));
    }

    #[test]
    fn damaged_headers_do_not_make_it_panic(
        damage in prop::collection::vec((0_usize..0x250, any::<u8>()), 1..32),
    ) {
        let mut image = bzimage(&gzip(&elf(3000)));
        for (at, value) in damage {
            image[at] = value;
        }
        drop(unpack(&image));
    }
}
