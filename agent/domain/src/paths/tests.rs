use super::*;

const READ: PathUse = PathUse::Disk { read_only: true };
const WRITE: PathUse = PathUse::Disk { read_only: false };

fn rules(grants: &[(&str, &[&str])], records: &[(&str, &[&str], bool)]) -> PathRules {
    let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    PathRules {
        disks: vec!["/disks".into()],
        boot: vec!["/images".into()],
        grants: grants
            .iter()
            .map(|(path, namespaces)| PathGrant {
                path: path.into(),
                namespaces: set(namespaces),
            })
            .collect(),
        records: Arc::new(
            records
                .iter()
                .map(|&(path, namespaces, exclusive)| {
                    let namespaces = set(namespaces);
                    (
                        path.into(),
                        PathRecord {
                            namespaces,
                            exclusive,
                            since: 0,
                        },
                    )
                })
                .collect(),
        ),
        setting: "paths.grants".to_owned(),
    }
}

fn judge(
    rules: &PathRules,
    namespace: &str,
    path: &str,
    wanted: PathUse,
) -> Result<String, PathRefusal> {
    let dir = rules.judge(namespace, Path::new(path), wanted)?;
    Ok(dir.display().to_string())
}

fn is_contested(rules: &PathRules, namespace: &str, path: &str) -> bool {
    let path = Path::new(path);
    rules.is_contested(namespace, path, rules.records.get(path))
}

fn is_refused(answer: &Result<String, PathRefusal>) -> bool {
    matches!(answer, Err(PathRefusal::NotGranted { .. }))
}

#[test]
fn a_namespace_has_the_directory_of_its_name_in_each_root_and_no_other() {
    let rules = rules(&[], &[]);
    assert_eq!(
        judge(&rules, "a", "/disks/a/x.img", WRITE).unwrap(),
        "/disks/a"
    );
    assert_eq!(
        judge(&rules, "a", "/images/a", PathUse::Image).unwrap(),
        "/images/a"
    );
    for path in [
        "/disks/b/x.img",
        "/disks/x.img",
        "/disks/ab/x.img",
        "/disks/a",
        "/images/a/x",
        "/etc/passwd",
    ] {
        assert!(is_refused(&judge(&rules, "a", path, WRITE)), "{path}");
        assert!(is_refused(&judge(&rules, "a", path, READ)), "{path}");
    }
    for path in ["/disks/a", "/images", "/images/b", "/images/b/debian"] {
        assert!(
            is_refused(&judge(&rules, "a", path, PathUse::Image)),
            "{path}"
        );
    }
}

#[test]
fn a_grant_is_for_the_namespaces_that_it_names_and_a_star_for_reading() {
    let rules = rules(&[("/srv", &["a", "b"]), ("/golden", &["*"])], &[]);
    assert_eq!(judge(&rules, "b", "/srv/x.img", WRITE).unwrap(), "/srv");
    assert!(is_refused(&judge(&rules, "c", "/srv/x.img", READ)));
    assert_eq!(
        judge(&rules, "c", "/golden/x.img", READ).unwrap(),
        "/golden"
    );
    assert_eq!(
        judge(&rules, "c", "/golden/debian", PathUse::Image).unwrap(),
        "/golden"
    );
    assert_eq!(
        judge(&rules, "c", "/golden", PathUse::Image).unwrap(),
        "/golden"
    );
    assert_eq!(
        judge(&rules, "c", "/golden/x.img", WRITE),
        Err(PathRefusal::SharedForReading)
    );
}

