//! Texts that may be left out.

/// Fills in a text that is empty.
pub(super) fn fill_text(text: &mut String, default: &str) {
    if text.is_empty() {
        default.clone_into(text);
    }
}
