use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use agent_domain::PathGrant;

use super::*;

struct Fixture {
    dir: tempfile::TempDir,
    allowed: AllowedPaths,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("images");
        let own = root.join("a");
        std::fs::create_dir_all(own.join("sub")).unwrap();
        std::fs::create_dir_all(root.join("b")).unwrap();
        std::fs::write(own.join("sub/file"), "inside").unwrap();
        std::fs::write(root.join("b/file"), "another's").unwrap();
        std::fs::write(dir.path().join("secret"), "outside").unwrap();
        let rules = PathRules {
            disks: vec![root],
            setting: "paths.grants in the file".to_owned(),
            ..PathRules::default()
        };
        let allowed = AllowedPaths::new(rules, "a");
        Self { dir, allowed }
    }

    fn own(&self) -> PathBuf {
        self.dir.path().join("images/a")
    }

    fn open(&self, relative: &str) -> Result<File, BeneathError> {
        self.allowed.open_disk(&self.own().join(relative), true)
    }
}

#[test]
fn a_file_below_the_directory_of_the_namespace_is_opened() {
    let fixture = Fixture::new();
    fixture.open("sub/file").unwrap();
    symlink("sub/file", fixture.own().join("link")).unwrap();
    fixture.open("link").unwrap();
}

#[test]
fn a_symlink_out_of_the_directory_is_refused_and_the_setting_named() {
    let fixture = Fixture::new();
    let own = fixture.own();
    symlink("../../secret", own.join("relative")).unwrap();
    symlink("../b/file", own.join("neighbour")).unwrap();
    symlink(fixture.dir.path().join("secret"), own.join("absolute")).unwrap();
    symlink("../..", own.join("up")).unwrap();
    symlink("/proc/self/cwd", own.join("magic")).unwrap();
    for name in [
        "relative",
        "neighbour",
        "absolute",
        "up/etc/passwd",
        "magic/Cargo.toml",
    ] {
        let error = fixture.open(name).unwrap_err();
        assert!(
            matches!(error, BeneathError::Escapes { .. }),
            "{name}: {error:?}"
        );
        assert!(
            error.to_string().contains("paths.grants in the file"),
            "{error}"
        );
    }
}

#[test]
fn a_path_outside_is_refused_and_path_namespace_and_setting_are_named() {
    let fixture = Fixture::new();
    let images = fixture.dir.path().join("images");
    for path in [
        PathBuf::from("/etc/passwd"),
        PathBuf::from("relative"),
        images.join("b/file"),
        images.join("a/../b/file"),
        images.join("ab/file"),
        fixture.dir.path().join("images-of-others/file"),
    ] {
        let error = fixture.allowed.open_disk(&path, true).unwrap_err();
        assert!(
            matches!(error, BeneathError::NotAllowed { .. }),
            "{error:?}"
        );
        let said = error.to_string();
        for named in [&*text(&path), "\"a\"", "paths.grants in the file"] {
            assert!(said.contains(named), "{said}");
        }
    }
}

#[test]
fn a_link_between_disks_leads_to_no_other_namespaces_disk() {
    let fixture = Fixture::new();
    // The operator's own link, which is followed, hides nobody's disk.
    let srv = fixture.dir.path().join("srv");
    std::fs::create_dir(fixture.dir.path().join("data")).unwrap();
    symlink("data", &srv).unwrap();
    std::fs::write(srv.join("disk"), "another's").unwrap();
    symlink("disk", srv.join("link")).unwrap();
    let mut rules = PathRules {
        grants: vec![PathGrant {
            path: srv.clone(),
            namespaces: ["a".to_owned(), "b".to_owned()].into(),
        }],
        ..PathRules::default()
    };
    let open = |rules: &PathRules, namespace| {
        let allowed = AllowedPaths::new(rules.clone(), namespace);
        let disk = allowed.open_disk(&srv.join("link"), false);
        let boot = allowed.open_image_dir(&srv).unwrap();
        (disk, boot.open(Path::new("disk")))
    };
    assert!(matches!(open(&rules, "b"), (Ok(_), Ok(_))));
    let record = PathRecord {
        namespaces: ["a".to_owned()].into(),
        exclusive: true,
        since: 1,
    };
    rules.records = Arc::new([(srv.join("disk"), record)].into());
    assert!(matches!(open(&rules, "a"), (Ok(_), Ok(_))));
    let (disk, boot) = open(&rules, "b");
    assert!(matches!(disk, Err(BeneathError::NotAllowed { .. })));
    assert!(matches!(boot, Err(BeneathError::NotAllowed { .. })));
}

