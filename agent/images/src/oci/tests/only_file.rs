//! Disks that are found without their names.

use super::*;

fn disk_of(layout: &Layout) -> Result<String, String> {
    let limits = OciLimits::default();
    let manifest = ImageManifest::open(&layout.opener(), None, "amd64", limits).unwrap();
    let mut output = Vec::new();
    let file = ImageFile::OnlyOneIn("disk".into());
    manifest
        .extract_file(&layout.opener(), &file, &mut output, limits)
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(output).unwrap())
}

#[test]
fn the_one_file_of_the_directory_is_taken_whatever_layers_did_to_others() {
    let layout = one_image(&[
        &[FileOf("disk/old.img", "old"), FileOf("other/x", "x")],
        &[
            FileOf("disk/.wh.old.img", ""),
            FileOf("disk/new.img", "new"),
        ],
    ]);
    assert_eq!(disk_of(&layout).unwrap(), "new");
    let layout = one_image(&[
        &[FileOf("disk/a.img", "a"), FileOf("disk/b.img", "b")],
        &[FileOf("disk/.wh..wh..opq", ""), FileOf("disk/c.img", "c")],
    ]);
    assert_eq!(disk_of(&layout).unwrap(), "c");
    let layout = one_image(&[
        &[FileOf("disk/a.img", "a")],
        &[FileOf(".wh.disk", "")],
        &[FileOf("disk/d.img", "d")],
    ]);
    assert_eq!(disk_of(&layout).unwrap(), "d");
}

/// A layout whose files are opened so many times.
struct Counted<'a, D>(D, &'a std::cell::Cell<u32>);

impl<D: LayoutDir> LayoutDir for Counted<'_, D> {
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>> {
        self.1.set(self.1.get() + 1);
        self.0.open(relative)
    }
}

#[test]
fn each_layer_is_read_once_where_nothing_is_in_the_way() {
    let layout = one_image(&[
        &[FileOf("etc/x", "x")],
        &[FileOf("disk/a.img", "old")],
        &[FileOf("disk/a.img", "a"), FileOf("disk.txt", "x")],
        &[FileOf("other/x", "x")],
    ]);
    let limits = OciLimits::default();
    let manifest = ImageManifest::open(&layout.opener(), None, "amd64", limits).unwrap();
    let (opened, mut output) = (std::cell::Cell::new(0), Vec::new());
    let dir = Counted(layout.opener(), &opened);
    let file = ImageFile::OnlyOneIn("disk".into());
    let bytes = manifest
        .extract_file(&dir, &file, &mut output, limits)
        .unwrap();
    assert_eq!((bytes, &output[..], opened.get()), (1, &b"a"[..], 4));
}

#[test]
fn what_is_in_the_way_of_the_file_counts_as_it_does_in_the_image() {
    // An upper layer makes a directory of it.
    let layout = one_image(&[&[FileOf("disk/a.img", "a")], &[FileOf("disk/a.img/b", "b")]]);
    let refused = disk_of(&layout).unwrap_err();
    assert!(refused.contains("a directory"), "{refused}");
    // The first that was seen is hidden, and the other one longer or shorter.
    let layout = one_image(&[
        &[FileOf("disk/a.img", "a longer one")],
        &[FileOf("disk/.wh.a.img", ""), FileOf("disk/b.img", "b")],
    ]);
    assert_eq!(disk_of(&layout).unwrap(), "b");
    let layout = one_image(&[
        &[FileOf("disk/a.img", "old")],
        &[FileOf("disk/.wh.a.img", "")],
        &[FileOf("disk/a.img", "new")],
    ]);
    assert_eq!(disk_of(&layout).unwrap(), "new");
}

#[test]
fn no_file_and_several_are_refused_by_name() {
    let none = disk_of(&one_image(&[&[FileOf("disks/a.img", "a")]])).unwrap_err();
    assert_eq!(none, "no file found in folder /disk, no disk present");
    let two = [FileOf("disk/a.img", "a"), FileOf("disk/b.img", "b")];
    let several = disk_of(&one_image(&[&two])).unwrap_err();
    let words = "more than one file found in folder /disk, only one disk is allowed";
    assert!(several.starts_with(words), "{several}");
    let names: Vec<String> = (0..100).map(|number| format!("disk/{number}")).collect();
    let many: Vec<Put<'_>> = names.iter().map(|name| FileOf(name, "")).collect();
    let many = disk_of(&one_image(&[&many])).unwrap_err();
    assert!(many.contains("number of names in /disk"), "{many}");
    // A directory is no disk.
    let directory = disk_of(&one_image(&[&[FileOf("disk/a/b", "x")]])).unwrap_err();
    assert!(directory.contains("a directory"), "{directory}");
}
