//! The test guest: where its ELF is, and what its lines on the console say.
//!
//! The lines are described in `guest-images/testguest/README.md`.

use std::path::PathBuf;

use crate::artifacts;

/// What the guest writes first to a disk that it tests.
pub const FIRST_WORD_ON_DISK: u64 = 0x9e37_79b9_7f4a_7c15;

/// The guest's ELF: `KVMLET_TESTGUEST`, or that of this build.
///
/// # Errors
/// When it was not built yet; the error says how.
pub fn elf() -> anyhow::Result<PathBuf> {
    match std::env::var_os("KVMLET_TESTGUEST") {
        Some(set) => Ok(PathBuf::from(set)),
        None => artifacts::program("testguest"),
    }
}

/// Why there is no guest to boot, if so.
#[must_use]
pub fn missing() -> Option<String> {
    elf().err().map(|error| error.to_string())
}

/// The result in a line of the console, if it is one.
#[must_use]
pub fn result(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix("TESTGUEST ")
}

/// The result lines of one run, without what marks them as such.
#[derive(Debug, Clone, Default)]
pub struct Results(pub Vec<String>);

impl Results {
    /// All results on a console.
    #[must_use]
    pub fn of_console(console: &str) -> Self {
        Self(
            console
                .lines()
                .filter_map(result)
                .map(str::to_owned)
                .collect(),
        )
    }

    /// The lines of `test`, without its name: one for each device.
    #[must_use]
    pub fn of(&self, test: &str) -> Vec<&str> {
        let prefix = format!("{test} ");
        self.0
            .iter()
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect()
    }

    /// The line of a test that ran once.
    ///
    /// # Panics
    /// When it ran never or several times.
    #[must_use]
    pub fn one(&self, test: &str) -> &str {
        match self.of(test)[..] {
            [line] => line,
            _ => panic!("not one line of {test}: {self:#?}"),
        }
    }

    /// The number that `key` has in the line of a test that ran once.
    ///
    /// # Panics
    /// When there is no such line or number.
    #[must_use]
    pub fn number(&self, test: &str, key: &str) -> u64 {
        let line = self.one(test);
        line.split(' ')
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            .and_then(|value| match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            })
            .unwrap_or_else(|| panic!("no number {key} in {line}"))
    }
}

/// Turns a frame of the guest into the echo that it waits for: both MAC addresses swapped. A frame
/// too short to have them stays as it is.
pub fn make_echo(frame: &mut [u8]) {
    if let Some((addresses, _)) = frame.split_first_chunk_mut::<12>() {
        addresses.rotate_left(6);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_among_other_lines() {
        let console = "Booting from ROM..\r\nTESTGUEST blk ok a=1 at=0x10\r\nTESTGUEST rng ok\r\n";
        let results = Results::of_console(console);
        assert_eq!(results.number("blk", "at"), 16);
        assert!(results.of("net").is_empty());
    }

    #[test]
    fn an_echo_of_an_echo_is_the_frame() {
        let mut frame: Vec<u8> = (0..60).collect();
        make_echo(&mut frame);
        assert_eq!(
            &frame[..14],
            &[6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13]
        );
        make_echo(&mut frame);
        assert_eq!(frame, (0..60).collect::<Vec<u8>>());
    }
}
