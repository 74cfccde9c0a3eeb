//! Sound images: what comes out is what a simple model says, for any chain.

use proptest::prelude::*;

use super::builder::{Builder, Content};
use super::{DiskFormat, converted, layer, refusal_of, with_format};

fn content(version: u32) -> impl Strategy<Value = Content> {
    // Zero clusters came with version 3.
    let zeros = u32::from(version >= 3);
    prop_oneof![
        2 => Just(Content::Hole),
        zeros => Just(Content::Zero),
        zeros => Just(Content::ZeroHeld),
        3 => any::<u8>().prop_map(Content::Data),
        2 => any::<u8>().prop_map(Content::Packed),
    ]
}

/// An image of any make; the last cluster may be cut by the end of the disk.
fn image() -> impl Strategy<Value = Builder> {
    (2_u32..=3, 9_u32..=13, any::<bool>()).prop_flat_map(|(version, cluster_bits, is_zstd)| {
        let clusters = prop::collection::vec(content(version), 1..70);
        (clusters, 0..16_u64).prop_map(move |(clusters, cut)| {
            let bytes = (clusters.len() as u64) << cluster_bits;
            let last = (1_u64 << cluster_bits) - 512;
            Builder {
                version,
                cluster_bits,
                is_zstd: is_zstd && version >= 3,
                has_subclusters: false,
                virtual_bytes: bytes - (cut * 512).min(last),
                backing: None,
                clusters,
            }
        })
    })
}

/// Lays an image over what is below.
fn lay_over(builder: &Builder, below: &[u8]) -> Vec<u8> {
    let size = usize::try_from(builder.virtual_bytes).unwrap();
    let mut disk = below.to_vec();
    disk.resize(size, 0);
    for (number, content) in builder.clusters.iter().enumerate() {
        if let Some(bytes) = builder.bytes_of(*content) {
            let start = number << builder.cluster_bits;
            let end = (start + bytes.len()).min(size);
            disk[start..end].copy_from_slice(&bytes[..end - start]);
        }
    }
    disk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_chain_becomes_the_disk_that_it_is(
        mut images in prop::collection::vec(image(), 1..4),
        raw in prop::option::of(prop::collection::vec(any::<u8>(), 0..40_000)),
    ) {
        // The last one is at the bottom, unless a raw disk is.
        let bottom = images.len() - 1;
        for (depth, image) in images.iter_mut().enumerate() {
            if depth < bottom {
                image.backing = Some(("below", Some("qcow2")));
            } else if raw.is_some() {
                image.backing = Some(("below", Some("raw")));
            }
        }
        let mut expected = raw.clone().unwrap_or_default();
        for image in images.iter().rev() {
            expected = lay_over(image, &expected);
        }
        let mut layers: Vec<_> = images.iter().map(|image| layer("image", &image.build().bytes)).collect();
        layers.extend(raw.iter().map(|raw| layer("raw", raw)));
        let (disk, done) = converted(layers).unwrap();
        prop_assert!(disk == expected);
        prop_assert_eq!(done.virtual_bytes, expected.len() as u64);
        let data = expected.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0));
        prop_assert_eq!(done.written_bytes, data.map(|block| block.len() as u64).sum::<u64>());
    }

    #[test]
    fn any_damage_is_refused_or_read_within_bounds(
        image in image(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        head in prop::collection::vec((0..128_usize, any::<u8>()), 0..2),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let built = image.build();
        let mut bytes = built.bytes;
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for (at, value) in head {
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok((disk, done)) = converted(vec![layer("it", &bytes)]) {
            prop_assert_eq!(disk.len() as u64, done.virtual_bytes);
        }
    }
}

#[test]
fn a_raw_disk_stays_what_it_is_in_whole_sectors() {
    let (disk, done) = converted(vec![layer("raw", &[7; 1000])]).unwrap();
    assert_eq!(disk[..1000], [7; 1000]);
    assert_eq!(disk[1000..], [0; 24]);
    assert_eq!(done.written_bytes, 1024);
    assert!(converted(vec![layer("raw", b"")]).unwrap().0.is_empty());
}

#[test]
fn a_user_may_say_that_a_file_is_raw_whatever_it_looks_like() {
    let built = Builder::new(vec![Content::Data(1)]).build();
    let raw = with_format(layer("it", &built.bytes), DiskFormat::Raw);
    assert_eq!(converted(vec![raw]).unwrap().0, built.bytes);
    let refused = refusal_of(vec![with_format(layer("it", b"no"), DiskFormat::Qcow2)]);
    assert_eq!(refused, "it is no qcow2 image, though -f says so");
}

#[test]
fn a_base_that_its_overlay_calls_raw_is_raw_whatever_a_guest_wrote_there() {
    let fake = Builder::new(vec![Content::Data(1)]).build().bytes;
    let mut overlay = Builder::new(vec![Content::Hole; 20]);
    overlay.backing = Some(("base", Some("raw")));
    let layers = vec![layer("it", &overlay.build().bytes), layer("base", &fake)];
    let (disk, _) = converted(layers).unwrap();
    assert_eq!(disk[..fake.len()], fake);
}
