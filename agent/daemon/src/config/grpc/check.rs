//! Checking what the configuration says of gRPC.

use super::{Grant, Grpc};
use crate::config::file::{Config, ConfigError};

/// What is wrong with these settings.
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    for (number, grant) in config.grants.iter().enumerate() {
        grant.check(config, number)?;
    }
    let Grpc {
        listen,
        certificate,
        key,
        client_ca,
        client_crl,
        max_connections_per_client,
    } = &config.grpc;
    let files = [
        ("grpc.certificate", certificate),
        ("grpc.key", key),
        ("grpc.client_ca", client_ca),
    ];
    for (setting, file) in files {
        match file {
            None if listen.is_some() => {
                let rule =
                    "is missing: clients over TCP are only served with certificates on both sides";
                return Err(config.wrong(setting, String::new(), rule));
            }
            Some(path) if !path.is_absolute() => {
                let value = path.display().to_string();
                return Err(config.wrong(setting, value, "must be an absolute path"));
            }
            _ => {}
        }
    }
    if let Some(path) = client_crl.as_ref().filter(|path| !path.is_absolute()) {
        let value = path.display().to_string();
        return Err(config.wrong("grpc.client_crl", value, "must be an absolute path"));
    }
    if *max_connections_per_client == 0 {
        let setting = "grpc.max_connections_per_client";
        return Err(config.wrong(setting, String::from("0"), "must be at least 1"));
    }
    Ok(())
}

impl Grant {
    fn check(&self, config: &Config, number: usize) -> Result<(), ConfigError> {
        let wrong = |setting: &str, rule| {
            let setting = format!("grants[{number}].{setting}");
            Err(config.wrong(&setting, String::new(), rule))
        };
        if self.lists().iter().all(|(_, names)| names.is_empty()) {
            let rule =
                "is nobody's: name users, groups, common_names, organizations or alternative_names";
            return wrong("role", rule);
        }
        let namespaces = self.namespaces.as_ref();
        if namespaces.is_some_and(Vec::is_empty) {
            return wrong("namespaces", "is empty: leave it out for all namespaces");
        }
        let namespaces = namespaces.map(|names| ("namespaces", names));
        for (setting, names) in self.lists().into_iter().chain(namespaces) {
            if names.iter().any(String::is_empty) {
                return wrong(setting, "must not be the empty text");
            }
        }
        Ok(())
    }
}
