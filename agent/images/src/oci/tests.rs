mod only_file;

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use sha2::Digest as _;

use super::*;

/// A layout in a temporary directory.
struct Layout {
    dir: tempfile::TempDir,
    manifests: Vec<serde_json::Value>,
}

/// What a test puts into a layer.
enum Put<'a> {
    File(&'a str, &'a str),
    Dir(&'a str),
    Symlink(&'a str, &'a str),
    Hardlink(&'a str, &'a str),
}

use Put::{Dir, File as FileOf, Hardlink, Symlink};

fn tar_of(entries: &[Put<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        match entry {
            FileOf(path, text) => {
                header.set_size(text.len() as u64);
                builder
                    .append_data(&mut header, path, text.as_bytes())
                    .unwrap();
            }
            Dir(path) => {
                header.set_entry_type(tar::EntryType::Directory);
                builder.append_data(&mut header, path, &b""[..]).unwrap();
            }
            Symlink(path, target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                builder.append_link(&mut header, path, target).unwrap();
            }
            Hardlink(path, target) => {
                header.set_entry_type(tar::EntryType::Link);
                builder.append_link(&mut header, path, target).unwrap();
            }
        }
    }
    builder.into_inner().unwrap()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

impl Layout {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        Self {
            dir,
            manifests: Vec::new(),
        }
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> serde_json::Value {
        let hex: String = sha2::Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        fs::write(self.dir.path().join("blobs/sha256").join(&hex), bytes).unwrap();
        serde_json::json!({
            "mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len(),
        })
    }

    fn image(&mut self, name: Option<&str>, layers: &[&[Put<'_>]]) {
        let layers: Vec<_> = layers
            .iter()
            .enumerate()
            .map(|(number, entries)| {
                let plain = tar_of(entries);
                let base = "application/vnd.oci.image.layer.v1.tar";
                match number % 3 {
                    0 => self.blob(&format!("{base}+gzip"), &gzip(&plain)),
                    1 => self.blob(base, &plain),
                    _ => self.blob(
                        &format!("{base}+zstd"),
                        &zstd::encode_all(&plain[..], 1).unwrap(),
                    ),
                }
            })
            .collect();
        self.image_of(name, &layers);
    }

    /// An image of layers that are there.
    fn image_of(&mut self, name: Option<&str>, layers: &[serde_json::Value]) {
        let manifest = serde_json::json!({"schemaVersion": 2, "layers": layers});
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let mut manifest = self.blob(media_type, manifest.to_string().as_bytes());
        if let Some(name) = name {
            manifest["annotations"] =
                serde_json::json!({"org.opencontainers.image.ref.name": name});
        }
        self.manifests.push(manifest);
        let index = serde_json::json!({"schemaVersion": 2, "manifests": self.manifests});
        fs::write(self.dir.path().join("index.json"), index.to_string()).unwrap();
    }

    fn opener(&self) -> impl Fn(&Path) -> io::Result<File> + use<'_> {
        |path| File::open(self.dir.path().join(path))
    }

    fn read(&self, path: &str) -> Result<String, OciError> {
        self.read_of(None, path)
    }

    fn read_of(&self, name: Option<&str>, path: &str) -> Result<String, OciError> {
        let limits = OciLimits::default();
        let manifest = ImageManifest::open(&self.opener(), name, "amd64", limits)?;
        let mut output = Vec::new();
        manifest.extract(&self.opener(), Path::new(path), &mut output, limits)?;
        // A damaged layer may well hold other bytes.
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}

fn one_image(layers: &[&[Put<'_>]]) -> Layout {
    let mut layout = Layout::new();
    layout.image(None, layers);
    layout
}

#[test]
fn a_file_of_the_uppermost_layer_that_has_it_is_taken() {
    let layout = one_image(&[
        &[FileOf("boot/vmlinuz", "old"), FileOf("boot/initrd", "ram")],
        &[Dir("boot"), FileOf("boot/vmlinuz", "new")],
        &[FileOf("etc/other", "x")],
    ]);
    assert_eq!(layout.read("boot/vmlinuz").unwrap(), "new");
    assert_eq!(layout.read("/boot/initrd").unwrap(), "ram");
}

#[test]
fn the_last_of_two_entries_of_one_layer_counts() {
    let layout = one_image(&[&[FileOf("kernel", "one"), FileOf("./kernel", "two")]]);
    assert_eq!(layout.read("kernel").unwrap(), "two");
}

#[test]
fn whiteouts_take_files_and_directories_away() {
    let layout = one_image(&[
        &[
            FileOf("boot/a", "a"),
            FileOf("boot/b", "b"),
            FileOf("lib/c", "c"),
        ],
        &[FileOf("boot/.wh.a", ""), FileOf(".wh.lib", "")],
    ]);
    assert!(matches!(layout.read("boot/a"), Err(OciError::NotFound(_))));
    assert_eq!(layout.read("boot/b").unwrap(), "b");
    assert!(matches!(layout.read("lib/c"), Err(OciError::NotFound(_))));
}

#[test]
fn a_whiteout_does_not_take_away_what_its_own_layer_adds() {
    let layout = one_image(&[
        &[FileOf("boot/a", "old")],
        &[FileOf("boot/.wh.a", ""), FileOf("boot/a", "new")],
    ]);
    assert_eq!(layout.read("boot/a").unwrap(), "new");
}

#[test]
fn an_opaque_directory_shows_nothing_of_the_layers_below() {
    let layout = one_image(&[
        &[FileOf("boot/a", "a")],
        &[FileOf("boot/.wh..wh..opq", ""), FileOf("boot/b", "b")],
    ]);
    assert!(matches!(layout.read("boot/a"), Err(OciError::NotFound(_))));
    assert_eq!(layout.read("boot/b").unwrap(), "b");
}

#[test]
fn links_are_followed_within_the_image_and_not_out_of_it() {
    let layout = one_image(&[
        &[
            FileOf("usr/lib/kernel/vmlinuz-6.1", "kernel"),
            Symlink("vmlinuz", "boot/vmlinuz"),
            Symlink("boot", "/usr/lib/kernel"),
            Symlink("usr/lib/kernel/vmlinuz", "vmlinuz-6.1"),
            Hardlink("hard", "usr/lib/kernel/vmlinuz-6.1"),
            Symlink("escape", "../../../../../../etc/hostname"),
            Symlink("loop", "loop"),
        ],
        &[FileOf("etc/hostname", "of the image")],
    ]);
    assert_eq!(layout.read("vmlinuz").unwrap(), "kernel");
    assert_eq!(layout.read("hard").unwrap(), "kernel");
    assert_eq!(layout.read("escape").unwrap(), "of the image");
    assert!(matches!(
        layout.read("loop"),
        Err(OciError::NotAFile { .. })
    ));
    assert!(matches!(
        layout.read("usr/lib"),
        Err(OciError::NotAFile { .. })
    ));
}

#[test]
fn a_directory_over_a_symlink_hides_what_the_link_showed() {
    let layout = one_image(&[
        &[FileOf("real/a", "a"), Symlink("boot", "real")],
        &[FileOf("boot/b", "b")],
    ]);
    assert!(matches!(layout.read("boot/a"), Err(OciError::NotFound(_))));
    assert_eq!(layout.read("boot/b").unwrap(), "b");
}

#[test]
fn names_longer_than_a_tar_header_are_read() {
    let long = format!("{}/vmlinuz", ["directory"; 30].join("/"));
    let layout = one_image(&[&[FileOf(&long, "deep")]]);
    assert_eq!(layout.read(&long).unwrap(), "deep");
}

#[test]
fn an_image_is_chosen_by_name() {
    let mut layout = Layout::new();
    layout.image(Some("a"), &[&[FileOf("k", "of a")]]);
    layout.image(Some("b"), &[&[FileOf("k", "of b")]]);
    assert_eq!(layout.read_of(Some("b"), "k").unwrap(), "of b");
    for name in [None, Some("c")] {
        let error = layout.read_of(name, "k").unwrap_err();
        assert!(error.to_string().contains("\"a\", \"b\""), "{error}");
    }
}

#[test]
fn an_index_of_architectures_is_followed() {
    let mut layout = Layout::new();
    layout.image(None, &[&[FileOf("k", "amd")]]);
    let mut amd = layout.manifests.remove(0);
    amd["platform"] = serde_json::json!({"os": "linux", "architecture": "amd64"});
    let mut arm = amd.clone();
    arm["platform"]["architecture"] = "arm64".into();
    let inner = serde_json::json!({"schemaVersion": 2, "manifests": [arm, amd]}).to_string();
    let inner = layout.blob("application/vnd.oci.image.index.v1+json", inner.as_bytes());
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [inner]}).to_string();
    fs::write(layout.dir.path().join("index.json"), index).unwrap();
    assert_eq!(layout.read("k").unwrap(), "amd");
    let limits = OciLimits::default();
    let error = ImageManifest::open(&layout.opener(), None, "riscv64", limits).unwrap_err();
    assert!(error.to_string().contains("arm64"), "{error}");
}

#[test]
fn a_changed_layer_is_damaged() {
    let layout = one_image(&[&[FileOf("k", "kernel")]]);
    for entry in fs::read_dir(layout.dir.path().join("blobs/sha256")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    }
    assert!(matches!(layout.read("k"), Err(OciError::Damaged { .. })));
}

#[test]
fn limits_hold() {
    let layout = one_image(&[&[FileOf("k", &"x".repeat(1 << 20))]]);
    let full = OciLimits::default();
    let manifest = ImageManifest::open(&layout.opener(), None, "amd64", full).unwrap();
    for limits in [
        OciLimits {
            file_bytes: 1000,
            ..full
        },
        OciLimits {
            unpacked_layer_bytes: 1000,
            ..full
        },
    ] {
        let error = manifest
            .extract(&layout.opener(), Path::new("k"), &mut io::sink(), limits)
            .unwrap_err();
        assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    }
    // What its header says is enough: nothing of it is unpacked.
    let limits = OciLimits {
        unpacked_layer_bytes: 1000,
        ..full
    };
    let refused = manifest.extract(&layout.opener(), Path::new("k"), &mut io::sink(), limits);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("the member \"k\""), "{refused}");
    for limits in [
        OciLimits { layers: 0, ..full },
        OciLimits {
            layer_bytes: 10,
            ..full
        },
        OciLimits {
            document_bytes: 10,
            ..full
        },
    ] {
        let error = ImageManifest::open(&layout.opener(), None, "amd64", limits).unwrap_err();
        assert!(matches!(error, OciError::TooLarge { .. }), "{error:?}");
    }
}

#[test]
fn all_layers_and_links_have_one_budget() {
    let big = "x".repeat(1 << 20);
    let layout = one_image(&[
        &[FileOf("k", "kernel"), FileOf("big", &big)],
        &[Symlink("a", "b"), Symlink("b", "c"), Symlink("c", "k")],
    ]);
    let full = OciLimits::default();
    let manifest = ImageManifest::open(&layout.opener(), None, "amd64", full).unwrap();
    let read = |path: &str, total_bytes| {
        let limits = OciLimits {
            total_bytes,
            ..full
        };
        let mut output = Vec::new();
        manifest.extract(&layout.opener(), Path::new(path), &mut output, limits)
    };
    // Once to find it and once to take it out; each link costs one time more.
    assert_eq!(read("k", 3 << 20).unwrap(), 6);
    assert_eq!(read("a", 6 << 20).unwrap(), 6);
    let error = read("a", 3 << 20).unwrap_err();
    assert!(
        matches!(error, OciError::TooLarge { limit, .. } if limit == 3 << 20),
        "{error:?}"
    );
}

#[test]
fn a_manifest_is_handed_on_as_it_is_and_a_digest_that_is_a_path_is_not() {
    let layout = one_image(&[&[FileOf("k", "kernel")]]);
    let limits = OciLimits::default();
    let manifest = ImageManifest::open(&layout.opener(), None, "amd64", limits).unwrap();
    let text = serde_json::to_string(&manifest).unwrap();
    assert_eq!(
        serde_json::from_str::<ImageManifest>(&text).unwrap(),
        manifest
    );
    let digest = manifest.digest();
    let evil = text.replace(&digest, "sha256:../../../../etc/passwd");
    assert_ne!(evil, text);
    serde_json::from_str::<ImageManifest>(&evil).unwrap_err();
}

#[test]
fn digests_that_are_paths_are_refused() {
    for digest in [
        "sha256:../../../etc/passwd",
        "sha256:",
        "md5:d41d8cd98f00b204e9800998ecf8427e",
        "no colon",
        &format!("sha256:{}", "A".repeat(64)),
    ] {
        assert!(blob::Digest::parse(digest).is_none(), "{digest}");
    }
}

proptest! {
    #[test]
    fn no_layer_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..4096),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16),
        from_tar in any::<bool>(),
    ) {
        let mut bytes = if from_tar {
            tar_of(&[FileOf("a/k", "kernel"), Symlink("k", "a/k"), Dir("b")])
        } else {
            bytes
        };
        for (at, value) in damage {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        let mut layout = Layout::new();
        let layer = layout.blob("application/vnd.oci.image.layer.v1.tar", &bytes);
        let manifest = serde_json::json!({"layers": [layer]}).to_string();
        let manifest = layout.blob("application/vnd.oci.image.manifest.v1+json", manifest.as_bytes());
        layout.manifests.push(manifest);
        let index = serde_json::json!({"manifests": layout.manifests}).to_string();
        fs::write(layout.dir.path().join("index.json"), index).unwrap();
        drop(layout.read("k"));
    }

    #[test]
    fn no_index_makes_it_panic(text in "\\PC{0,300}") {
        let files = BTreeMap::from([("index.json", text)]);
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in &files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let open = |path: &Path| File::open(dir.path().join(path));
        drop(ImageManifest::open(&open, None, "amd64", OciLimits::default()));
    }
}

