//! What is kept between texts of messages that are written one after another.

/// The JSON that a message last held as text, and how it was written. Objects of a list often have the same one, such as the
/// fields that their manager owns.
#[derive(Debug, Default)]
pub struct LastJson {
    pub(crate) bytes: Vec<u8>,
    pub(crate) written: Vec<u8>,
}
