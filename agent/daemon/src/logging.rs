//! Structured logs on standard error, as text or JSON.

use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::config::{Config, ConfigError, LogFormat};

/// Changes what is logged while the agent runs.
pub(crate) struct LevelSwitch(reload::Handle<EnvFilter, Registry>);

impl LevelSwitch {
    /// From now on as the configuration says. `RUST_LOG` wins over it.
    pub(crate) fn set(&self, config: &Config) -> Result<(), ConfigError> {
        let filter = config.log_filter()?;
        if std::env::var_os(EnvFilter::DEFAULT_ENV).is_none() {
            // Fails only when nothing logs any more.
            self.0.reload(filter).unwrap_or_default();
        }
        Ok(())
    }
}

/// Starts logging. `RUST_LOG` wins over the configuration.
pub(crate) fn start(config: &Config) -> Result<LevelSwitch, ConfigError> {
    let filter = match EnvFilter::try_from_default_env() {
        Ok(filter) => filter,
        Err(_) => config.log_filter()?,
    };
    let (filter, handle) = reload::Layer::new(filter);
    // A line that cannot be written, such as to a file on a full disk, is lost. To say so at the same place would end
    // the agent.
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .log_internal_errors(false);
    let lines = match config.log.format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        // The journal has its own times; a terminal's reader wants them.
        LogFormat::Text if std::env::var_os("JOURNAL_STREAM").is_some() => {
            lines.without_time().with_ansi(false).boxed()
        }
        LogFormat::Text => lines.with_ansi(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    Ok(LevelSwitch(handle))
}
