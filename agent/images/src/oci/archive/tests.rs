//! Archives as tar writes them, and as nobody should.

use std::io::Write;

use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::super::ImageFile;
use super::*;

const DISK: &[u8] = b"the disk";

fn hex_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, data) in files {
        let mut header = Header::new_ustar();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, *data).unwrap();
    }
    builder.into_inner().unwrap()
}

/// One entry, whatever its name and kind.
fn entry(builder: &mut Builder<Vec<u8>>, name: &[u8], kind: EntryType, size: u64) {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_cksum();
    builder.get_mut().write_all(header.as_bytes()).unwrap();
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn open(bytes: &[u8], kind: ArchiveKind) -> Result<(File, ArchivedImage), String> {
    open_named(bytes, kind, None)
}

fn open_named(
    bytes: &[u8],
    kind: ArchiveKind,
    name: Option<&str>,
) -> Result<(File, ArchivedImage), String> {
    let file = file_of(bytes);
    let found = ArchivedImage::open(
        file.try_clone().unwrap(),
        kind,
        name,
        "amd64",
        OciLimits::default(),
    );
    found
        .map(|image| (file, image))
        .map_err(|error| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
}

struct InArchive<'a>(&'a File, &'a ArchivedImage);

impl LayoutDir for InArchive<'_> {
    fn open(&self, relative: &Path) -> io::Result<Box<dyn Read>> {
        let mut paths = self.1.manifest.layer_paths();
        let index = paths.position(|path| path == relative);
        let window = index.and_then(|index| self.1.windows.get(index));
        window.ok_or(io::ErrorKind::NotFound)?.open(self.0)
    }
}

fn disk_of(file: &File, image: &ArchivedImage) -> Result<Vec<u8>, OciError> {
    let mut disk = Vec::new();
    let wanted = ImageFile::OnlyOneIn("disk".into());
    let dir = InArchive(file, image);
    let limits = OciLimits::default();
    image
        .manifest
        .extract_file(&dir, &wanted, &mut disk, limits)?;
    Ok(disk)
}

/// What `docker save` writes; `damage` changes the layer after its digest was taken.
fn docker(damage: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut layer = tar(&[("disk/disk.img", DISK)]);
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{}"]}}}}"#,
        hex_of(&layer)
    );
    damage(&mut layer);
    let manifest = r#"[{"Config":"config.json","RepoTags":["docker.io/library/vm:1"],"Layers":["a/layer.tar"]}]"#;
    tar(&[
        ("a/layer.tar", &layer),
        ("config.json", config.as_bytes()),
        ("manifest.json", manifest.as_bytes()),
    ])
}

/// An image layout in an archive.
fn layout() -> Vec<u8> {
    let layer = tar(&[("disk/disk.img", DISK)]);
    let manifest = format!(
        r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:{}","size":{}}}]}}"#,
        hex_of(&layer),
        layer.len()
    );
    let index = format!(
        r#"{{"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:{}","size":{}}}]}}"#,
        hex_of(manifest.as_bytes()),
        manifest.len()
    );
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", hex_of(bytes));
    tar(&[
        ("./oci-layout", b"{}"),
        ("./index.json", index.as_bytes()),
        (&blob(manifest.as_bytes()), manifest.as_bytes()),
        (&blob(&layer), &layer),
    ])
}

#[test]
fn the_disk_of_an_archive_is_read_where_it_is() {
    for (bytes, kind) in [
        (docker(|_| {}), ArchiveKind::Docker),
        (layout(), ArchiveKind::Oci),
    ] {
        let (file, image) = open(&bytes, kind).unwrap();
        assert_eq!(disk_of(&file, &image).unwrap(), DISK, "{kind:?}");
        assert!(image.manifest.digest().starts_with("sha256:"));
    }
}

