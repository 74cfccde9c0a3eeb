//! Errors of the operating system, for people.

use std::io;

/// What an error says, without its number: `No route to host`.
pub(crate) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, number)) if number.ends_with(')') => words.to_owned(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_no_number() {
        let errors = [
            io::Error::from_raw_os_error(113),
            io::Error::other("socket: Device or resource busy (os error 16)"),
            io::Error::other("(os error"),
        ];
        let words = errors.each_ref().map(words);
        let wanted = [
            "No route to host",
            "socket: Device or resource busy",
            "(os error",
        ];
        assert_eq!(words, wanted);
    }
}
