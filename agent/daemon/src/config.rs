//! The configuration file: TOML, every key known, every value checked.

mod capacity;
mod cidr;
mod control_plane;
mod egress;
mod file;
mod grpc;
mod hooks;
mod images;
mod instancetypes;
mod pod_network;
mod routes;
mod sections;
mod shutdown;
mod tracing;

use std::path::Path;

use agent_host::{EVERY_REGISTRY, USER_BASES};
use agent_sources::ControlPlaneSettings;
use tracing_subscriber::EnvFilter;

pub(crate) use self::control_plane::ControlPlaneConfig;
pub(crate) use self::file::{CONFIG, Config, ConfigError, DeviceSubstitution};
pub(crate) use self::grpc::{Grant, Role};
pub(crate) use self::hooks::{FailurePolicy, Hooks};
pub(crate) use self::pod_network::Network6;
pub(crate) use self::sections::{Firmware, LogFormat};
pub(crate) use self::shutdown::Shutdown;
pub(crate) use self::tracing::{Destination, TlsFiles};

impl Config {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| ConfigError::Malformed {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        path.clone_into(&mut config.origin);
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        self.log_filter()?;
        self.control_plane()?;
        self.destination_of_spans()?;
        grpc::check::check(self)?;
        hooks::check::check(self)?;
        let named = [
            ("socket", &self.socket),
            ("run_dir", &self.run_dir),
            ("state_dir", &self.state_dir),
            ("manifest_dir", &self.manifest_dir),
            ("vmm.program", &self.vmm.program),
        ];
        if let Some((setting, value, rule)) = self.paths.fault() {
            return Err(self.wrong(&setting, value, rule));
        }
        let Firmware {
            bios,
            efi,
            efi_variables,
        } = &self.firmware;
        let firmware = [
            ("firmware.bios", bios),
            ("firmware.efi", efi),
            ("firmware.efi_variables", efi_variables),
        ];
        let firmware = firmware
            .into_iter()
            .filter_map(|(setting, path)| Some((setting, path.as_ref()?)));
        for (setting, path) in named.into_iter().chain(firmware) {
            if !path.is_absolute() {
                return Err(self.wrong(
                    setting,
                    path.display().to_string(),
                    "must be an absolute path",
                ));
            }
        }
        if let (Some(path), None) = (efi, efi_variables) {
            let rule = "needs firmware.efi_variables, the template of its variables";
            return Err(self.wrong("firmware.efi", path.display().to_string(), rule));
        }
        if let (None, Some(path)) = (efi, efi_variables) {
            let rule = "needs firmware.efi, the image whose variables these are";
            return Err(self.wrong("firmware.efi_variables", path.display().to_string(), rule));
        }
        for (name, network) in &self.networks {
            if let Some((key, value, rule)) = network.fault() {
                return Err(self.wrong(&format!("networks.{name}.{key}"), value, rule));
            }
        }
        for (name, registry) in &self.registries {
            if let Some((key, value, rule)) = registry.fault(name) {
                let setting = match key {
                    EVERY_REGISTRY => format!("registries.{name:?}"),
                    key => format!("registries.{name:?}.{key}"),
                };
                return Err(self.wrong(&setting, value, rule));
            }
        }
        self.check_numbers()
    }

    fn check_numbers(&self) -> Result<(), ConfigError> {
        let fault = self.capacity.fault().or_else(|| self.shutdown.fault());
        if let Some((setting, value, rule)) = self.pod_network.fault() {
            return Err(self.wrong(setting, value, rule));
        }
        if let Some((setting, value, rule)) = fault {
            return Err(self.wrong(setting, value.to_string(), rule));
        }
        if let Some((setting, value, rule)) = self.images.fault() {
            return Err(self.wrong(setting, value.to_string(), rule));
        }
        if !USER_BASES.contains(&self.vmm.user_base) {
            let value = self.vmm.user_base.to_string();
            return Err(self.wrong("vmm.user_base", value, "must be 65536 to 4294901759"));
        }
        if self.console.log_bytes < 65536 {
            let value = self.console.log_bytes.to_string();
            return Err(self.wrong("console.log_bytes", value, "must be at least 65536"));
        }
        Ok(())
    }

    /// How the control plane is dialled, if there is one.
    pub(crate) fn control_plane(&self) -> Result<Option<ControlPlaneSettings>, ConfigError> {
        let settings = self
            .control_plane
            .as_ref()
            .map(ControlPlaneConfig::settings);
        settings
            .transpose()
            .map_err(|(setting, value, rule)| self.wrong(setting, value, rule))
    }

    /// Where spans go, if anywhere.
    pub(crate) fn destination_of_spans(&self) -> Result<Option<Destination>, ConfigError> {
        self.tracing
            .destination()
            .map_err(|(setting, value, rule)| self.wrong(setting, value, rule))
    }

    /// Filter of log messages, from `log.level`.
    pub(crate) fn log_filter(&self) -> Result<EnvFilter, ConfigError> {
        EnvFilter::try_new(&self.log.level).map_err(|_| {
            let rule = "must be a level (error, warn, info, debug, trace), or levels of modules as \
                        warn,agent_host=debug";
            self.wrong("log.level", self.log.level.clone(), rule)
        })
    }

    /// Takes back what cannot change while the agent runs; the answer names it.
    pub(crate) fn keep_fixed(&mut self, present: &Self) -> Vec<&'static str> {
        let mut kept = Vec::new();
        macro_rules! keep {
            ($($name:literal: $($field:ident).+),+ $(,)?) => {
                $(if self.$($field).+ != present.$($field).+ {
                    kept.push($name);
                    self.$($field).+.clone_from(&present.$($field).+);
                })+
            };
        }
        keep!(
            "node_name": node_name,
            "socket": socket,
            "run_dir": run_dir,
            "state_dir": state_dir,
            "manifest_dir": manifest_dir,
            "images": images,
            "kernel.cache_bytes": kernel.cache_bytes,
            "vmm.user_base": vmm.user_base,
            "log.format": log.format,
            "metrics.listen": metrics.listen,
            "control_plane": control_plane,
            "pod_network": pod_network,
            "grpc.listen": grpc.listen,
            "grpc.max_connections_per_client": grpc.max_connections_per_client,
        );
        kept
    }

    fn wrong(&self, setting: &str, value: String, rule: &'static str) -> ConfigError {
        ConfigError::Value {
            path: self.origin.clone(),
            setting: setting.to_owned(),
            value,
            rule,
        }
    }
}

#[cfg(test)]
mod tests;