#[test]
fn a_zstd_window_is_bounded_and_what_is_beyond_is_refused_in_words() {
    let base = "application/vnd.oci.image.layer.v1.tar";
    let mut layout = Layout::new();
    for log in [25, 26] {
        // Without the size of the contents the frame has the window that was asked for.
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        encoder
            .write_all(&tar_of(&[FileOf("disk/x", "1")]))
            .unwrap();
        let packed = encoder.finish().unwrap();
        let layer = layout.blob(&format!("{base}+zstd"), &packed);
        layout.image_of(Some(&log.to_string()), &[layer]);
    }
    assert_eq!(layout.read_of(Some("25"), "disk/x").unwrap(), "1");
    let refused = layout.read_of(Some("26"), "disk/x").unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.starts_with("the zstd window of the layer sha256:"),
        "{refused}"
    );
    assert!(
        refused.ends_with("larger than the 33554432 allowed"),
        "{refused}"
    );
}

/// An extended header (POSIX.1-2001) of these records.
fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        // A record has its own length before it.
        let rest = format!(" {key}={value}\n");
        let digits = (1..).find(|digits| (rest.len() + digits).to_string().len() == *digits);
        text.push_str(&format!("{}{rest}", rest.len() + digits.unwrap()));
    }
    text.into_bytes()
}

