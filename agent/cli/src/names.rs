//! Names that nobody chose.

use crate::failure::Failure;

/// Kubernetes' letters for such names: none that make a word or are taken for another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Letters of a suffix of an object's name.
const LENGTH: usize = 5;

/// A prefix and five letters that follow from nothing.
pub fn random(prefix: &str) -> Result<String, Failure> {
    random_of(prefix, LENGTH)
}

/// The same with so many letters.
pub fn random_of(prefix: &str, letters: usize) -> Result<String, Failure> {
    let mut bytes = vec![0; letters];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::refused(format!("no random name: {error}")))?;
    let letter = |byte: u8| char::from(LETTERS[usize::from(byte) % LETTERS.len()]);
    let mut name = prefix.to_owned();
    name.extend(bytes.into_iter().map(letter));
    Ok(name)
}
