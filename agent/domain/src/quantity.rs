//! Kubernetes quantities: `1.5Gi`, `64M`, `500m`, `1e3`.

/// A quantity in thousandths, rounded up. Saturates far beyond every size that a host can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity {
    millis: i128,
}

/// Longer texts are no quantities; it keeps the arithmetic within its bounds.
const MAX_BYTES: usize = 40;

/// Powers of ten beyond this only saturate or vanish.
const MAX_EXPONENT: i32 = 30;

const LIMIT: i128 = (i64::MAX as i128) * 1000;

impl Quantity {
    /// Reads a quantity; nothing when the text is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let scale = Scale::parse(suffix)?;
        let mut digits: i128 = 0;
        for byte in whole.bytes().chain(fraction.bytes()) {
            digits = digits
                .saturating_mul(10)
                .saturating_add(i128::from(byte - b'0'));
        }
        let fraction_digits = i32::try_from(fraction.len()).ok()?;
        let magnitude = scale.apply(digits, fraction_digits);
        Some(Self {
            millis: if negative { -magnitude } else { magnitude },
        })
    }

    pub(crate) fn is_negative(self) -> bool {
        self.millis < 0
    }

    /// The value in thousandths; nothing when negative.
    pub(crate) fn millis(self) -> Option<u64> {
        u64::try_from(self.millis).ok()
    }

    /// The value in whole units, rounded up; nothing when negative.
    pub(crate) fn units(self) -> Option<u64> {
        if self.is_negative() {
            return None;
        }
        u64::try_from((self.millis + 999) / 1000).ok()
    }
}

/// What a suffix multiplies by: 1024 to the `binary`, ten to the `decimal`.
struct Scale {
    binary: u32,
    decimal: i32,
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        let decimal = |decimal| Some(Self { binary: 0, decimal });
        let binary = |binary| Some(Self { binary, decimal: 0 });
        match suffix {
            "" => decimal(0),
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(1),
            "Mi" => binary(2),
            "Gi" => binary(3),
            "Ti" => binary(4),
            "Pi" => binary(5),
            "Ei" => binary(6),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                let exponent: i32 = exponent.parse().ok()?;
                decimal(exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT))
            }
        }
    }

    /// `digits`, the last `fraction_digits` of them after the point, in thousandths, rounded up.
    fn apply(&self, digits: i128, fraction_digits: i32) -> i128 {
        let mut value = digits.min(LIMIT);
        for _ in 0..self.binary {
            value = value.saturating_mul(1024);
        }
        let exponent = self.decimal + 3 - fraction_digits;
        let mut divisor: i128 = 1;
        for _ in 0..exponent.unsigned_abs() {
            if exponent > 0 {
                value = value.saturating_mul(10);
            } else {
                divisor = divisor.saturating_mul(10);
            }
        }
        let rounded = value / divisor + i128::from(value % divisor != 0);
        rounded.min(LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Option<u64> {
        Quantity::parse(text).and_then(Quantity::units)
    }

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, value) in [
            ("0", 0),
            ("1", 1),
            ("1.5Gi", 1_610_612_736),
            ("64M", 64_000_000),
            ("64Mi", 67_108_864),
            ("1e3", 1000),
            ("1E3", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("1500m", 2),
            (".5Ki", 512),
            ("1.", 1),
            ("1e-30", 1),
            ("0.0000000001", 1),
            ("1001m", 2),
            (
                "123456789012345678901234567890Ei",
                9_223_372_036_854_775_807,
            ),
        ] {
            assert_eq!(units(text), Some(value), "{text}");
        }
        assert_eq!(
            Quantity::parse("500m").and_then(Quantity::millis),
            Some(500)
        );
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", "-", ".", "1.2.3", "1Q", "Gi", "1 Gi", "0x10", "1e", "1e1.5", "é", "1K", "1ki",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert!(Quantity::parse("-1").is_some_and(Quantity::is_negative));
        assert_eq!(units("-1"), None);
    }
}
