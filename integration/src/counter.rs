//! A guest that counts on its console: a number that is missing, or comes twice, tells of harm.

use std::time::Duration;

use crate::commands::Session;

const PATIENCE: Duration = Duration::from_secs(300);

/// Counts, a second each, until a line is typed; then says so and lives four seconds more.
const COUNTING: &str =
    "i=0; until read -t 1 line; do echo count=$i.; i=$((i+1)); done; echo leaving; sleep 4\n";

/// Words of the busybox guest's command line that have it count.
#[must_use]
pub fn command_line() -> String {
    format!("quiet kvmlet.ip=none kvmlet.script64={}", encoded(COUNTING))
}

/// The next number that the guest prints.
///
/// # Errors
/// When no count comes before the timeout.
pub fn next(console: &mut Session) -> anyhow::Result<u32> {
    console.read_until("count=", PATIENCE)?;
    let number = console.read_until(".", PATIENCE)?;
    Ok(number.trim_end_matches('.').parse()?)
}

/// As base64.
fn encoded(script: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in script.as_bytes().chunks(3) {
        let bits = chunk
            .iter()
            .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[bits >> (18 - 6 * place) & 63]);
            text.push(if place > chunk.len() { '=' } else { digit });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn the_script_on_the_command_line_is_base64() {
        assert_eq!(encoded("a"), "YQ==");
        assert_eq!(encoded("ab"), "YWI=");
        assert_eq!(encoded("abc"), "YWJj");
        assert_eq!(encoded("abcd"), "YWJjZA==");
    }
}
