//! What control planes assigned, on a real file.

use agent_plan::{Assignment, BootId, Stage};
use agent_store::{AssignmentKey, Ledger, Limits, StoreError};

fn key(name: &str) -> AssignmentKey {
    AssignmentKey {
        control_plane: String::from("north"),
        namespace: String::from("default"),
        name: name.to_owned(),
    }
}

fn assignment(token: u64, stage: Stage) -> Assignment {
    Assignment {
        token,
        digest: String::from("a"),
        stage,
        boot_id: BootId(String::from("boot")),
        lease: None,
    }
}

fn open(directory: &std::path::Path) -> Ledger {
    Ledger::open(&directory.join("ledger.redb"), Limits::default()).expect("the ledger opens")
}

#[test]
fn assignments_and_the_highest_token_outlive_the_agent() {
    let directory = tempfile::tempdir().expect("a directory");
    let written: Result<(), StoreError> = open(directory.path()).write(|transaction| {
        transaction.put_assignment(&key("web"), &assignment(7, Stage::Made))?;
        transaction.put_assignment(&key("old"), &assignment(3, Stage::Withdrawn))
    });
    written.expect("is written");
    let ledger = open(directory.path());
    let all = ledger.assignments().expect("are read");
    assert_eq!(
        all,
        [
            (key("old"), assignment(3, Stage::Withdrawn)),
            (key("web"), assignment(7, Stage::Made))
        ]
    );
    let (mark, other): (_, _) = ledger
        .write(|transaction| {
            Ok::<_, StoreError>((
                transaction.control_plane("north")?,
                transaction.control_plane("south")?,
            ))
        })
        .expect("are read");
    assert_eq!((mark.highest, mark.floor, other.highest), (7, 0, 0));
}

#[test]
fn what_is_forgotten_is_fenced_by_the_floor() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let written: Result<(), StoreError> = ledger.write(|transaction| {
        transaction.put_assignment(&key("kept"), &assignment(1, Stage::Made))?;
        for token in 2..=8193 {
            let withdrawn = assignment(token, Stage::Withdrawn);
            transaction.put_assignment(&key(&format!("name-{token}")), &withdrawn)?;
        }
        Ok(())
    });
    written.expect("is written");
    let all = ledger.assignments().expect("are read");
    assert_eq!(all.len(), 8192);
    assert!(all.iter().any(|(known, _)| *known == key("kept")));
    assert!(all.iter().all(|(_, assignment)| assignment.token != 2));
    let mark = ledger.write(|transaction| transaction.control_plane("north"));
    let mark = mark.expect("is read");
    assert_eq!((mark.highest, mark.floor), (8193, 2));
}
