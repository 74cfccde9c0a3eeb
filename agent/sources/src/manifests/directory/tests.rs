use super::*;

const GOOD: &str = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: web}\nspec: {domain: {devices: {}}}\n";

fn names(directory: &Directory) -> Vec<String> {
    directory
        .vmis()
        .0
        .into_keys()
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn added_changed_and_removed_files_are_noticed() {
    let path = tempfile::tempdir().expect("a directory");
    let mut directory = Directory::new(Kinds::this_release());
    std::fs::write(path.path().join("a.yaml"), GOOD).expect("write");
    assert_eq!(directory.scan(path.path()).expect("scan"), []);
    assert_eq!(names(&directory), ["web"]);
    let before = directory.vmis().0;
    std::fs::write(
        path.path().join("a.yaml"),
        format!("{GOOD}---\n{}", GOOD.replace("web", "db")),
    )
    .expect("write");
    assert_eq!(directory.scan(path.path()).expect("scan"), []);
    assert_eq!(names(&directory), ["db", "web"]);
    let web = (String::from("default"), String::from("web"));
    assert_eq!(
        directory.vmis().0[&web],
        before[&web],
        "an object that stayed the same is the same desired object"
    );
    std::fs::remove_file(path.path().join("a.yaml")).expect("remove");
    directory.scan(path.path()).expect("scan");
    assert_eq!(names(&directory), [""; 0]);
}

#[test]
fn a_file_that_turned_bad_keeps_what_it_said_and_is_complained_about_once() {
    let path = tempfile::tempdir().expect("a directory");
    let file = path.path().join("a.yaml");
    let mut directory = Directory::new(Kinds::this_release());
    std::fs::write(&file, GOOD).expect("write");
    directory.scan(path.path()).expect("scan");
    std::fs::write(&file, "kind: VirtualMachineInstance\nspec: [").expect("write");
    assert_eq!(directory.scan(path.path()).expect("scan").len(), 1);
    assert_eq!(directory.scan(path.path()).expect("scan").len(), 0);
    assert_eq!(names(&directory), ["web"]);
    assert!(!directory.is_unknown("a.yaml"));
}

#[test]
fn an_emptied_file_keeps_what_it_said() {
    let path = tempfile::tempdir().expect("a directory");
    let file = path.path().join("a.yaml");
    let mut directory = Directory::new(Kinds::this_release());
    std::fs::write(&file, GOOD).expect("write");
    directory.scan(path.path()).expect("scan");
    std::fs::write(&file, "").expect("write");
    let complaints = directory.scan(path.path()).expect("scan");
    assert!(
        complaints[0].message.contains("it is empty"),
        "{complaints:?}"
    );
    assert_eq!(names(&directory), ["web"]);
    let mut fresh = Directory::new(Kinds::this_release());
    fresh.scan(path.path()).expect("scan");
    assert!(fresh.is_unknown("a.yaml"), "nor after a restart");
}

#[test]
fn a_file_that_was_never_good_is_unknown() {
    let path = tempfile::tempdir().expect("a directory");
    let mut directory = Directory::new(Kinds::this_release());
    std::fs::write(path.path().join("a.yaml"), "{{{").expect("write");
    assert_eq!(directory.scan(path.path()).expect("scan").len(), 1);
    assert!(directory.is_unknown("a.yaml"));
    assert!(!directory.is_unknown("b.yaml"));
}

#[test]
fn hidden_temporary_and_other_files_pipes_and_directories_are_no_manifests() {
    let path = tempfile::tempdir().expect("a directory");
    for name in [
        ".a.yaml",
        "a.yaml~",
        "#a.yaml",
        "a.yaml.tmp",
        "a.txt",
        ".a.yaml.swp",
    ] {
        std::fs::write(path.path().join(name), GOOD).expect("write");
    }
    std::fs::create_dir(path.path().join("d.yaml")).expect("mkdir");
    nix::unistd::mkfifo(&path.path().join("p.yaml"), nix::sys::stat::Mode::S_IRWXU)
        .expect("mkfifo");
    let mut directory = Directory::new(Kinds::this_release());
    let complaints = directory.scan(path.path()).expect("scan");
    assert_eq!(names(&directory), [""; 0]);
    let files: Vec<&str> = complaints
        .iter()
        .map(|complaint| complaint.file.as_str())
        .collect();
    assert_eq!(files, ["d.yaml", "p.yaml"]);
}

#[test]
fn one_bad_document_spoils_its_file_and_no_other() {
    let path = tempfile::tempdir().expect("a directory");
    std::fs::write(
        path.path().join("a.yaml"),
        format!("{GOOD}---\nkind: Nonsense\napiVersion: v9\n"),
    )
    .expect("write");
    std::fs::write(path.path().join("b.yaml"), GOOD.replace("web", "db")).expect("write");
    let mut directory = Directory::new(Kinds::this_release());
    let complaints = directory.scan(path.path()).expect("scan");
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!(names(&directory), ["db"]);
}

#[test]
fn the_first_file_wins_an_object_that_two_have() {
    let path = tempfile::tempdir().expect("a directory");
    std::fs::write(path.path().join("a.yaml"), GOOD).expect("write");
    std::fs::write(path.path().join("b.yaml"), GOOD).expect("write");
    let mut directory = Directory::new(Kinds::this_release());
    directory.scan(path.path()).expect("scan");
    let (desired_objects, complaints) = directory.vmis();
    assert!(
        desired_objects
            .values()
            .all(|desired| desired.file == "a.yaml")
    );
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].message.contains("a.yaml"), "{complaints:?}");
}

#[test]
fn a_directory_that_cannot_be_listed_changes_nothing() {
    let path = tempfile::tempdir().expect("a directory");
    std::fs::write(path.path().join("a.yaml"), GOOD).expect("write");
    let mut directory = Directory::new(Kinds::this_release());
    directory.scan(path.path()).expect("scan");
    assert!(directory.scan(&path.path().join("missing")).is_err());
    assert_eq!(names(&directory), ["web"]);
}

#[test]
fn objects_of_all_kinds_are_asked_for_and_one_that_is_none_spoils_its_file() {
    let path = tempfile::tempdir().expect("a directory");
    let file = path.path().join("a.yaml");
    let mut directory = Directory::new(Kinds::this_release());
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {a: b}\n";
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n";
    std::fs::write(&file, format!("{GOOD}---\n{secret}---\n{list}")).expect("write");
    assert_eq!(directory.scan(path.path()).expect("scan"), []);
    assert_eq!(names(&directory), ["web"]);
    let others = |directory: &Directory| {
        let desired_objects = directory.others().0.into_keys();
        let ids = desired_objects.map(|id| format!("{} {}/{}", id.kind, id.namespace, id.name));
        ids.collect::<Vec<_>>()
    };
    assert_eq!(others(&directory), ["Namespace /a", "Secret default/key"]);
    std::fs::write(path.path().join("b.yaml"), secret).expect("write");
    directory.scan(path.path()).expect("scan");
    let (id, by, message) = directory.others().1.remove(0);
    assert_eq!((id.name.as_str(), by.as_str()), ("key", "b.yaml"));
    assert!(message.contains("a.yaml has it already"), "{message}");
    for bad in [
        "apiVersion: v1\nkind: Sceret\nmetadata: {name: x}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndatum: {}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {generateName: x-}\n",
    ] {
        std::fs::write(&file, format!("{secret}---\n{bad}")).expect("write");
        assert_eq!(directory.scan(path.path()).expect("scan").len(), 1, "{bad}");
        assert_eq!(others(&directory), ["Namespace /a", "Secret default/key"]);
    }
}
