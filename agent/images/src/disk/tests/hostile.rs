//! Damaged and hostile images: each is refused with what is wrong, and where.

use super::builder::{Builder, Built, Content};
use super::{converted, layer, refusal, refusal_of};
use crate::disk::{DiskFormat, disk_info};

fn sound() -> Built {
    Builder::new(vec![
        Content::Data(1),
        Content::Data(2),
        Content::Packed(3),
        Content::Hole,
    ])
    .build()
}

#[test]
fn what_is_changed_below_is_sound_before() {
    converted(vec![layer("it", &sound().bytes)]).unwrap();
}

#[track_caller]
fn assert_refused(image: &[u8], says: &[&str]) {
    let text = refusal(image);
    assert!(text.starts_with("it"), "{text}");
    for part in says {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn an_image_that_was_cut_is_refused_wherever_it_was() {
    let built = sound();
    for length in 4..built.bytes.len() {
        let text = refusal(&built.bytes[..length]);
        assert!(text.contains("damaged"), "{length}: {text}");
    }
    assert_refused(
        &built.bytes[..built.data[1] + 100],
        &["incomplete", "bytes at byte", "the file has"],
    );
}

#[test]
fn tables_outside_of_the_file_are_refused() {
    let built = sound();
    let far = 1 << 40;
    assert_refused(&built.with64(40, far), &["the L1 table", "1099511627776"]);
    assert_refused(&built.with64(40, u64::MAX - 511), &["the L1 table"]);
    assert_refused(
        &built.with64(built.l1, far),
        &["the L2 table of L1 entry 0"],
    );
    assert_refused(&built.with64(built.l2[0], far), &["the disk's data at 0x0"]);
    let packed = 1 << 62 | far;
    assert_refused(
        &built.with64(built.l2[0] + 16, packed),
        &["compressed data of the disk's cluster at 0x400"],
    );
    assert_refused(&built.with64(48, far), &["the reference count table"]);
    assert_refused(
        &built.with64(built.refcount_table, far),
        &["reference count block 0"],
    );
}

#[test]
fn tables_at_themselves_and_at_each_other_are_refused() {
    let built = sound();
    let at = |place: usize| u64::try_from(place).unwrap();
    let says = "something else is in already";
    assert_refused(&built.with64(40, 0), &["the L1 table", says]);
    assert_refused(&built.with64(built.l1, at(built.l1)), &["L2 table", says]);
    for place in [built.l1, built.l2[0], built.refcount_table, built.data[1]] {
        assert_refused(
            &built.with64(built.l2[0], at(place)),
            &["the disk's data at", says],
        );
    }
    let block = built.with64(built.refcount_table, at(built.refcount_table));
    assert_refused(&block, &["reference count block 0", says]);
    let packed = 1 << 62 | at(built.data[0]);
    assert_refused(
        &built.with64(built.l2[0] + 16, packed),
        &["compressed data", says],
    );
}

#[test]
fn offsets_that_are_no_starts_and_reserved_bits_are_refused() {
    let mut builder = Builder::new(vec![Content::Data(1); 4]);
    builder.cluster_bits = 12;
    builder.virtual_bytes = 4 << 12;
    let built = builder.build();
    assert_refused(&built.with64(40, 512), &["no start of a cluster"]);
    assert_refused(&built.with64(built.l1, 512), &["L1 entry 0", "no start"]);
    assert_refused(&built.with64(built.l2[0] + 8, 512), &["0x1000", "no start"]);
    assert_refused(
        &built.with64(built.l2[0] + 8, 1 << 60),
        &["0x1000", "reserves"],
    );
    assert_refused(&built.with64(built.l1, 3), &["L1 entry 0", "reserves"]);
}

#[test]
fn sizes_that_are_nonsense_are_refused() {
    let built = sound();
    assert_refused(&built.with64(24, 1 << 50), &["L1 table has 1 entries"]);
    assert_refused(&built.with32(36, u32::MAX), &["L1 table", "33554432"]);
    assert_refused(&built.with32(56, u32::MAX), &["reference count table"]);
    for bits in [0, 8, 22, 64, u32::MAX] {
        assert_refused(&built.with32(20, bits), &["2^9 to 2^21"]);
    }
    for bytes in [0, 103, 513, u32::MAX] {
        assert_refused(&built.with32(100, bytes), &["its header gives itself"]);
    }
    assert_refused(&built.with32(96, 7), &["reference counts of 2^7 bits"]);
    // A disk of 2 MiB in an image with room for it: more than the limit.
    let large = Builder::new(vec![Content::Hole; 4097]).build();
    assert_refused(&large.bytes, &["2097664", "1048576", "--max-size"]);
}

#[test]
fn snapshots_that_are_nonsense_are_refused() {
    let built = sound();
    assert_refused(&built.with32(60, 1), &["the snapshot table", "in already"]);
    let mut image = built.with32(60, 3);
    image[64..72].copy_from_slice(&(1_u64 << 50).to_be_bytes());
    assert_refused(&image, &["snapshot 0", "1125899906842624"]);
    assert_refused(&built.with32(60, u32::MAX), &["snapshots", "65536"]);
}

#[test]
fn a_cluster_in_use_whose_count_is_zero_is_refused_unless_counts_are_stale() {
    let built = sound();
    let cluster = built.data[0] / 512;
    let mut image = built.bytes.clone();
    let at = built.refcount_block + cluster * 2;
    image[at..at + 2].fill(0);
    assert_refused(&image, &["its reference count is 0"]);
    assert_refused(
        &built.with64(built.refcount_table, 0),
        &["reference count is 0"],
    );
    image[79] |= 1;
    converted(vec![layer("it", &image)]).unwrap();
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let built = sound();
    let feature = |bits| built.with64(72, bits);
    assert_refused(&feature(1 << 1), &["marked as corrupt", "check -r"]);
    assert_refused(&feature(1 << 2), &["external data file"]);
    assert_refused(&feature(1 << 4), &["2^9 bytes with subclusters"]);
    assert_refused(&feature(1 << 63), &["unknown incompatible", "bit 63"]);
    assert_refused(&feature(1 << 3), &["contradicts itself about compression"]);
    assert_refused(&built.with32(32, 1), &["encrypted (AES)"]);
    assert_refused(&built.with32(32, 2), &["encrypted (LUKS)"]);
    assert_refused(&built.with32(4, 4), &["version 4"]);
    let mut named = feature(1 << 5);
    named[112..120].copy_from_slice(&[0x68, 0x03, 0xf8, 0x57, 0, 0, 0, 48]);
    named[120..126].copy_from_slice(&[0, 5, b's', b'o', 0x1b, b'n']);
    assert_refused(&named, &["feature 'so\\u{1b}n' (bit 5)"]);
    let mut version_2 = Builder::new(vec![Content::Zero]);
    version_2.version = 2;
    assert_refused(&version_2.build().bytes, &["zero cluster"]);
    assert_refused(b"KDMV\0\0", &["VMDK"]);
    assert_refused(b"\xfd7zXZ\0", &["xz", "-f raw"]);
}

#[test]
fn compressed_data_that_is_none_is_refused_with_its_place() {
    for is_zstd in [false, true] {
        let mut builder = Builder::new(vec![Content::Packed(1), Content::Packed(2)]);
        builder.is_zstd = is_zstd;
        let built = builder.build();
        let entry = u64::from_be_bytes(built.bytes[built.l2[0]..][..8].try_into().unwrap());
        let at = usize::try_from(entry & 0xffff).unwrap();
        let mut image = built.bytes.clone();
        image[at..at + 8].fill(0xff);
        let kind = if is_zstd { "zstd" } else { "zlib" };
        assert_refused(&image, &["cluster at 0x0", "no sound", kind]);
        // Less than a cluster: what a smaller cluster would hold.
        let mut short = builder.clone();
        short.cluster_bits = 12;
        short.virtual_bytes = 2 << 12;
        let mut image = short.build();
        let less = short.pack(&[5; 100]);
        let entry = u64::from_be_bytes(image.bytes[image.l2[0]..][..8].try_into().unwrap());
        let at = usize::try_from(entry & 0xffff).unwrap();
        image.bytes[at..at + less.len()].copy_from_slice(&less);
        assert_refused(&image.bytes, &["cluster at 0x0", "no sound"]);
    }
}

#[test]
fn data_that_unpacks_to_more_than_a_cluster_gives_one_cluster() {
    for is_zstd in [false, true] {
        let mut builder = Builder::new(vec![Content::Packed(1)]);
        builder.is_zstd = is_zstd;
        builder.cluster_bits = 12;
        builder.virtual_bytes = 1 << 12;
        let mut image = builder.build();
        let entry = u64::from_be_bytes(image.bytes[image.l2[0]..][..8].try_into().unwrap());
        let at = usize::try_from(entry & 0xffff).unwrap();
        // 64 MiB in less than 64 KiB; only as much as the entry says is looked at.
        let bomb = builder.pack(&vec![9; 64 << 20]);
        let room = (entry >> 58 & 0xf) + 1;
        let room = usize::try_from(room * 512).unwrap() - at % 512;
        let room = room.min(bomb.len());
        image.bytes[at..at + room].copy_from_slice(&bomb[..room]);
        match converted(vec![layer("it", &image.bytes)]) {
            Ok((disk, _)) => assert_eq!(disk.len(), 4096),
            Err(error) => assert!(error.to_string().contains("no sound"), "{error}"),
        }
    }
}

#[test]
fn a_backing_file_is_asked_for_and_never_opened() {
    let mut builder = Builder::new(vec![Content::Hole; 2]);
    builder.backing = Some(("/etc/passwd\n", Some("raw")));
    let overlay = builder.build().bytes;
    assert_refused(
        &overlay,
        &[
            "'/etc/passwd\\n' of format raw",
            "never opened",
            "--backing",
        ],
    );
    let info = disk_info(layer("it", &overlay)).unwrap().qcow2.unwrap();
    assert_eq!(info.backing.unwrap().name, "/etc/passwd\\n");
    builder.backing = Some(("base", Some("vmdk")));
    let layers = vec![layer("it", &builder.build().bytes), layer("base", b"")];
    assert!(refusal_of(layers).contains("backing file of format vmdk"));
    builder.backing = Some(("base", Some("qcow2")));
    let layers = vec![layer("it", &builder.build().bytes), layer("base", b"raw")];
    assert_eq!(
        refusal_of(layers),
        "base is no qcow2 image, though the image above says so"
    );
    let built = sound();
    for top in [&built.bytes[..], b"raw"] {
        let layers = vec![layer("it", top), layer("other", b"")];
        assert_eq!(
            refusal_of(layers),
            "it has no backing file, but other was given as one"
        );
    }
    assert_refused(
        &built.with64(8, 1 << 33),
        &["name of its backing file", "first cluster"],
    );
    assert_refused(
        &{
            let mut image = built.with64(8, 120);
            image[16..20].copy_from_slice(&2000_u32.to_be_bytes());
            image
        },
        &["2000 bytes", "1023"],
    );
}

#[test]
fn a_header_extension_that_is_too_long_is_refused_with_its_place() {
    let built = sound();
    let mut image = built.with32(112, 0x1234);
    image[116..120].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_refused(&image, &["0x00001234", "byte 112", "4294967295"]);
}

#[test]
fn a_chain_that_is_too_long_is_refused() {
    let mut builder = Builder::new(vec![Content::Hole; 2]);
    builder.backing = Some(("below", None));
    let image = builder.build().bytes;
    let layers = (0..70).map(|_| layer("it", &image)).collect();
    assert!(refusal_of(layers).contains("65, but 64 is allowed"));
}

#[test]
fn an_image_is_recognised_by_its_header_also_when_it_cannot_be_converted() {
    let built = sound();
    let info = disk_info(layer("it", &built.with64(72, 1 << 1))).unwrap();
    assert_eq!(info.format, DiskFormat::Qcow2);
    assert_eq!(info.virtual_bytes, 2048);
    let qcow2 = info.qcow2.unwrap();
    assert_eq!(qcow2.cluster_bytes, 512);
    assert_eq!(qcow2.unsupported, ["is marked as corrupt"]);
}

#[test]
fn subclusters_are_read_and_contradictions_in_them_refused() {
    let clusters = vec![
        Content::Data(3),
        Content::Packed(5),
        Content::ZeroHeld,
        Content::Hole,
        Content::Zero,
        Content::Data(7),
    ];
    let mut builder = Builder::new(clusters);
    builder.cluster_bits = 14;
    builder.has_subclusters = true;
    builder.virtual_bytes = 6 << 14;
    let built = builder.build();
    let mut expected: Vec<u8> = builder
        .clusters
        .iter()
        .flat_map(|content| builder.bytes_of(*content).unwrap_or(vec![0; 1 << 14]))
        .collect();
    let disk = |image: &[u8]| converted(vec![layer("it", image)]).unwrap().0;
    assert_eq!(disk(&built.bytes), expected);
    // The first cluster's second subcluster is zeros, its third is not there, and nothing lies below.
    let first = built.l2[0] + 8;
    let mixed = built.with64(first, 0xffff_fff9 | 1 << 33);
    expected[512..3 * 512].fill(0);
    assert_eq!(disk(&mixed), expected);
    assert_refused(
        &built.with64(first, 0xffff_ffff | 1 << 32),
        &["there and zero at once"],
    );
    assert_refused(
        &built.with64(first + 16, 1),
        &["compressed and has subclusters"],
    );
    assert_refused(&built.with64(first + 3 * 16, 1), &["no place for them"]);
    assert_refused(
        &built.with64(first + 8, u64::MAX),
        &["compressed and copied at once"],
    );
    let at = built.l2[0];
    assert_refused(&built.with64(at, built.data[0] as u64 | 1), &["reserves"]);
    assert_refused(
        &built.with64(at + 5 * 16, built.data[0] as u64),
        &["in a cluster that something else is in already"],
    );
}