#[test]
fn a_disk_that_was_handed_over_opens_for_its_new_namespace_alone() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::write(&disk, "b's").unwrap();
    let grant = |path: &Path, namespace: &str| PathGrant {
        path: path.to_owned(),
        namespaces: [namespace.to_owned()].into(),
    };
    let mut rules = PathRules {
        grants: vec![grant(dir.path(), "a"), grant(&disk, "b")],
        ..PathRules::default()
    };
    let record = rules.record_for("a", &disk, None, 1).unwrap();
    let record = rules.record_for("b", &disk, Some(record), 2).unwrap();
    rules.records = Arc::new([(disk.clone(), record)].into());
    let allowed = |namespace| AllowedPaths::new(rules.clone(), namespace);
    allowed("b").open_disk(&disk, false).unwrap();
    for read_only in [false, true] {
        let refused = allowed("a").open_disk(&disk, read_only);
        assert!(matches!(refused, Err(BeneathError::NotAllowed { .. })));
    }
    let image = allowed("a").open_image_dir(dir.path()).unwrap();
    let refused = image.open(Path::new("disk"));
    assert!(matches!(refused, Err(BeneathError::NotAllowed { .. })));
}

#[test]
fn a_remembered_path_leads_into_no_other_namespaces_directory() {
    let fixture = Fixture::new();
    let images = fixture.dir.path().join("images");
    symlink("../b/file", fixture.own().join("neighbour")).unwrap();
    symlink("b", images.join("dir")).unwrap();
    symlink("a/sub/file", images.join("link")).unwrap();
    let paths = ["a/neighbour", "dir", "link"].map(|path| images.join(path));
    let record = |path: PathBuf| {
        let namespaces = ["a".to_owned()].into();
        let (exclusive, since) = (true, 0);
        (
            path,
            PathRecord {
                namespaces,
                exclusive,
                since,
            },
        )
    };
    let mut rules = fixture.allowed.rules.clone();
    rules.records = Arc::new(paths.map(record).into());
    let allowed = AllowedPaths::new(rules, "a");
    allowed.open_disk(&images.join("link"), true).unwrap();
    for path in ["a/neighbour", "dir/file"] {
        let error = allowed.open_disk(&images.join(path), true).unwrap_err();
        assert!(
            matches!(error, BeneathError::NotAllowed { .. }),
            "{path}: {error:?}"
        );
    }
    let made = allowed.create_disk(&images.join("dir/new"), 1 << 20);
    assert!(
        matches!(made, Err(BeneathError::NotAllowed { .. })),
        "{made:?}"
    );
    assert!(!images.join("b/new").exists());
}

#[test]
fn an_image_that_holds_directories_of_namespaces_does_not_lead_into_theirs() {
    let fixture = Fixture::new();
    let images = fixture.dir.path().join("images");
    std::fs::write(images.join("vmlinuz"), "from before").unwrap();
    let record = |path: PathBuf| {
        let namespaces = ["a".to_owned()].into();
        let exclusive = false;
        (
            path,
            PathRecord {
                namespaces,
                exclusive,
                since: 0,
            },
        )
    };
    let mut rules = fixture.allowed.rules.clone();
    rules.boot = rules.disks.clone();
    rules.records = Arc::new([images.clone(), images.join("vmlinuz")].map(record).into());
    let dir = AllowedPaths::new(rules, "a")
        .open_image_dir(&images)
        .unwrap();
    dir.open(Path::new("vmlinuz")).unwrap();
    dir.open(Path::new("a/sub/file")).unwrap();
    let error = dir.open(Path::new("b/file")).unwrap_err();
    assert!(
        matches!(error, BeneathError::NotAllowed { .. }),
        "{error:?}"
    );
}

#[test]
fn a_fifo_or_directory_is_not_taken_for_a_file() {
    let fixture = Fixture::new();
    let fifo = fixture.own().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    for name in ["fifo", "sub"] {
        let error = fixture.open(name).unwrap_err();
        assert!(matches!(error, BeneathError::WrongType { .. }), "{error:?}");
    }
}

#[test]
fn a_new_file_is_sparse_and_never_replaces_another() {
    let fixture = Fixture::new();
    let path = fixture.own().join("sub/new.img");
    let mut file = fixture.allowed.create_disk(&path, 1 << 30).unwrap();
    file.write_all(b"x").unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.len(), 1 << 30);
    assert!(std::os::unix::fs::MetadataExt::blocks(&meta) < 1000);
    assert!(fixture.allowed.create_disk(&path, 1).is_err());
    let outside = fixture.dir.path().join("new.img");
    assert!(fixture.allowed.create_disk(&outside, 1).is_err());
}

#[test]
fn a_new_file_that_fails_does_not_stay_behind() {
    let fixture = Fixture::new();
    let path = fixture.own().join("sub/new.img");
    // More than any file system has.
    fixture.allowed.create_disk(&path, u64::MAX).unwrap_err();
    assert!(!path.exists(), "the next attempt would take it as it is");
    fixture.allowed.create_disk(&path, 1 << 20).unwrap();
}

#[test]
fn the_first_disk_of_a_namespace_makes_its_directory() {
    let fixture = Fixture::new();
    let rules = fixture.allowed.rules.clone();
    let path = fixture.dir.path().join("images/new/disk");
    let allowed = AllowedPaths::new(rules, "new");
    assert!(matches!(
        allowed.open_disk(&path, false),
        Err(BeneathError::NotFound { .. })
    ));
    allowed.create_disk(&path, 1 << 20).unwrap();
    allowed.open_disk(&path, false).unwrap();
}
