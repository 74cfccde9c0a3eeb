//! `testguest` under plain QEMU: what it says about a machine is true on one that is not ours, so
//! what it says about ours can be believed.

#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use integration::process::Bound;
use integration::testguest::{self, FIRST_WORD_ON_DISK, Results};
use integration::{skip_if, tools};

const DISK_BYTES: u64 = 4 << 20;
/// A run takes a second; a crowded machine may need more.
const PATIENCE: Duration = Duration::from_secs(90);
const BASE: &str =
    "-accel tcg -M q35 -m 32 -nodefaults -nographic -no-reboot -serial stdio -append";

const DISK: &[&str] = &[
    "-device",
    "virtio-blk-pci,drive=disk,disable-legacy=on,serial=scratch",
];
const NIC: &[&str] = &[
    "-device",
    "virtio-net-pci,netdev=net,disable-legacy=on,romfile=,mac=52:54:00:00:00:01",
];
const RNG: &[&str] = &["-device", "virtio-rng-pci,disable-legacy=on"];

fn without_guest() -> Option<String> {
    let qemu = tools::missing(tools::NODE).into_iter().next();
    qemu.map(|package| format!("testguest cannot run under QEMU without the package {package}"))
        .or_else(testguest::missing)
}

/// A machine with a scratch disk and a network whose other end is the test.
struct Machine {
    qemu: Bound,
    lines: Receiver<String>,
    seen: Vec<String>,
    directory: tempfile::TempDir,
    deadline: Instant,
}

impl Machine {
    fn boot(command_line: &str, devices: &[&[&str]], drive: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = directory.path().join("disk");
        File::create(&disk)
            .and_then(|file| file.set_len(DISK_BYTES))
            .expect("a disk");
        echo(directory.path().join("peer"));
        let at = |name: &str| directory.path().join(name).display().to_string();
        let words = BASE.split(' ').chain([command_line, "-kernel"]);
        let mut arguments: Vec<String> = words.map(str::to_owned).collect();
        arguments.extend([
            testguest::elf()
                .expect("checked before")
                .display()
                .to_string(),
            "-drive".to_owned(),
            format!("if=none,id=disk,format=raw,file={}{drive}", at("disk")),
        ]);
        let devices = devices.concat();
        if devices.contains(&NIC[1]) {
            let (here, there) = (at("qemu"), at("peer"));
            let network = format!(
                "dgram,id=net,local.type=unix,local.path={here},remote.type=unix,remote.path={there}"
            );
            arguments.extend(["-netdev".to_owned(), network]);
        }
        arguments.extend(devices.iter().map(ToString::to_string));
        let mut qemu = Bound::start("qemu-system-x86_64", &arguments, |command| {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        })
        .expect("QEMU starts");
        let stdout = qemu.child().stdout.take().expect("it is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let deadline = Instant::now() + PATIENCE;
        Self {
            qemu,
            lines,
            seen: Vec::new(),
            directory,
            deadline,
        }
    }

    /// The next result line, `None` when QEMU has ended.
    fn line(&mut self) -> Option<String> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if let Some(result) = testguest::result(&line) {
                        return Some(result.to_owned());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "the machine did not end; its console:\n{}",
                        self.seen.join("\n")
                    )
                }
            }
        }
    }

    fn wait_for(&mut self, wanted: &str) {
        while let Some(line) = self.line() {
            if line.starts_with(wanted) {
                return;
            }
        }
        panic!("no line {wanted:?}; the console:\n{}", self.seen.join("\n"));
    }

    /// All result lines up to the machine's end, which has to be QEMU's regular one.
    fn results(&mut self) -> Results {
        let mut lines = Vec::new();
        while let Some(line) = self.line() {
            lines.push(line);
        }
        let status = self.qemu.child().wait().expect("it was not waited for");
        assert!(
            status.success(),
            "QEMU ended with {status}: {:#?}",
            self.seen
        );
        Results(lines)
    }

    fn type_in(&mut self, text: &[u8]) {
        let stdin = self.qemu.child().stdin.as_mut().expect("it is a pipe");
        stdin
            .write_all(text)
            .and_then(|()| stdin.flush())
            .expect("QEMU reads");
    }

    fn disk(&self) -> PathBuf {
        self.directory.path().join("disk")
    }
}

/// Sends each frame back with its MAC addresses swapped, until the directory is gone.
fn echo(path: PathBuf) {
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .expect("set");
    std::thread::spawn(move || {
        let mut frame = [0; 2048];
        while path.exists() {
            let Ok((bytes, sender)) = socket.recv_from(&mut frame) else {
                continue;
            };
            testguest::make_echo(&mut frame[..bytes]);
            if let Some(sender) = sender.as_pathname() {
                // QEMU may have ended meanwhile.
                socket.send_to(&frame[..bytes], sender).ok();
            }
        }
    });
}

