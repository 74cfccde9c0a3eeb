//! Result lines on the console, for a test program to read:
//! `TESTGUEST <test> <ok|FAIL|skip> key=value ...`, and in the end the totals.

use core::fmt;

use crate::serial::console_line;

/// Counts results and prints them.
#[derive(Default)]
pub struct Report {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Report {
    /// A test passed; `facts` are `key=value` words.
    pub fn ok(&mut self, test: impl fmt::Display, facts: fmt::Arguments<'_>) {
        self.passed += 1;
        console_line!("TESTGUEST {test} ok {facts}");
    }

    /// A test failed.
    pub fn fail(&mut self, test: impl fmt::Display, error: impl fmt::Display) {
        self.failed += 1;
        console_line!("TESTGUEST {test} FAIL error=\"{error}\"");
    }

    /// An attack came to an end, as it should or not; the line says how.
    pub fn attack(&mut self, as_it_should: bool, line: fmt::Arguments<'_>) {
        if as_it_should {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        console_line!("TESTGUEST attack {line}");
    }

    /// A test could not run.
    pub fn skip(&mut self, test: impl fmt::Display, reason: impl fmt::Display) {
        self.skipped += 1;
        console_line!("TESTGUEST {test} skip reason=\"{reason}\"");
    }

    /// The totals; the last line of the tests.
    pub fn done(&self) {
        console_line!(
            "TESTGUEST done passed={} failed={} skipped={}",
            self.passed,
            self.failed,
            self.skipped
        );
    }
}

/// A MAC address as people write it.
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The printable part of a zero-padded string that a device handed over.
pub struct PaddedText<'a>(pub &'a [u8]);

impl fmt::Display for PaddedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take_while(|byte| **byte != 0) {
            let shown = if byte.is_ascii_graphic() && *byte != b'"' {
                *byte
            } else {
                b'?'
            };
            write!(f, "{}", char::from(shown))?;
        }
        Ok(())
    }
}