#[test]
fn a_disk_of_one_namespace_is_no_others_until_the_operator_grants_it_by_its_path() {
    let record: (&str, &[&str], bool) = ("/srv/x.img", &["a"], true);
    let shared = rules(&[("/srv", &["a", "b"]), ("/srv", &["*"])], &[record]);
    assert_eq!(judge(&shared, "a", "/srv/x.img", WRITE).unwrap(), "/srv");
    for wanted in [READ, WRITE, PathUse::Image] {
        let answer = judge(&shared, "b", "/srv/x.img", wanted);
        assert_eq!(answer, Err(PathRefusal::OwnedByOtherNamespace));
    }
    assert!(shared.belongs_to_other_namespace("b", Path::new("/srv/x.img")));
    assert!(!shared.belongs_to_other_namespace("b", Path::new("/srv/y.img")));
    assert!(shared.belongs_to_other_namespace("b", Path::new("/disks/a/x.img")));
    assert!(!shared.belongs_to_other_namespace("b", Path::new("/disks/b/x.img")));
    let granted = rules(&[("/srv/x.img", &["c"]), ("/srv/x.img", &["b"])], &[record]);
    assert_eq!(judge(&granted, "b", "/srv/x.img", WRITE).unwrap(), "/srv");
    assert!(!granted.belongs_to_other_namespace("b", Path::new("/srv/x.img")));
    // A star is no exact word about somebody's disk.
    let star = rules(&[("/srv/x.img", &["*"])], &[record]);
    assert_eq!(
        judge(&star, "b", "/srv/x.img", READ),
        Err(PathRefusal::OwnedByOtherNamespace)
    );
}

#[test]
fn of_two_paths_to_one_device_the_one_that_was_remembered_first_counts() {
    let before = |rules: &PathRules, namespace: &str, path: &str| -> Vec<String> {
        let paths = rules.older_disks_of_others(namespace, Path::new(path));
        paths.map(|path| path.display().to_string()).collect()
    };
    let numbered = |grants: &[(&str, &[&str])]| {
        let records: [(&str, &[&str], bool); 4] = [
            ("/dev/old", &["a"], true),
            ("/dev/first", &["a"], true),
            ("/dev/second", &["b"], true),
            ("/dev/shared", &["a"], false),
        ];
        let mut rules = rules(grants, &records);
        let records = Arc::make_mut(&mut rules.records);
        for (path, since) in [("/dev/first", 7), ("/dev/second", 8)] {
            records.get_mut(Path::new(path)).unwrap().since = since;
        }
        rules
    };
    let plain = numbered(&[("/dev", &["a", "b"])]);
    assert_eq!(
        before(&plain, "b", "/dev/second"),
        ["/dev/first", "/dev/old"]
    );
    assert!(before(&plain, "a", "/dev/first").is_empty());
    assert_eq!(before(&plain, "a", "/dev/third"), ["/dev/second"]);
    let all = ["/dev/first", "/dev/old", "/dev/second"];
    assert_eq!(before(&plain, "c", "/dev/third"), all);
    assert!(before(&plain, "b", "/disks/b/node").is_empty());
    let disks: Vec<&Path> = plain
        .exclusive_disks()
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        disks,
        ["/dev/old", "/dev/first", "/dev/second"].map(Path::new)
    );
    let exact = numbered(&[("/dev", &["a", "b"]), ("/dev/second", &["b"])]);
    assert!(before(&exact, "b", "/dev/second").is_empty());
    let other = numbered(&[("/dev/old", &["b"])]);
    assert_eq!(before(&other, "b", "/dev/second"), ["/dev/first"]);
}

#[test]
fn a_configured_directory_that_is_remembered_itself_says_nothing_of_what_is_in_it() {
    let rules = rules(&[], &[("/images", &["a"], false)]);
    let image = PathUse::Image;
    assert_eq!(judge(&rules, "a", "/images", image).unwrap(), "/images");
    assert!(is_refused(&judge(&rules, "a", "/images/b/debian", image)));
    assert_eq!(
        judge(&rules, "b", "/images/b/debian", image).unwrap(),
        "/images/b"
    );
    assert_eq!(
        judge(&rules, "b", "/images", image),
        Err(PathRefusal::LegacyNamespaces)
    );
    assert!(rules.contains_root(Path::new("/images")) && rules.contains_root(Path::new("/")));
    assert!(!rules.contains_root(Path::new("/images/a")));
}

