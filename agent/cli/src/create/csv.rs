//! Lists with commas between their items, as `virtctl` reads them: one record of CSV.

use crate::failure::Failure;

/// The items of a flag's value. Each line is a list: a file of keys has several.
pub fn items(flag: &str, text: &str) -> Result<Vec<String>, Failure> {
    let mut items = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let record = record(line).map_err(|(column, why)| {
            Failure::Refused(format!(
                "invalid argument {text:?} for \"--{flag}\" flag: parse error on line 1, column {column}: {why}"
            ))
        })?;
        items.extend(record);
    }
    Ok(items)
}

/// The fields of a line, or the column where it is wrong, and how.
fn record(line: &str) -> Result<Vec<String>, (usize, &'static str)> {
    const BARE: &str = "bare \" in non-quoted-field";
    const EXTRANEOUS: &str = "extraneous or missing \" in quoted-field";
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let start = line.len() - rest.len();
        let Some(quoted) = rest.strip_prefix('"') else {
            let end = rest.find(',').unwrap_or(rest.len());
            let field = &rest[..end];
            if let Some(place) = field.find('"') {
                return Err((start + place + 1, BARE));
            }
            fields.push(field.to_owned());
            match rest[end..].strip_prefix(',') {
                Some(after) => rest = after,
                None => return Ok(fields),
            }
            continue;
        };
        let (mut field, mut inside) = (String::new(), quoted);
        loop {
            let Some(end) = inside.find('"') else {
                return Err((line.len() + 1, EXTRANEOUS));
            };
            field.push_str(&inside[..end]);
            let after = &inside[end + 1..];
            if let Some(more) = after.strip_prefix('"') {
                field.push('"');
                inside = more;
                continue;
            }
            fields.push(field);
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(fields),
                None => return Err((line.len() - after.len(), EXTRANEOUS)),
            }
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_separated_by_commas_outside_of_quotes() {
        let read = |text: &str| items("ssh-key", text).map_err(|failure| failure.to_string());
        for (text, wanted) in [
            ("", vec![]),
            ("a b c", vec!["a b c"]),
            ("a,b", vec!["a", "b"]),
            ("a,", vec!["a", ""]),
            ("\"a,b\",c", vec!["a,b", "c"]),
            ("\"a\"\"b\"", vec!["a\"b"]),
            ("a\nb\n", vec!["a", "b"]),
        ] {
            let wanted: Vec<String> = wanted.into_iter().map(str::to_owned).collect();
            assert_eq!(read(text), Ok(wanted), "{text}");
        }
        assert_eq!(
            read("a\"b"),
            Err("invalid argument \"a\\\"b\" for \"--ssh-key\" flag: parse error on line 1, column 2: bare \" in non-quoted-field".to_owned())
        );
        assert!(read("\"a").is_err() && read("\"a\"b").is_err());
    }
}
