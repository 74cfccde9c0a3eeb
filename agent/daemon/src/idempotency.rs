//! Keys by which a request that is repeated is known.

use agent_sources::ApiError;

/// The longest idempotency key that is remembered.
const MAX_KEY_BYTES: usize = 256;

/// Refuses keys that would fill the ledger.
///
/// # Errors
/// [`ApiError::BadRequest`].
pub(crate) fn check_key(key: &str) -> Result<(), ApiError> {
    if key.len() > MAX_KEY_BYTES {
        let text = format!("idempotency_key is longer than {MAX_KEY_BYTES} bytes");
        return Err(ApiError::BadRequest(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_would_fill_the_ledger_is_refused() {
        assert!(check_key(&"k".repeat(256)).is_ok());
        assert!(check_key(&"k".repeat(257)).is_err());
    }
}
