//! Progress of something that is counted in bytes, in cells and short numbers.

/// A bar of as many cells.
pub fn bar(done: u64, total: u64, cells: u16) -> String {
    let full = match total {
        0 => 0,
        total => done.min(total).saturating_mul(u64::from(cells)) / total,
    };
    (0..u64::from(cells))
        .map(|cell| if cell < full { '█' } else { '░' })
        .collect()
}

/// With the largest unit that leaves at least one, and a digit more where that says something.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    while unit + 1 < UNITS.len() && bytes >> (10 * (unit + 1)) != 0 {
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    let whole = bytes >> (10 * unit);
    let tenth = ((bytes - (whole << (10 * unit))) * 10) >> (10 * unit);
    if unit == 0 || whole >= 100 || tenth == 0 {
        format!("{whole} {name}")
    } else {
        format!("{whole}.{tenth} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short_and_bars_are_never_longer_than_they_may_be() {
        for (number, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (301 << 20, "301 MiB"),
            ((3 << 30) + (1 << 29), "3.5 GiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        assert_eq!(bar(2, 3, 6), "████░░");
        assert_eq!(bar(9, 3, 2), "██");
        assert_eq!(bar(1, 0, 2), "░░");
    }
}
