//! The process that reads an image has nothing but its descriptors, and not for ever.

use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use integration::{skip, skip_if};

use super::made::Images;

/// An image that takes long: a disk of 900 GiB without a byte in it, which is read all the same.
fn large(images: &Images) {
    let file = fs::File::create(images.path("large")).expect("made");
    file.set_len(900 << 30).expect("sparse");
}

/// The process that a process has started, once it has given up its rights.
fn reader_of(parent: &Child) -> u32 {
    let until = Instant::now() + Duration::from_secs(30);
    let children = format!("/proc/{0}/task/{0}/children", parent.id());
    loop {
        let pid = fs::read_to_string(&children).expect("a process");
        if let Ok(pid) = pid.trim().parse()
            && status(pid, "Seccomp").as_deref() == Some("2")
        {
            return pid;
        }
        assert!(Instant::now() < until, "no process reads the image");
        // The child is there for a moment, and nothing reports its start.
        sleep(Duration::from_millis(5));
    }
}

fn status(pid: u32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.strip_prefix(':'))
        .map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn the_reader_has_no_rights_no_network_and_no_file_but_its_own_and_dies_with_its_parent() {
    skip_if!(skip::without_node());
    let images = Images::new();
    large(&images);
    let mut parent = images
        .command("convert -f raw large out")
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let pid = reader_of(&parent);
    assert_eq!(status(pid, "NoNewPrivs").as_deref(), Some("1"));
    assert_eq!(status(pid, "CapEff").as_deref(), Some("0000000000000000"));
    if nix::unistd::geteuid().is_root() {
        let nobody = ["65534"; 4].join(" ");
        assert_eq!(status(pid, "Uid"), Some(nobody.clone()));
        assert_eq!(status(pid, "Gid"), Some(nobody));
        for namespace in ["net", "mnt", "ipc"] {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{namespace}"));
            assert_ne!(
                of(&pid.to_string()).expect("a namespace"),
                of("self").expect("a namespace"),
                "{namespace}"
            );
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
        let row = limits
            .lines()
            .find(|line| line.starts_with("Max address space"));
        assert!(row.expect("a limit").contains("805306368"), "{limits}");
        let files: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("descriptors")
            .map(|entry| fs::read_link(entry.expect("a descriptor").path()).expect("a file"))
            .map(|file| file.display().to_string())
            .filter(|file| file != "/dev/null" && !file.starts_with("socket:"))
            // Those that this test program was started with, for messages.
            .filter(|file| !file.starts_with("pipe:") && !file.starts_with("/dev/"))
            .collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(
            files.iter().any(|file| file.ends_with("/large")),
            "{files:?}"
        );
    }
    parent.kill().expect("killed");
    parent.wait().expect("ended");
    let until = Instant::now() + Duration::from_secs(10);
    while status(pid, "State").is_some_and(|state| !state.starts_with('Z')) {
        assert!(Instant::now() < until, "the reader outlives its parent");
        // It is nobody's child here, so its end is looked for.
        sleep(Duration::from_millis(5));
    }
    assert_eq!(images.names(), ["large"]);
}

#[test]
fn a_conversion_that_takes_too_long_is_ended() {
    skip_if!(skip::without_node());
    let images = Images::new();
    large(&images);
    let text = images.refusal("convert --timeout 1 -f raw large out");
    assert!(text.contains("--timeout allows more"), "{text}");
    assert_eq!(images.names(), ["large"]);
}