fn first_word(disk: &Path) -> u64 {
    let mut word = [0; 8];
    let mut file = File::open(disk).expect("the disk");
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.read_exact(&mut word))
        .expect("8 bytes");
    u64::from_le_bytes(word)
}

#[test]
fn blk_net_and_rng_work_with_interrupts_and_by_polling() {
    skip_if!(without_guest());
    for mode in ["irq", "poll"] {
        let command_line = format!("mode={mode} blk_kib=512");
        let mut machine = Machine::boot(&command_line, &[DISK, NIC, RNG], "");
        let results = machine.results();
        assert_eq!(
            results.one("done"),
            "passed=6 failed=0 skipped=0",
            "{results:#?}"
        );
        for device in ["blk", "net", "rng"] {
            assert!(results.one(device).starts_with("ok "), "{results:#?}");
            let irqs = results.number(device, "irqs");
            assert_eq!(irqs > 0, mode == "irq", "{device} had {irqs} interrupts");
        }
        assert_eq!(results.number("blk", "capacity_bytes"), DISK_BYTES);
        assert_eq!(results.number("blk", "verified_bytes"), 512 << 10);
        assert!(results.one("blk").contains("id=\"scratch\""));
        assert_eq!(results.number("net", "retries"), 0);
        assert!(
            results
                .one("net")
                .contains("mac=52:54:00:00:00:01 frames=16")
        );
        assert_eq!(first_word(&machine.disk()), FIRST_WORD_ON_DISK);
    }
}

#[test]
fn bars_above_4_gib_and_devices_behind_bridges_are_found() {
    skip_if!(without_guest());
    // A BAR that does not fit below moves all 64-bit ones above.
    let behind = [
        "-device",
        "pci-testdev,membar=4G",
        "-device",
        "pcie-root-port,id=behind-port,chassis=1,slot=1",
        "-device",
        "virtio-rng-pci,bus=behind-port,disable-legacy=on",
        "-device",
        "pcie-pci-bridge,id=behind-bridge,bus=pcie.0",
        "-device",
        "virtio-rng-pci,bus=behind-bridge,addr=3,disable-legacy=on",
    ];
    let results = Machine::boot("", &[DISK, NIC, &behind], "").results();
    assert_eq!(
        results.one("done"),
        "passed=7 failed=0 skipped=0",
        "{results:#?}"
    );
    assert!(results.number("blk", "registers") >= 4 << 30);
    let rngs = results.of("rng");
    assert!(
        rngs.len() == 2 && rngs.iter().all(|line| !line.contains("pci=00:")),
        "{rngs:#?}"
    );
}

#[test]
fn a_read_only_disk_is_left_alone() {
    skip_if!(without_guest());
    let mut machine = Machine::boot("tests=blk", &[DISK], ",readonly=on");
    let results = machine.results();
    assert!(
        results
            .one("blk")
            .contains("verified_bytes=0 read_only=true"),
        "{results:#?}"
    );
    assert_eq!(first_word(&machine.disk()), 0);
}

#[test]
fn absent_devices_are_skipped_and_bad_words_are_failures() {
    skip_if!(without_guest());
    let results = Machine::boot("mode=often", &[], "").results();
    assert_eq!(
        results.one("done"),
        "passed=3 failed=1 skipped=3",
        "{results:#?}"
    );
    assert!(results.one("cmdline").contains("mode=often"));
}

#[test]
fn an_absent_peer_is_a_failure() {
    skip_if!(without_guest());
    let mut machine = Machine::boot("tests=net peer=02:00:00:00:00:99", &[NIC], "");
    fs::remove_file(machine.directory.path().join("peer")).expect("the echo's socket");
    let results = machine.results();
    assert!(results.one("net").starts_with("FAIL "), "{results:#?}");
    assert_eq!(
        results.one("done"),
        "passed=3 failed=1 skipped=0",
        "{results:#?}"
    );
}

#[test]
fn it_ticks_reboots_and_shuts_down_as_configured() {
    skip_if!(without_guest());
    let ticks = Machine::boot("tests=none then=tick tick_ms=20 ticks=3", &[], "").results();
    let counts: Vec<&str> = ticks
        .of("tick")
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(counts, ["count=1", "count=2", "count=3"]);
    // With `-no-reboot` QEMU ends instead of starting the machine again.
    let last = |then: &str| {
        let results = Machine::boot(&format!("tests=none then={then}"), &[], "").results();
        results.0.last().cloned()
    };
    assert_eq!(last("reboot").as_deref(), Some("reboot"));
    assert_eq!(last("panic").as_deref(), Some("triple-fault"));
}

#[test]
fn it_answers_on_the_console_until_it_is_asked_to_power_off() {
    skip_if!(without_guest());
    let mut machine = Machine::boot("tests=none then=echo", &[], "");
    machine.wait_for("echo");
    machine.type_in(b"hello there\n");
    machine.wait_for("echo line=\"hello there\"");
    machine.type_in(b"poweroff\n");
    machine.results();
}
