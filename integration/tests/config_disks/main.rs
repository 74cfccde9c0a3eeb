//! Volumes of ISO 9660 that the project makes, as other programs and Linux read them.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use agent_images::iso::{IsoFile, MAX_NAME_BYTES, iso};
use integration::{process, skip_if, tools};

/// Files that a volume has, by path.
type Files = BTreeMap<String, Vec<u8>>;

/// Names of all kinds in directories of one and of several sectors, and files from none to several sectors.
fn files() -> Files {
    let mut files = Files::new();
    let mut add = |path: &str, bytes: usize| {
        let data = path.bytes().cycle().take(bytes).collect();
        files.insert(path.to_owned(), data);
    };
    add("meta-data", 77);
    add("user-data", 0);
    add("network-config", 2048);
    add("openstack/latest/meta_data.json", 5000);
    add("openstack/latest/user_data", 1);
    add("openstack/content/deep/er/still", 3);
    add("Ünïcode näme", 9);
    add(".hidden", 4);
    add(&"l".repeat(MAX_NAME_BYTES), 6);
    // Alike in 8.3.
    for number in 0..200 {
        add(&format!("many/a-rather-long-key-{number}.yaml"), number);
    }
    files
}

fn volume(label: &str, files: &Files) -> Vec<u8> {
    let list: Vec<IsoFile<'_>> = files
        .iter()
        .map(|(path, data)| IsoFile { path, data })
        .collect();
    iso(label, &list).expect("a volume")
}

fn missing() -> Option<String> {
    let missing = tools::missing(tools::TESTS);
    let needed = ["genisoimage", "xorriso"];
    let lacks = needed.iter().find(|name| missing.contains(*name))?;
    Some(format!("the package {lacks} is not installed"))
}

fn output(program: &str, arguments: &[&str]) -> String {
    process::output(Command::new(program).args(arguments)).expect(program)
}

/// All files below a directory.
fn read_tree(directory: &Path) -> Files {
    let mut files = Files::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).expect("below").display();
            files.insert(name.to_string(), fs::read(&path).expect("a file"));
        }
    }
    files
}

#[test]
fn isoinfo_finds_every_name_by_rock_ridge_and_by_joliet() {
    skip_if!(missing());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume.iso");
    let mut files = files();
    // isoinfo shows Joliet's names in a character set of its own choice.
    files.retain(|name, _| name.is_ascii());
    fs::write(&path, volume("cidata", &files)).expect("written");
    let path = path.display().to_string();
    let descriptor = output("isoinfo", &["-d", "-i", &path]);
    for line in [
        "Volume id: cidata",
        "Joliet with UCS level 3 found",
        "Rock Ridge signatures version 1 found",
        "Logical block size is: 2048",
    ] {
        assert!(descriptor.contains(line), "{line}:\n{descriptor}");
    }
    for names in ["-R", "-J"] {
        let list = output("isoinfo", &[names, "-f", "-i", &path]);
        for file in files.keys() {
            let line = format!("/{file}");
            assert!(
                list.lines().any(|found| found == line),
                "{names} {line}:\n{list}"
            );
        }
    }
    // The bare names are unique, and as short as the standard wants.
    let list = output("isoinfo", &["-f", "-i", &path]);
    let mut names: Vec<&str> = list.lines().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{list}");
    assert!(count > files.len());
}

#[test]
fn xorriso_restores_every_file_and_complains_of_nothing() {
    skip_if!(missing());
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume.iso");
    let files = files();
    fs::write(&path, volume("config-2", &files)).expect("written");
    let tree = directory.path().join("tree");
    let (path, target) = (path.display().to_string(), tree.display().to_string());
    let arguments = [
        "-abort_on",
        "WARNING",
        "-osirrox",
        "on",
        "-indev",
        &path,
        "-extract",
        "/",
        &target,
    ];
    output("xorriso", &arguments);
    assert!(read_tree(&tree) == files);
    // What it says of the volume goes to the error stream, the label to the output.
    let label = output("xorriso", &["-indev", &path, "-pvd_info"]);
    assert!(label.contains("Volume Id    : config-2"), "{label}");
}

#[test]
fn linux_mounts_a_volume_with_the_names_and_rights_of_rock_ridge() {
    skip_if!(
        tools::missing(tools::HOST)
            .into_iter()
            .next()
            .map(str::to_owned)
    );
    skip_if!((!nix::unistd::geteuid().is_root()).then(|| "mounting needs root".to_owned()));
    // Nothing loads a module for whoever asks on some machines; there the guest of `slice_busybox` mounts one.
    let known = fs::read_to_string("/proc/filesystems").expect("readable");
    skip_if!((!known.contains("iso9660")).then(|| "this kernel has no iso9660".to_owned()));
    let directory = tempfile::tempdir().expect("a directory");
    let files = files();
    fs::write(
        directory.path().join("volume.iso"),
        volume("cidata", &files),
    )
    .expect("written");
    fs::create_dir(directory.path().join("mount")).expect("made");
    let script = "mount -t iso9660 -o loop,ro volume.iso mount && cp -a mount tree && \
                  stat -c '%a %u %Y' mount/meta-data mount/many";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    let found = process::output(command.current_dir(directory.path())).expect("mounted");
    assert_eq!(found, "444 0 0\n555 0 0\n");
    assert!(read_tree(&directory.path().join("tree")) == files);
}
