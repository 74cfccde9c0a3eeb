//! Failures of the host, by policy.

use std::process::Command;

use super::*;

fn policies(read: ErrorPolicy, write: ErrorPolicy, engine: IoEngine) -> BlkConfig {
    BlkConfig {
        errors: ErrorPolicies { read, write },
        ..config_with(engine)
    }
}

#[test]
fn a_held_read_is_answered_when_it_is_tried_again() {
    for engine in ENGINES {
        let file = image();
        let configured = policies(ErrorPolicy::Stop, ErrorPolicy::Report, engine);
        let mut bench = bench(&file, &configured);
        let driver = &mut bench.driver;
        file.set_len(512).unwrap();
        start(driver, IN, 3, &[write(DATA, 512)]);
        while bench.notices.lock().unwrap().is_empty() {
            assert!(driver.settle_own(10_000));
        }
        assert!(bench.control.is_stopped());
        let notices = [DeviceNotice::IoStopped { errno: 5 }];
        assert_eq!(*bench.notices.lock().unwrap(), notices);
        // Nothing else is begun meanwhile.
        driver.offer(0, &[read(HEADER, 16), write(DATA, 512), write(STATUS, 1)]);
        driver.kick(0);
        assert_eq!(driver.used(0), None);

        // Still broken: held again, and another notice.
        bench.control.retry();
        while bench.notices.lock().unwrap().len() < 2 {
            assert!(driver.settle_own(10_000));
        }
        assert_eq!(driver.used(0), None);
        fill(&file);
        bench.control.retry();
        let mut ended = [driver.wait_used(0), driver.wait_used(0)];
        ended.sort_unstable();
        assert_eq!(ended, [Some((0, 513)), Some((3, 513))]);
        assert_eq!(driver.bytes(DATA, 1), [3]);
        assert!(!bench.control.is_stopped());
        assert_eq!(request(driver, IN, 1, &[write(DATA, 512)]), 0);
    }
}

#[test]
fn a_reset_drops_what_is_held() {
    for engine in ENGINES {
        let file = image();
        let configured = policies(ErrorPolicy::Stop, ErrorPolicy::Report, engine);
        let mut bench = bench(&file, &configured);
        file.set_len(512).unwrap();
        start(&mut bench.driver, IN, 3, &[write(DATA, 512)]);
        while !bench.control.is_stopped() {
            assert!(bench.driver.settle_own(10_000));
        }
        bench.driver.set_status(0);
        assert!(!bench.control.is_stopped());
        fill(&file);
        bench.driver.start(16, VERSION_1);
        assert_eq!(request(&mut bench.driver, IN, 1, &[write(DATA, 512)]), 0);
    }
}

#[test]
fn an_ignored_failure_is_a_success_and_a_reported_one_is_not() {
    for engine in ENGINES {
        for (policy, status) in [
            (ErrorPolicy::Ignore, 0),
            (ErrorPolicy::Report, 1),
            (ErrorPolicy::StopOnNoSpace, 1),
        ] {
            let file = image();
            let mut bench = bench(&file, &policies(policy, ErrorPolicy::Stop, engine));
            file.set_len(0).unwrap();
            let driver = &mut bench.driver;
            assert_eq!(request(driver, IN, 3, &[write(DATA, 512)]), status);
            // What the driver does wrong is an error in any case.
            assert_eq!(request(driver, IN, SECTORS, &[write(DATA, 512)]), 1);
            assert_eq!(request(driver, OUT, SECTORS, &[read(DATA, 512)]), 1);
            assert!(bench.notices.lock().unwrap().is_empty());
        }
    }
}

/// A tmpfs of 1 MiB, where the process may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "small"])
            .arg(directory.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            test_skip::report("a tmpfs cannot be mounted here");
        }
        mounted.then(|| Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount")
            .args(["-l".as_ref(), self.0.path().as_os_str()])
            .status()
            .unwrap();
    }
}

#[test]
fn a_write_waits_for_space_on_a_full_host() {
    for engine in ENGINES {
        let Some(disk) = SmallDisk::new() else { return };
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(disk.0.path().join("image"))
            .unwrap();
        file.set_len(512 << 10).unwrap();
        let filler = disk.0.path().join("filler");
        std::fs::write(&filler, vec![1; 2 << 20]).unwrap_err();
        let configured = policies(ErrorPolicy::Report, ErrorPolicy::StopOnNoSpace, engine);
        let mut bench = bench(&file, &configured);
        bench.driver.fill(DATA, &[0x5a; 4096]);
        start(&mut bench.driver, OUT, 8, &[read(DATA, 4096)]);
        while bench.notices.lock().unwrap().is_empty() {
            assert!(bench.driver.settle_own(10_000));
        }
        let notices = [DeviceNotice::IoStopped { errno: 28 }];
        assert_eq!(*bench.notices.lock().unwrap(), notices);
        std::fs::remove_file(&filler).unwrap();
        bench.control.retry();
        assert_eq!(bench.driver.wait_used(0), Some((0, 1)));
        assert_eq!(sector_of(&file, 15), [0x5a; 512]);
    }
}
