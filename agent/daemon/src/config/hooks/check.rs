//! Checking what the configuration says of hooks.

use super::Hooks;
use crate::config::file::{Config, ConfigError};

/// What is wrong with these settings.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    let Hooks {
        directory,
        sockets,
        timeout_seconds,
        ..
    } = &config.hooks;
    let sockets = sockets.iter().map(|path| ("hooks.sockets", path));
    for (setting, path) in sockets.chain([("hooks.directory", directory)]) {
        if !path.is_absolute() {
            let value = path.display().to_string();
            return Err(config.wrong(setting, value, "must be an absolute path"));
        }
    }
    if !(1..=300).contains(timeout_seconds) {
        let value = timeout_seconds.to_string();
        return Err(config.wrong("hooks.timeout_seconds", value, "must be 1 to 300"));
    }
    Ok(())
}
