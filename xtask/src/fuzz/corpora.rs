//! Corpora: in `vmm/fuzz/corpus/TARGET` those that people wrote, in `vmm/fuzz/corpus/TARGET.tar.zst` what
//! campaigns have found, minimised; in a directory outside of the clone those that grow.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Largest packed corpus that is checked in.
const MOST_PACKED_BYTES: u64 = 1 << 20;
/// Longest program in a packed corpus; they come with a clone, so this only bounds mistakes.
const MOST_PROGRAM_BYTES: u64 = 1 << 20;
const MOST_PROGRAMS: usize = 65_536;
/// zstd's level: packing is rare.
const LEVEL: i32 = 19;

/// The corpora of all targets.
pub(crate) struct Corpora {
    kept: PathBuf,
    growing: PathBuf,
}

impl Corpora {
    /// Those of the clone at `root`, which grow in `growing`.
    pub(crate) fn new(root: &Path, growing: PathBuf) -> Self {
        Self {
            kept: root.join("vmm/fuzz/corpus"),
            growing,
        }
    }

    /// Where a target's corpus grows.
    pub(crate) fn grown(&self, target: &str) -> PathBuf {
        self.growing.join("corpus").join(target)
    }

    /// Where programs that failed are kept.
    pub(crate) fn findings(&self) -> PathBuf {
        self.growing.join("findings")
    }

    /// What libFuzzer printed when it last fed the target.
    pub(crate) fn log(&self, target: &str) -> PathBuf {
        self.growing.join(format!("{target}.log"))
    }

    /// Begins a growing corpus with all that is kept, so that a campaign goes on where the last one
    /// ended.
    pub(crate) fn begin(&self, target: &str) -> anyhow::Result<()> {
        let grown = self.grown(target);
        fs::create_dir_all(&grown).with_context(|| grown.display().to_string())?;
        for entry in fs::read_dir(self.kept.join(target))? {
            let entry = entry?;
            fs::copy(entry.path(), grown.join(entry.file_name()))?;
        }
        let packed = self.packed(target);
        if packed.exists() {
            unpack(&packed, &grown).with_context(|| packed.display().to_string())?;
        }
        Ok(())
    }

    /// Packs the programs in the directory `minimised` for the clone. Returns how many they are, and the
    /// bytes of the file.
    pub(crate) fn keep(&self, target: &str, minimised: &Path) -> anyhow::Result<(usize, u64)> {
        let packed = self.packed(target);
        let count = pack(minimised, &packed).with_context(|| packed.display().to_string())?;
        let bytes = fs::metadata(&packed)?.len();
        anyhow::ensure!(
            bytes <= MOST_PACKED_BYTES,
            "{}: {bytes} bytes are more than the {MOST_PACKED_BYTES} that a clone keeps for a target",
            packed.display()
        );
        Ok((count, bytes))
    }

    fn packed(&self, target: &str) -> PathBuf {
        self.kept.join(format!("{target}.tar.zst"))
    }
}

/// Packs the files of a directory, in the order of their names and without times, so that the same
/// corpus is the same file.
fn pack(from: &Path, to: &Path) -> anyhow::Result<usize> {
    let mut names: Vec<PathBuf> = fs::read_dir(from)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    names.sort();
    let mut archive = tar::Builder::new(zstd::Encoder::new(Vec::new(), LEVEL)?);
    for path in &names {
        let program = fs::read(path)?;
        let mut header = tar::Header::new_ustar();
        header.set_size(program.len() as u64);
        header.set_mode(0o644);
        let name = path.file_name().context("a file name")?;
        archive.append_data(&mut header, name, program.as_slice())?;
    }
    let bytes = archive.into_inner()?.finish()?;
    File::create(to)?.write_all(&bytes)?;
    Ok(names.len())
}

fn unpack(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(from)?)?);
    for entry in archive.entries()?.take(MOST_PROGRAMS) {
        let mut entry = entry?;
        anyhow::ensure!(entry.size() <= MOST_PROGRAM_BYTES, "a program is too long");
        let path = entry.path()?.into_owned();
        let name = path.file_name().context("a program without a name")?;
        let mut file = File::create(to.join(name))?;
        std::io::copy(&mut entry, &mut file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_corpus_begins_the_next_campaign() {
        let clone = tempfile::tempdir().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let corpora = Corpora::new(clone.path(), cache.path().to_owned());
        let kept = clone.path().join("vmm/fuzz/corpus");
        fs::create_dir_all(kept.join("blk")).unwrap();
        fs::write(kept.join("blk/plain"), "by hand").unwrap();
        let found = tempfile::tempdir().unwrap();
        fs::write(found.path().join("0b"), "second").unwrap();
        fs::write(found.path().join("0a"), "first").unwrap();
        let packed = kept.join("blk.tar.zst");
        assert_eq!(pack(found.path(), &packed).unwrap(), 2);
        let bytes = fs::read(&packed).unwrap();
        pack(found.path(), &packed).unwrap();
        assert_eq!(fs::read(&packed).unwrap(), bytes);

        corpora.begin("blk").unwrap();
        let read = |name: &str| fs::read_to_string(corpora.grown("blk").join(name)).unwrap();
        let programs = ["plain", "0a", "0b"].map(read);
        assert_eq!(programs, ["by hand", "first", "second"]);
    }
}