#[test]
fn what_was_there_before_stays_with_those_who_used_it_and_can_be_shared() {
    let records: [(&str, &[&str], bool); 3] = [
        ("/disks/web.img", &["shop"], true),
        ("/disks/shop", &["default"], false),
        ("/images/debian", &["a", "b"], false),
    ];
    let before = rules(&[], &records);
    assert_eq!(
        judge(&before, "shop", "/disks/web.img", WRITE).unwrap(),
        "/disks"
    );
    assert_eq!(
        judge(&before, "b", "/images/debian", PathUse::Image).unwrap(),
        "/images"
    );
    // A directory that happens to have the name of a namespace is not handed to it.
    let refused = judge(&before, "shop", "/disks/shop/x.img", READ);
    assert_eq!(refused, Err(PathRefusal::LegacyNamespaces));
    assert_eq!(
        judge(&before, "default", "/disks/shop/x.img", READ).unwrap(),
        "/disks"
    );
    assert_eq!(
        judge(&before, "b", "/images/debian", WRITE),
        Err(PathRefusal::SharedForReading)
    );
    let refused = judge(&before, "c", "/images/debian", PathUse::Image);
    assert_eq!(refused, Err(PathRefusal::LegacyNamespaces));
    let shared = rules(&[("/images", &["*"])], &records);
    assert_eq!(
        judge(&shared, "c", "/images/debian", PathUse::Image).unwrap(),
        "/images"
    );
    // What is remembered counts only below what the configuration still lists.
    let mut elsewhere = before;
    elsewhere.disks = vec!["/other".into()];
    assert!(is_refused(&judge(
        &elsewhere,
        "shop",
        "/disks/web.img",
        WRITE
    )));
}

#[test]
fn only_a_disk_that_others_could_reach_has_to_be_remembered() {
    let is_contested = |rules: &PathRules, path: &str| is_contested(rules, "a", path);
    let plain = rules(&[("/srv", &["a"])], &[]);
    assert!(!is_contested(&plain, "/disks/a/x.img"));
    assert!(is_contested(&plain, "/srv/x.img"));
    let shared = rules(&[("/disks", &["*"])], &[]);
    assert!(is_contested(&shared, "/disks/a/x.img"));
    let known = rules(&[("/srv", &["a"])], &[("/srv/x.img", &["a"], true)]);
    assert!(!is_contested(&known, "/srv/x.img"));
    let exact = rules(&[("/srv/x.img", &["a", "b"])], &[]);
    assert!(!is_contested(&exact, "/srv/x.img"));
    // Shared for reading on purpose.
    let golden = rules(&[("/srv", &["a"]), ("/srv/x.img", &["*"])], &[]);
    assert!(!is_contested(&golden, "/srv/x.img"));
    let own = rules(&[("/disks/a/x.img", &["a"])], &[]);
    assert!(!is_contested(&own, "/disks/a/x.img"));
    let anothers = rules(&[("/disks/b/x.img", &["a"])], &[]);
    assert!(is_contested(&anothers, "/disks/b/x.img"));
}

#[test]
fn a_grant_of_a_directory_above_and_one_of_exactly_the_disk_compete_for_it() {
    let below = rules(&[("/srv", &["b"]), ("/srv/x.img", &["a"])], &[]);
    for namespace in ["a", "b"] {
        assert!(is_contested(&below, namespace, "/srv/x.img"));
        judge(&below, namespace, "/srv/x.img", WRITE).unwrap();
    }
}

/// The rules once a VMI of the namespace was accepted with the disk as one to write to.
fn accept(rules: &mut PathRules, namespace: &str, path: &str) -> Result<u64, PathRefusal> {
    let path = Path::new(path);
    let since = 1 + rules
        .records
        .values()
        .map(|record| record.since)
        .max()
        .unwrap_or(0);
    let before = rules.records.get(path).cloned();
    if rules.is_contested(namespace, path, before.as_ref()) {
        let record = rules.record_for(namespace, path, before, since)?;
        Arc::make_mut(&mut rules.records).insert(path.to_owned(), record);
    }
    Ok(rules.records.get(path).map_or(0, |record| record.since))
}

