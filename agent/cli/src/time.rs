//! Durations as people type them and ages as kubectl prints them.

use std::time::Duration;

/// Reads `30s`, `5m`, `1h30m`, `200ms`. A bare number counts seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write 30s, 5m or 1h30m");
    if text.is_empty() {
        return Err(wrong());
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let millis = match unit {
            "ms" => 1,
            "" | "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(millis).ok_or_else(wrong)?;
        total = total
            .checked_add(Duration::from_millis(part))
            .ok_or_else(wrong)?;
        rest = tail;
    }
    Ok(total)
}

/// The same, where a bare number counts minutes, as for `virtctl console`.
pub fn parse_minutes(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare {
        parse_duration(&format!("{text}m"))
    } else {
        parse_duration(text)
    }
}

/// Seconds until a time; 0 once it is over.
pub fn seconds_until(time: jiff::Timestamp) -> i64 {
    let left = time.as_second() - jiff::Timestamp::now().as_second();
    left.max(0)
}

/// How long ago an RFC 3339 time was, as kubectl's AGE column has it.
pub fn age(timestamp: &str) -> String {
    match timestamp.parse::<jiff::Timestamp>() {
        Ok(then) => human(
            jiff::Timestamp::now()
                .as_second()
                .saturating_sub(then.as_second()),
        ),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// `k8s.io/apimachinery`'s HumanDuration: two units at most, the finer the shorter.
fn human(seconds: i64) -> String {
    let pair = |big: i64, unit: &str, small: i64, finer: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{finer}")
        }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("30", 30_000),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("200ms", 200),
            ("0", 0),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in ["", "s", "5x", "-1s", "1.5s", "99999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (70_000_000, "2y80d"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
        assert_eq!(age("yesterday"), "<unknown>");
    }
}
