//! The two text formats: OpenMetrics, which the library writes, and the older one of Prometheus, which
//! everything reads.

use std::fmt;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The one that a client's `Accept` header asks for. Anybody can read Prometheus' own.
    pub(crate) fn accepted(accept: &str) -> Self {
        let wants = accept
            .split(',')
            .filter_map(|kind| kind.split(';').next())
            .any(|kind| kind.trim() == "application/openmetrics-text");
        if wants {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All registries as one text.
pub(crate) fn render(format: Format, registries: &[&Registry]) -> Result<String, fmt::Error> {
    let mut text = String::new();
    for registry in registries {
        encode_registry(&mut text, registry)?;
    }
    match format {
        Format::OpenMetrics => encode_eof(&mut text).map(|()| text),
        Format::Prometheus => Ok(older(&text)),
    }
}

/// In the older format a counter's family has the name of its series, `_total` and all.
fn older(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut older = String::with_capacity(text.len());
    while let Some(line) = lines.next() {
        // A family's HELP stands right before its TYPE.
        let next = lines.peek().copied().unwrap_or_default();
        let of_family = line.strip_prefix("# HELP ").map(|rest| ("HELP", rest));
        let of_family =
            of_family.or_else(|| line.strip_prefix("# TYPE ").map(|rest| ("TYPE", rest)));
        let Some((word, rest)) = of_family else {
            if !line.starts_with('#') {
                older.push_str(line);
                older.push('\n');
            }
            continue;
        };
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = if word == "TYPE" { line } else { next };
        let total = if kind.ends_with(" counter") {
            "_total"
        } else {
            ""
        };
        older.push_str(&format!("# {word} {name}{total} {rest}\n"));
    }
    older
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        counter.inc();
        registry.register("a_things", "Things", counter);
        registry.register("a_size_bytes", "How large", Gauge::<i64>::default());
        registry
    }

    #[test]
    fn counters_are_described_under_the_names_of_their_series() {
        assert_eq!(
            render(Format::Prometheus, &[&registry()]).unwrap(),
            "# HELP a_things_total Things.\n# TYPE a_things_total counter\na_things_total 1\n\
             # HELP a_size_bytes How large.\n# TYPE a_size_bytes gauge\na_size_bytes 0\n"
        );
    }

    #[test]
    fn openmetrics_ends_where_it_ends() {
        let text = render(Format::OpenMetrics, &[&registry(), &Registry::default()]).unwrap();
        assert!(text.contains("# TYPE a_things counter\n"), "{text}");
        assert!(text.ends_with("\n# EOF\n"), "{text}");
        assert_eq!(text.matches("# EOF").count(), 1);
    }

    #[test]
    fn whoever_can_read_openmetrics_gets_it() {
        for (accept, format) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain;version=0.0.4", Format::Prometheus),
            (
                "text/html, application/openmetrics-text;version=1.0.0;q=0.5",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }
}
