//! What Linux, isoinfo and xorriso read of a volume is tested in `integration/tests/config_disks`.

use proptest::prelude::*;

use super::*;

fn file<'a>(path: &'a str, data: &'a [u8]) -> IsoFile<'a> {
    IsoFile { path, data }
}

#[test]
fn the_same_files_give_the_same_bytes_in_any_order() {
    let files = [
        file("user-data", b"#cloud-config\n"),
        file("meta-data", b"{}"),
        file("openstack/latest/x", b"y"),
    ];
    let [a, b, c] = files;
    let first = iso("cidata", &[a, b, c]).unwrap();
    assert_eq!(first, iso("cidata", &[c, b, a]).unwrap());
    assert_eq!(first.len() % SECTOR_BYTES, 0);
}

#[test]
fn names_and_labels_that_no_volume_can_have_are_refused() {
    let long = "n".repeat(MAX_NAME_BYTES + 1);
    for name in [
        "", ".", "..", "/a", "a/", "a//b", "a/../b", "a\nb", "a;1", &long,
    ] {
        let refused = iso("l", &[file(name, b"")]);
        assert!(matches!(refused, Err(IsoError::Name(_))), "{name:?}");
    }
    for label in ["", "\n", "é", &"l".repeat(MAX_LABEL_BYTES + 1)] {
        assert!(
            matches!(iso(label, &[]), Err(IsoError::Label(_))),
            "{label:?}"
        );
    }
    for twice in [["a", "a"], ["a", "a/b"], ["a/b", "a"]] {
        let refused = iso("l", &twice.map(|path| file(path, b"")));
        assert!(matches!(refused, Err(IsoError::Twice(_))), "{twice:?}");
    }
    let large = vec![0; MAX_ISO_BYTES / 2 + 1];
    let refused = iso("l", &[file("a", &large), file("b", &large)]);
    assert_eq!(refused, Err(IsoError::TooLarge));
}

proptest! {
    /// A volume is whole sectors, and long enough for its files, whatever they are called.
    #[test]
    fn any_files_make_a_volume(
        files in prop::collection::btree_map("[a-zA-Z0-9._-]{1,60}", 0_usize..5000, 0..80),
    ) {
        let data: Vec<(String, Vec<u8>)> = files
            .into_iter()
            .filter(|(name, _)| name != "." && name != "..")
            .map(|(name, bytes)| (name, vec![7; bytes]))
            .collect();
        let files: Vec<IsoFile<'_>> = data.iter().map(|(name, data)| file(name, data)).collect();
        let image = iso("label", &files).unwrap();
        let bytes: usize = data.iter().map(|(_, data)| data.len()).sum();
        prop_assert!(image.len() >= bytes + 20 * SECTOR_BYTES);
        prop_assert_eq!(image.len() % SECTOR_BYTES, 0);
    }
}
