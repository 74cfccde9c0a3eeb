//! Firmware's words, on the console, that it has nothing to boot.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use agent_plan::StandsStill;

use crate::layout::absent_is_none;

/// The end of the log that is looked at.
const TAIL_BYTES: usize = 4096;

/// Words, and how many lines firmware says after them. More come of whatever was booted since.
const WORDS: [(&str, usize); 3] = [
    // SeaBIOS; it stays.
    ("No bootable device.", 0),
    // OVMF, which goes on with a key to press, and then its menu.
    ("BdsDxe: No bootable option or device was found.", 2),
    // OVMF with a shell, which it starts when all else has failed.
    ("Shell>", 0),
];

/// Whether the console's last words are firmware's that it has nothing to boot. They are what the guest
/// wrote: one that has booted can say them too, of itself.
pub(crate) fn stands_still(log: &Path) -> io::Result<Option<StandsStill>> {
    let Some(file) = absent_is_none(File::open(log))? else {
        return Ok(None);
    };
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES as u64);
    let mut tail = [0; TAIL_BYTES];
    let read = file.read_at(&mut tail, start)?;
    let tail = tail.get(..read).unwrap_or_default();
    Ok(found(tail).map(|(words, at)| StandsStill {
        words,
        at: start + at as u64,
    }))
}

/// The words and where they begin.
fn found(tail: &[u8]) -> Option<(&'static str, usize)> {
    WORDS.into_iter().find_map(|(words, lines)| {
        let at = tail
            .windows(words.len())
            .rposition(|window| window == words.as_bytes())?;
        let after = tail.get(at + words.len()..)?;
        (lines_of(after) <= lines).then_some((words, at))
    })
}

/// Lines with something on them, but for what moves a terminal's cursor.
fn lines_of(text: &[u8]) -> usize {
    let mut lines = 0;
    let mut blank = true;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            0x1b if bytes.next_if_eq(&b'[').is_some() => {
                // Up to and with the letter that says what is to be done.
                bytes.find(|byte| (0x40..=0x7e).contains(byte));
            }
            b'\n' | b'\r' => blank = true,
            0x21..=0x7e | 0x80.. if blank => {
                blank = false;
                lines += 1;
            }
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(log: &str) -> Option<(&'static str, u64)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console.log");
        std::fs::write(&path, log).unwrap();
        let found = stands_still(&path).unwrap();
        found.map(|found| (found.words, found.at))
    }

    #[test]
    fn firmware_that_stays_is_distinguished_from_one_that_goes_on() {
        let seabios = "SeaBIOS (version 1.16.2)\r\nBooting from Hard Disk...\r\n";
        let at = seabios.len() as u64;
        let found = Some(("No bootable device.", at));
        assert_eq!(words(&format!("{seabios}No bootable device.\r\n")), found);
        assert_eq!(
            words(&format!(
                "{seabios}No bootable device.\x1b[0m\x1b[2;1H \r\n"
            )),
            found
        );
        // It was reset.
        assert_eq!(
            words(&format!("{seabios}No bootable device.\r\n{seabios}")),
            None
        );
        assert_eq!(words(seabios), None);
        assert_eq!(words(""), None);
        let ovmf = "BdsDxe: No bootable option or device was found.\r\nBdsDxe: Press any key to enter the Boot Manager Menu.\r\n";
        assert_eq!(words(ovmf).unwrap().1, 0);
        // As Debian's prints it when it has found nothing.
        let shell = "in 1 seconds to skip \x1b[1m\x1b[33m\x1b[40mstartup.nsh\x1b[0m\x1b[37m\x1b[40m or any other key to continue.\r\n\x1b[08;01H\x1b[1m\x1b[33m\x1b[40mShell> \x1b[0m\x1b[37m\x1b[40m";
        assert_eq!(words(shell).unwrap().0, "Shell>");
        assert_eq!(words("Shell> ls\r\nfs0:\r\n"), None);
    }

    #[test]
    fn only_the_end_of_a_long_log_is_read_and_an_absent_one_is_silent() {
        let long = "x".repeat(1 << 20);
        let found = words(&format!("{long}No bootable device."));
        assert_eq!(found, Some(("No bootable device.", 1 << 20)));
        assert_eq!(words(&format!("No bootable device.{long}")), None);
        let none = stands_still(Path::new("/nonexistent/console.log")).unwrap();
        assert_eq!(none, None);
    }
}
