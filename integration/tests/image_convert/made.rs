//! Images that `qemu-img` makes, and the commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use integration::{artifacts, process};
use tempfile::TempDir;

/// A directory of images, in which all names are.
pub struct Images(TempDir);

impl Images {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a file")
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("written");
    }

    /// Runs `qemu-img` with the words of `line`.
    pub fn qemu_img(&self, line: &str) -> String {
        /// To measure how strong a key may be takes QEMU processor time that it cannot always tell.
        const UNLUCKY: &str = "Unable to get accurate CPU usage";
        let run = || {
            let mut command = Command::new("qemu-img");
            command.args(line.split_whitespace());
            process::output(command.current_dir(self.0.path()))
        };
        let is_unlucky = |done: &anyhow::Result<String>| matches!(done, Err(error) if error.to_string().contains(UNLUCKY));
        let mut runs = std::iter::repeat_with(run).take(20);
        let done = runs.find(|done| !is_unlucky(done));
        done.expect("qemu-img measures in the end")
            .expect("qemu-img")
    }

    /// Runs commands of `qemu-io` on an image, one after another.
    pub fn qemu_io(&self, image: &str, commands: &[String]) {
        let mut command = Command::new("qemu-io");
        for text in commands {
            command.args(["-c", text]);
        }
        process::output(command.arg(image).current_dir(self.0.path())).expect("qemu-io");
    }

    /// `kvmlet image` with the words of `line`.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(artifacts::program("kvmlet").expect("built"));
        command
            .arg("image")
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }

    pub fn kvmlet(&self, line: &str) -> Output {
        self.command(line).output().expect("started")
    }

    /// What `kvmlet image` with the words of `line` is refused with.
    #[track_caller]
    pub fn refusal(&self, line: &str) -> String {
        let output = self.kvmlet(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{line}: {text}");
        assert!(text.starts_with("kvmlet: "), "{text}");
        text
    }

    /// Converts by both and compares. `backing` is the chain below, for us alone.
    #[track_caller]
    pub fn assert_same(&self, image: &str, backing: &[&str]) {
        let (ours, theirs) = (self.path("ours.raw"), self.path("theirs.raw"));
        let below: String = backing
            .iter()
            .map(|name| format!(" --backing {name}"))
            .collect();
        let output = self.kvmlet(&format!("convert {image} ours.raw{below}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{image}: {text}");
        self.qemu_img(&format!("convert -O raw {image} theirs.raw"));
        assert_same_file(&ours, &theirs);
        for path in [ours, theirs] {
            fs::remove_file(path).expect("removed");
        }
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        names
    }
}

#[track_caller]
fn assert_same_file(ours: &Path, theirs: &Path) {
    let (ours, theirs) = (
        fs::read(ours).expect("ours"),
        fs::read(theirs).expect("theirs"),
    );
    assert_eq!(ours.len(), theirs.len(), "the size");
    if let Some(at) = (0..ours.len()).find(|at| ours[*at] != theirs[*at]) {
        panic!("byte {at:#x} is {:#x}, not {:#x}", ours[at], theirs[at]);
    }
}

/// A stream of numbers (`SplitMix64`): the same images each time.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let count = u64::try_from(count).expect("64 bits");
        usize::try_from((mixed ^ mixed >> 31) % count).expect("64 bits")
    }
}

/// A disk with holes, text that compresses well, and noise that does not.
pub fn disk(bytes: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed);
    let mut disk = vec![0; bytes];
    let mut at = 0;
    while at < bytes {
        let end = (at + 512 * (1 + chance.below(300))).min(bytes);
        let part = &mut disk[at..end];
        match chance.below(3) {
            0 => {}
            1 => part
                .iter_mut()
                .enumerate()
                .for_each(|(at, byte)| *byte = b"what a disk holds "[at % 18]),
            _ => part
                .iter_mut()
                .for_each(|byte| *byte = u8::try_from(chance.below(256)).expect("a byte")),
        }
        at = end;
    }
    disk
}
