//! Amounts of CPU and memory that a spec names.

use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::quantity::Quantity;

pub(super) const REQUEST_CPU: &str = "spec.domain.resources.requests.cpu";
pub(super) const REQUEST_MEMORY: &str = "spec.domain.resources.requests.memory";
pub(super) const LIMIT_CPU: &str = "spec.domain.resources.limits.cpu";
pub(super) const LIMIT_MEMORY: &str = "spec.domain.resources.limits.memory";
pub(super) const GUEST: &str = "spec.domain.memory.guest";

/// KubeVirt's lower bound of a memory request, and ours of guest memory.
const MIN_MEMORY_BYTES: u64 = 1_000_000;

/// Why a text is no amount.
enum AmountError {
    /// It is no quantity: where one must be, that was reported already.
    NoQuantity,
    Negative,
    Small,
}

/// An amount of CPU in thousandths; nothing when absent or wrong.
pub(super) fn millis(text: &str) -> Option<u64> {
    read_millis(text).ok()
}

/// An amount of memory; nothing when absent or wrong.
pub(super) fn bytes(text: &str) -> Option<u64> {
    read_bytes(text).ok()
}

/// The same as [`millis`], and reports what is wrong.
pub(super) fn judge_millis(path: &str, text: &str, review: &mut Review<'_>) -> Option<u64> {
    judged(read_millis(text), path, text, review)
}

/// The same as [`bytes`], and reports what is wrong.
pub(super) fn judge_bytes(path: &str, text: &str, review: &mut Review<'_>) -> Option<u64> {
    judged(read_bytes(text), path, text, review)
}

fn read_millis(text: &str) -> Result<u64, AmountError> {
    not_negative(text)?.millis().ok_or(AmountError::NoQuantity)
}

fn read_bytes(text: &str) -> Result<u64, AmountError> {
    let bytes = not_negative(text)?.units().ok_or(AmountError::NoQuantity)?;
    if bytes < MIN_MEMORY_BYTES {
        return Err(AmountError::Small);
    }
    Ok(bytes)
}

fn not_negative(text: &str) -> Result<Quantity, AmountError> {
    let quantity = Quantity::parse(text).ok_or(AmountError::NoQuantity)?;
    if quantity.is_negative() {
        return Err(AmountError::Negative);
    }
    Ok(quantity)
}

fn judged(
    amount: Result<u64, AmountError>,
    path: &str,
    text: &str,
    review: &mut Review<'_>,
) -> Option<u64> {
    let least = match amount {
        Ok(amount) => return Some(amount),
        Err(AmountError::NoQuantity) => return None,
        Err(AmountError::Negative) => "0",
        Err(AmountError::Small) => "1M",
    };
    let message = format!("{path} '{text}': must be greater than or equal to {least}.");
    // KubeVirt lets any `memory.guest` in, any limit that is not negative, and a request for nothing.
    let is_nothing = Quantity::parse(text).and_then(|it| it.units()) == Some(0);
    let is_admitted = path == GUEST
        || path == LIMIT_MEMORY && !text.starts_with('-')
        || path == REQUEST_MEMORY && is_nothing;
    let bound = if is_admitted {
        Bound::Release
    } else {
        Bound::Api
    };
    let error = FieldError::new(path, Rule::Invalid, message).value(text);
    review.push(error.beyond(bound));
    None
}
