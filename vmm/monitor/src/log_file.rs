//! The file that keeps a console's output, never longer than a limit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const CHUNK_BYTES: usize = 64 << 10;

/// Appends; when the limit is reached the older half goes.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    length: u64,
    limit: u64,
}

impl LogFile {
    /// Goes on behind what `file` already holds.
    pub fn new(file: File, limit_bytes: u64) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let mut log = Self {
            file,
            length,
            limit: limit_bytes,
        };
        log.drop_older_half_if_full(0)?;
        Ok(log)
    }

    /// Appends `bytes`, of which there may be at most half the limit.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.drop_older_half_if_full(bytes.len() as u64)?;
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Keeps the newer half, moved to the front, when `bytes` more would be too much.
    fn drop_older_half_if_full(&mut self, bytes: u64) -> io::Result<()> {
        if self.length.saturating_add(bytes) <= self.limit {
            return Ok(());
        }
        let keep = self.length.min(self.limit / 2);
        let from = self.length - keep;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut moved = 0;
        while moved < keep {
            let rest = usize::try_from(keep - moved).unwrap_or(CHUNK_BYTES);
            let Some(chunk) = buffer.get_mut(..rest.min(CHUNK_BYTES)) else {
                break;
            };
            self.file.read_exact_at(chunk, from + moved)?;
            self.file.write_all_at(chunk, moved)?;
            moved += chunk.len() as u64;
        }
        self.file.set_len(keep)?;
        self.length = keep;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(file: &File) -> Vec<u8> {
        let mut content = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    proptest! {
        #[test]
        fn the_log_is_the_end_of_the_output_and_never_too_long(
            lengths in proptest::collection::vec(0usize..500, 0..40),
        ) {
            let file = tempfile::tempfile().unwrap();
            let mut log = LogFile::new(file.try_clone().unwrap(), 1000).unwrap();
            let mut output = Vec::new();
            for (index, length) in lengths.into_iter().enumerate() {
                let bytes = vec![u8::try_from(index % 251).unwrap(); length];
                log.append(&bytes).unwrap();
                output.extend(bytes);
                let kept = content(&file);
                prop_assert!(kept.len() <= 1000);
                prop_assert!(output.ends_with(&kept));
                prop_assert!(kept.len() >= output.len().min(500));
            }
        }
    }

    #[test]
    fn a_file_that_is_too_long_already_is_cut() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(5000).unwrap();
        LogFile::new(file.try_clone().unwrap(), 1000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 500);
    }
}
