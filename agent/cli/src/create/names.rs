//! Names that nobody chose.

use crate::failure::Failure;

/// Kubernetes' letters for such names: none that make a word or are taken for another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Letters of a suffix.
const LENGTH: usize = 5;

/// A prefix and five letters that follow from nothing.
pub fn random(prefix: &str) -> Result<String, Failure> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::refused(format!("no random name: {error}")))?;
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
    Ok(bytes
        .into_iter()
        .map(letter)
        .fold(prefix.to_owned(), |mut name, letter| {
            name.push(letter);
            name
        }))
}