#[test]
fn a_sparse_member_is_refused_by_its_own_name_whatever_its_format() {
    let base = "application/vnd.oci.image.layer.v1.tar";
    let formats: [(&str, &[(&str, &str)]); 2] = [
        (
            "disk/GNUSparseFile.17/x",
            &[
                ("GNU.sparse.major", "1"),
                ("GNU.sparse.minor", "0"),
                ("GNU.sparse.name", "disk/x"),
            ],
        ),
        (
            "disk/x",
            &[("GNU.sparse.size", "9"), ("GNU.sparse.numblocks", "1")],
        ),
    ];
    for (path, records) in formats {
        let records = pax(records);
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_size(records.len() as u64);
        builder
            .append_data(&mut header, "pax", &records[..])
            .unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        builder.append_data(&mut header, path, &b"1"[..]).unwrap();
        let mut layout = Layout::new();
        let layer = layout.blob(base, &builder.into_inner().unwrap());
        layout.image_of(None, &[layer]);
        let refused = layout.read("disk/x").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "disk/x: a sparse archive member, not a regular file"
        );
    }
}

#[test]
fn the_configuration_is_what_its_digest_says_or_none() {
    let config = b"{\"config\": {}}";
    let digest = super::blob::digest_of(config).text();
    let document = |config: serde_json::Value| {
        let document = serde_json::json!({"schemaVersion": 2, "layers": [], "config": config});
        ImageManifest::of_document(document.to_string().as_bytes(), OciLimits::default()).unwrap()
    };
    let sized = document(serde_json::json!({"digest": digest, "size": config.len()}));
    let dir = tempfile::tempdir().unwrap();
    let serve = |bytes: &[u8]| {
        let path = dir.path().join("blob");
        fs::write(&path, bytes).unwrap();
        move |_: &Path| fs::File::open(&path)
    };
    let limits = OciLimits::default();
    assert_eq!(sized.config(&serve(config), limits).unwrap(), config);
    assert_eq!(sized.config(&serve(b"{\"config\": 1 }"), limits), None);
    // An artifact may have any.
    assert_eq!(
        document(serde_json::json!(7)).config(&serve(config), limits),
        None
    );
}
