//! Quantities, read and written as `virtctl` does, which reads and writes them with Kubernetes' own code.

/// The words of Kubernetes for a text that has not the form of a quantity.
const BAD_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const BAD_SUFFIX: &str = "unable to parse quantity's suffix";
const BAD_NUMBER: &str = "unable to parse numeric part of quantity";
/// Ours: what Kubernetes would write without its suffix, and so with another value.
const TOO_LARGE: &str = "a quantity of more than 999E has no suffix";

/// Characters of suffixes.
const SUFFIX: &str = "eEinumkKMGTP";

/// Units of the smallest quantity, a billionth.
const NANOS: i128 = 1_000_000_000;

/// How a quantity was written, which is how it is written again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// The parts of a text.
struct Parts<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// The canonical form of a quantity, or why the text is none.
pub fn canonical(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err(BAD_FORM);
    }
    let parts = split(text)?;
    let (format, exponent) = interpret(parts.suffix).ok_or(BAD_SUFFIX)?;
    let digits = format!("{}{}", parts.whole, parts.fraction);
    let digits = if digits.is_empty() { "0" } else { &digits };
    let nanos = nanos(digits, parts.fraction.len(), format, exponent)?;
    if nanos != 0 && is_kept(&parts, digits, format, exponent) {
        return Ok(text.to_owned());
    }
    write(if parts.is_negative { -nanos } else { nanos }, format)
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = rest.trim_start_matches('0');
    let (whole, rest) = digits(rest);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    let exponent = suffix.trim_start_matches(|c| SUFFIX.contains(c));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BAD_FORM);
    }
    Ok(Parts {
        is_negative,
        whole,
        fraction,
        suffix,
    })
}

/// The digits at the beginning, and the rest.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

/// Format and exponent of a suffix: of two for the binary ones, of ten for the others.
fn interpret(suffix: &str) -> Option<(Format, i32)> {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let place = |names: &[&str]| {
        let place = names.iter().position(|name| *name == suffix)?;
        i32::try_from(place).ok()
    };
    if let Some(place) = place(&DECIMAL) {
        return Some((Format::Decimal, place * 3 - 9));
    }
    if let Some(place) = place(&BINARY) {
        return Some((Format::Binary, (place + 1) * 10));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Format::Exponent, exponent.parse().ok()?))
}

/// The amount without its sign in billionths, rounded up.
fn nanos(digits: &str, places: usize, format: Format, exponent: i32) -> Result<i128, &'static str> {
    let number: i128 = digits.parse().map_err(|_| BAD_NUMBER)?;
    if number == 0 {
        return Ok(0);
    }
    let places = i32::try_from(places).map_err(|_| BAD_NUMBER)?;
    let (number, tens) = match format {
        Format::Binary => {
            let number = number.checked_mul(1 << exponent).ok_or(TOO_LARGE)?;
            (number, 9 - places)
        }
        Format::Decimal | Format::Exponent => (number, (9 - places).saturating_add(exponent)),
    };
    let power = 10_i128.checked_pow(tens.unsigned_abs());
    let nanos = if tens >= 0 {
        power.and_then(|power| number.checked_mul(power))
    } else {
        // Beyond all digits the smallest quantity is left.
        Some(power.map_or(1, |power| number / power + i128::from(number % power != 0)))
    };
    let nanos = nanos.ok_or(TOO_LARGE)?;
    let largest = i128::from(i64::MAX) * NANOS;
    if format == Format::Binary {
        return Ok(nanos.min(largest));
    }
    if nanos >= NANOS.saturating_mul(10_i128.pow(21)) {
        return Err(TOO_LARGE);
    }
    Ok(nanos)
}

/// Whether Kubernetes takes a text for canonical, and writes it as it was read. It does not look closely.
fn is_kept(parts: &Parts<'_>, digits: &str, format: Format, exponent: i32) -> bool {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    match format {
        Format::Binary => {
            let room = 14 - exponent * 3 / 10;
            let last = digits.parse::<u64>().unwrap_or_default() % 8;
            parts.fraction.is_empty() && count <= room && last != 0
        }
        Format::Decimal | Format::Exponent => {
            let places = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
            let scale = exponent.saturating_sub(places);
            count <= 18
                && scale >= -9
                && scale % 3 == 0
                && !digits.ends_with("000")
                && !digits.starts_with('0')
        }
    }
}

fn write(nanos: i128, format: Format) -> Result<String, &'static str> {
    let is_binary = format == Format::Binary && nanos.abs() >= 1024 * NANOS && nanos % NANOS == 0;
    if nanos == 0 {
        return Ok("0".to_owned());
    }
    if is_binary {
        let (number, power) = without_factors(nanos / NANOS, 1024);
        let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        return Ok(format!("{number}{}", suffix.get(power).ok_or(TOO_LARGE)?));
    }
    let (mut number, power) = without_factors(nanos, 10);
    let mut exponent = i32::try_from(power).map_err(|_| TOO_LARGE)? - 9;
    while exponent % 3 != 0 {
        number *= 10;
        exponent -= 1;
    }
    if format == Format::Exponent {
        return Ok(match exponent {
            0 => number.to_string(),
            exponent => format!("{number}e{exponent}"),
        });
    }
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let place = usize::try_from((exponent + 9) / 3).map_err(|_| TOO_LARGE)?;
    Ok(format!("{number}{}", suffix.get(place).ok_or(TOO_LARGE)?))
}

/// A number without its factors of `base`, and how many they were.
fn without_factors(mut number: i128, base: i128) -> (i128, usize) {
    let mut count = 0;
    while number != 0 && number % base == 0 {
        number /= base;
        count += 1;
    }
    (number, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        for (text, wanted) in [
            ("512Mi", Ok("512Mi")),
            ("1024Mi", Ok("1Gi")),
            ("1030Mi", Ok("1030Mi")),
            ("0.5Gi", Ok("512Mi")),
            ("0.3Ki", Ok("307200m")),
            ("1.5", Ok("1500m")),
            ("1.500", Ok("1.500")),
            ("1000", Ok("1k")),
            ("1e3", Ok("1e3")),
            ("100e3", Ok("100e3")),
            ("1e4", Ok("10e3")),
            ("0", Ok("0")),
            ("0Mi", Ok("0")),
            ("Mi", Ok("0")),
            ("+5Gi", Ok("+5Gi")),
            ("-8Gi", Ok("-8Gi")),
            ("9000000000000000000Gi", Ok("9223372036854775807")),
            ("", Err(BAD_FORM)),
            ("abc", Err(BAD_FORM)),
            ("1.5.5", Err(BAD_FORM)),
            ("1 Gi", Err(BAD_FORM)),
            ("1GiB", Err(BAD_FORM)),
            ("1gi", Err(BAD_FORM)),
            ("1GG", Err(BAD_SUFFIX)),
            ("1e", Err(BAD_SUFFIX)),
            ("1e30", Err(TOO_LARGE)),
            ("99999999999999999999999999999999999999999", Err(BAD_NUMBER)),
        ] {
            assert_eq!(
                canonical(text).as_deref(),
                wanted.as_ref().map(|text| *text),
                "{text}"
            );
        }
    }
}
