//! A writer of `newc` cpio archives, the format of Linux's initramfs
//! (Documentation/driver-api/early-userspace/buffer-format.rst). The same entries give the same bytes.

use anyhow::Context;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// An archive under construction. Directories come before what is in them; the caller's order counts.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds the directory `path`, relative to the root, mode 0755.
    ///
    /// # Errors
    /// When the path does not fit the format.
    pub fn directory(&mut self, path: &str) -> anyhow::Result<()> {
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[])
    }

    /// Adds a regular file with permission bits `mode`.
    ///
    /// # Errors
    /// When it does not fit the format (4 GiB).
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.entry(path, REGULAR | mode, (0, 0), content)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// When the path does not fit the format.
    pub fn symlink(&mut self, path: &str, target: &str) -> anyhow::Result<()> {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes())
    }

    /// Adds a character device node.
    ///
    /// # Errors
    /// When the path does not fit the format.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> anyhow::Result<()> {
        self.entry(path, CHARACTER | 0o600, (major, minor), &[])
    }

    /// The whole archive with its trailer, padded so that another one can follow it.
    ///
    /// # Errors
    /// Never in practice; the trailer is an entry like the others.
    pub fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        let whole = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(whole, 0);
        Ok(self.bytes)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> anyhow::Result<()> {
        let content_bytes =
            u32::try_from(content.len()).with_context(|| format!("{path} is too large"))?;
        let name_bytes = u32::try_from(path.len() + 1).context("path too long")?;
        self.entries += 1;
        let links = if mode & 0o170_000 == DIRECTORY { 2 } else { 1 };
        self.bytes.extend_from_slice(b"070701");
        let fields = [
            self.entries,
            mode,
            0, // uid
            0, // gid
            links,
            0, // mtime
            content_bytes,
            0, // major and minor of the archive's own device
            0,
            device.0,
            device.1,
            name_bytes,
            0, // checksum, unused by 070701
        ];
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        let aligned = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(aligned, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn an_entry_has_a_header_of_110_bytes_and_aligned_content() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"hello").expect("fits");
        let bytes = archive.finish().expect("fits");
        // 110 bytes of header and "init\0" make 115, aligned to 116.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..121], b"hello");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(bytes.len() % 512, 0);
    }

    #[test]
    fn equal_entries_give_equal_bytes() {
        let make = || {
            let mut archive = Archive::default();
            archive.directory("dev").expect("fits");
            archive.character_device("dev/console", 5, 1).expect("fits");
            archive.symlink("bin", "usr/bin").expect("fits");
            archive.finish().expect("fits")
        };
        assert_eq!(make(), make());
    }
}
