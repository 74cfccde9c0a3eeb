//! Sizes as `qemu-img` takes them.

/// Bytes of `2T`, `512M` or a plain number.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => return Err(format!("the unit {unit} is none of K, M, G, T and P")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|error| format!("{digits}: {error}"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| format!("{text} is too large"))
}

/// For people: with the largest unit that leaves at least one.
pub(super) fn text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) != 0 {
        unit += 1;
    }
    let whole = bytes >> (10 * unit);
    let rest = bytes - (whole << (10 * unit));
    let hundredths = (u128::from(rest) * 100) >> (10 * unit);
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if hundredths == 0 {
        format!("{whole} {name}")
    } else {
        format!("{whole}.{hundredths:02} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_qemu_img() {
        assert_eq!(parse("1024"), Ok(1024));
        assert_eq!(parse("3k"), Ok(3 << 10));
        assert_eq!(parse("2T"), Ok(2 << 40));
        for wrong in ["", "T", "-1", "1.5G", "3X", "20000P", "1 G"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!(text(0), "0 B");
        assert_eq!(text(1023), "1023 B");
        assert_eq!(text(3 << 29), "1.50 GiB");
        assert_eq!(text(u64::MAX), "16383.99 PiB");
    }
}