#[test]
fn an_image_is_called_as_docker_calls_it_or_as_people_do() {
    let bytes = docker(|_| {});
    for name in ["vm:1", "library/vm:1", "docker.io/library/vm:1"] {
        open_named(&bytes, ArchiveKind::Docker, Some(name)).unwrap();
    }
    let other = open_named(&bytes, ArchiveKind::Docker, Some("vm:2")).unwrap_err();
    assert!(
        other.contains("named \"vm:2\"; it holds docker.io/library/vm:1"),
        "{other}"
    );
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says_is_damaged() {
    let bytes = docker(|layer| layer[600] ^= 1);
    let (file, image) = open(&bytes, ArchiveKind::Docker).unwrap();
    let error = disk_of(&file, &image).unwrap_err();
    assert!(matches!(error, OciError::Damaged { .. }), "{error}");
}

fn refusal(build: impl FnOnce(&mut Builder<Vec<u8>>)) -> String {
    let mut builder = Builder::new(Vec::new());
    build(&mut builder);
    let bytes = builder.into_inner().unwrap();
    open(&bytes, ArchiveKind::Docker).unwrap_err()
}

#[test]
fn hostile_archives_are_refused_each_for_its_reason() {
    let regular = EntryType::Regular;
    let many = refusal(|builder| {
        for number in 0..=MAX_ENTRIES {
            entry(builder, format!("f{number}").as_bytes(), regular, 0);
        }
    });
    assert!(
        many.contains("the number of files in the archive"),
        "{many}"
    );
    for name in ["../../etc/passwd", "/etc/passwd", "a/../../b"] {
        let out = refusal(|builder| entry(builder, name.as_bytes(), regular, 0));
        assert!(out.contains("leads out of it"), "{out}");
    }
    let link = refusal(|builder| entry(builder, b"manifest.json", EntryType::Symlink, 0));
    assert!(
        link.contains("manifest.json: a link, not a regular file"),
        "{link}"
    );
    let sparse = refusal(|builder| entry(builder, b"layer.tar", EntryType::GNUSparse, 0));
    assert!(sparse.contains("a sparse file in an archive"), "{sparse}");
    // A size of 1 TiB costs nothing to write, and is not there.
    let bomb = refusal(|builder| entry(builder, b"layer.tar", regular, 1 << 40));
    assert!(bomb.contains("it ends before its last file does"), "{bomb}");
    let long = refusal(|builder| {
        entry(builder, b"././@LongLink", EntryType::GNULongName, 1 << 20);
        builder.get_mut().extend(vec![b'x'; 1 << 20]);
    });
    assert!(long.contains("longer than 64 KiB"), "{long}");
    let noise = refusal(|builder| builder.get_mut().extend(vec![7; 4096]));
    assert!(noise.contains("it is no tar archive"), "{noise}");
    let empty = refusal(|_| {});
    assert!(empty.contains("manifest.json"), "{empty}");
}

#[test]
fn an_archive_names_its_layers_and_none_besides() {
    let with = |manifest: &str, config: &str| {
        let bytes = tar(&[
            ("config.json", config.as_bytes()),
            ("manifest.json", manifest.as_bytes()),
        ]);
        open(&bytes, ArchiveKind::Docker).unwrap_err()
    };
    let one = r#"[{"Config":"config.json","Layers":["../../etc/shadow"]}]"#;
    let digest = "0".repeat(64);
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"diff_ids":["sha256:{digest}"]}}}}"#
    );
    let out = with(one, &config);
    assert!(out.contains("../../etc/shadow"), "{out}");
    let fewer = with(r#"[{"Config":"config.json","Layers":[]}]"#, &config);
    assert!(fewer.contains("another number of layers"), "{fewer}");
    let other = with(one, &config.replace("amd64", "arm64"));
    assert!(other.contains("\"arm64\""), "{other}");
    let two = with(
        r#"[{"Config":"config.json","RepoTags":["a:1"],"Layers":[]},{"Config":"config.json","RepoTags":null,"Layers":[]}]"#,
        &config,
    );
    assert!(
        two.contains("chosen by name") && two.contains("a:1"),
        "{two}"
    );
}