#[test]
fn whom_the_operator_grants_exactly_a_disk_takes_it_from_its_namespace_and_from_grants_above() {
    let disk = "/srv/x.img";
    let above: (&str, &[&str]) = ("/srv", &["a", "c"]);
    let mut handed = rules(&[above], &[]);
    let first = accept(&mut handed, "a", disk).unwrap();
    assert_eq!(
        accept(&mut handed, "c", disk),
        Err(PathRefusal::OwnedByOtherNamespace)
    );
    handed
        .grants
        .push(rules(&[(disk, &["b"])], &[]).grants.remove(0));
    // Its namespace goes on until the other one writes to it.
    judge(&handed, "a", disk, WRITE).unwrap();
    assert_eq!(accept(&mut handed, "b", disk), Ok(first));
    assert!(!is_contested(&handed, "b", disk));
    for namespace in ["a", "c"] {
        for wanted in [READ, WRITE, PathUse::Image] {
            let refused = judge(&handed, namespace, disk, wanted);
            assert_eq!(
                refused,
                Err(PathRefusal::OwnedByOtherNamespace),
                "{namespace}"
            );
        }
        assert!(handed.belongs_to_other_namespace(namespace, Path::new(disk)));
        assert!(is_contested(&handed, namespace, disk));
        let refused = accept(&mut handed, namespace, disk);
        assert_eq!(refused, Err(PathRefusal::OwnedByOtherNamespace));
    }
    judge(&handed, "b", disk, WRITE).unwrap();
    // It stays so when the grant is gone again.
    handed.grants.truncate(1);
    judge(&handed, "b", disk, WRITE).unwrap();
    assert_eq!(
        judge(&handed, "a", disk, READ),
        Err(PathRefusal::OwnedByOtherNamespace)
    );
}

#[test]
fn a_disk_that_is_granted_exactly_to_several_serves_them_all_and_nobody_else() {
    let disk = "/srv/x.img";
    let mut shared = rules(&[("/srv", &["a", "c"]), (disk, &["a", "b"])], &[]);
    for namespace in ["a", "b", "a"] {
        accept(&mut shared, namespace, disk).unwrap();
        judge(&shared, "a", disk, WRITE).unwrap();
        judge(&shared, "b", disk, WRITE).unwrap();
        assert_eq!(
            judge(&shared, "c", disk, READ),
            Err(PathRefusal::OwnedByOtherNamespace)
        );
    }
    let both = ["a", "b"].map(str::to_owned).into();
    assert_eq!(shared.records[Path::new(disk)].namespaces, both);
}

#[test]
fn a_disk_in_another_namespaces_directory_and_one_from_before_change_hands_likewise() {
    let record: (&str, &[&str], bool) = ("/disks/old.img", &["default", "b"], true);
    let grants: [(&str, &[&str]); 2] = [("/disks/a/x.img", &["b"]), ("/disks/old.img", &["b"])];
    let mut rules = rules(&grants, &[record]);
    judge(&rules, "a", "/disks/a/x.img", WRITE).unwrap();
    judge(&rules, "default", "/disks/old.img", WRITE).unwrap();
    for (former, disk) in [("a", "/disks/a/x.img"), ("default", "/disks/old.img")] {
        accept(&mut rules, "b", disk).unwrap();
        let refused = judge(&rules, former, disk, READ);
        assert_eq!(refused, Err(PathRefusal::OwnedByOtherNamespace), "{disk}");
    }
}

#[test]
fn a_symlink_leads_to_no_file_that_stays_with_other_namespaces() {
    let left_over: (&str, &[&str], bool) = ("/disks/old.img", &["default"], false);
    let old = Path::new("/disks/old.img");
    let ungranted = rules(&[], &[left_over]);
    assert!(ungranted.belongs_to_other_namespace("a", old));
    assert!(!ungranted.belongs_to_other_namespace("default", old));
    // As where the path itself is named.
    let refused = judge(&ungranted, "a", "/disks/old.img", READ);
    assert_eq!(refused, Err(PathRefusal::LegacyNamespaces));
    for grant in ["/disks/old.img", "/disks"] {
        let granted = rules(&[(grant, &["a"])], &[left_over]);
        assert!(!granted.belongs_to_other_namespace("a", old), "{grant}");
        judge(&granted, "a", "/disks/old.img", READ).unwrap();
        assert!(granted.belongs_to_other_namespace("b", old), "{grant}");
    }
}

#[test]
fn who_names_a_directory_as_a_disk_has_not_made_its_files_his() {
    let mut shared = rules(&[("/disks/shared", &["a", "b"])], &[]);
    accept(&mut shared, "b", "/disks/shared").unwrap();
    for namespace in ["a", "b"] {
        judge(&shared, namespace, "/disks/shared/x.img", WRITE).unwrap();
        assert!(!shared.belongs_to_other_namespace(namespace, Path::new("/disks/shared/x.img")));
    }
    // Nor has he them once the operator has taken the grant away.
    shared.grants.clear();
    assert!(is_refused(&judge(
        &shared,
        "b",
        "/disks/shared/x.img",
        READ
    )));
}
