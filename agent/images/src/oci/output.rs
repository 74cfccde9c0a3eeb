//! Where files of images are written to.

use std::io::{self, Write};

/// Where a file of an image is written to.
pub trait Output: Write {
    /// Takes back all that was written.
    ///
    /// # Errors
    /// Those of the medium.
    fn restart(&mut self) -> io::Result<()>;
}

/// In memory.
impl Output for Vec<u8> {
    fn restart(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}
