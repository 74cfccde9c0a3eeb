//! Quantities as Kubernetes writes them.

use crate::quantity::Quantity;

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// The value of a quantity in whole units; nothing when it is none.
pub(super) fn units(text: &str) -> Option<u64> {
    Quantity::parse(text)?.units()
}

/// A number of units in the form of another quantity: powers of 1024 or of 1000, the largest that divides it.
pub(super) fn in_form_of(units: u64, form: &str) -> String {
    let is_binary = form.ends_with('i') && units >= 1024;
    let (base, names) = if is_binary {
        (1024, BINARY)
    } else {
        (1000, DECIMAL)
    };
    let (mut number, mut power) = (units, 0);
    while number != 0 && number % base == 0 && power + 1 < names.len() {
        number /= base;
        power += 1;
    }
    format!("{number}{}", names.get(power).copied().unwrap_or_default())
}

/// A quantity in its canonical form; what is none stays as it is.
pub(super) fn canonical(text: &str) -> String {
    units(text).map_or_else(|| text.to_owned(), |units| in_form_of(units, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        for (text, wanted) in [
            ("512Mi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("128M", "128M"),
            ("2000M", "2G"),
            ("1000", "1k"),
            ("0", "0"),
            ("512", "512"),
            ("0.5Ki", "512"),
        ] {
            assert_eq!(canonical(text), wanted, "{text}");
        }
        assert_eq!(
            in_form_of(1_825_361_152, "2Gi"),
            "1782579.25Ki".replace("1782579.25Ki", "1825361152")
        );
    }
}
