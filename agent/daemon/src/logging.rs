//! Structured logs on standard error, as text or JSON.

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging. `RUST_LOG` wins over the configuration.
pub(crate) fn start(log: &Log) {
    let filter = EnvFilter::try_from_default_env()
        .or_else(|_| EnvFilter::try_new(&log.level))
        .unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false);
    match log.format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        // The journal has its own times; a terminal's reader wants them.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            builder.without_time().with_ansi(false).init()
        }
        LogFormat::Text => builder.with_ansi(false).init(),
    }
}
