//! Which agent and which namespace: options, environment and the client's own file, in this order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;

use crate::agent_address::AgentAddress;
use crate::failure::{Failure, file_error};

/// Where the agent listens by default.
pub const DEFAULT_SOCKET: &str = "/run/kvmlet/kvmlet.sock";

/// The namespace by default.
const DEFAULT_NAMESPACE: &str = "default";

/// The largest file of settings that is read.
const LARGEST_FILE: u64 = 1 << 16;

/// Which agent and which namespace. Help lists them apart from the options of a verb.
#[derive(Args, Default)]
#[command(next_help_heading = "Connection")]
pub struct Scope {
    /// Socket of the agent [env: KVMLET_SOCKET] [default: /run/kvmlet/kvmlet.sock]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Agent of another node, such as https://node1:9774; needs --cert, --key, --cacert [env: KVMLET_SERVER]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "socket")]
    pub server: Option<String>,
    /// Your certificate, in PEM
    #[arg(long, global = true, env = "KVMLET_CERT", value_name = "FILE")]
    pub cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, global = true, env = "KVMLET_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Certificate of who signs those of agents, in PEM
    #[arg(long, global = true, env = "KVMLET_CACERT", value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Context of the file of settings (see kvmctl config); the current one when left out
    #[arg(long, global = true, env = "KVMCTL_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// File of settings: server, cert, key, cacert, socket, namespace, and contexts of these [default:
    /// ~/.config/kvmlet/kvmctl.toml]
    #[arg(long, global = true, env = "KVMCTL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Namespace
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The namespace of who types none.
    #[arg(skip = String::from(DEFAULT_NAMESPACE))]
    pub home: String,
}

/// What the file of settings can say.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    server: Option<String>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    cacert: Option<PathBuf>,
    socket: Option<PathBuf>,
    namespace: Option<String>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
    /// The same for each of several nodes.
    contexts: BTreeMap<String, ContextConfig>,
}

/// Settings of one context.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ContextConfig {
    server: Option<String>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    cacert: Option<PathBuf>,
    socket: Option<PathBuf>,
    namespace: Option<String>,
}

impl Scope {
    /// Fills in what options do not say: of the environment, then of the file of settings.
    pub fn complete(&mut self) -> Result<(), Failure> {
        if self.socket.is_none() && self.server.is_none() {
            self.socket = variable("KVMLET_SOCKET").map(PathBuf::from);
            self.server = variable("KVMLET_SERVER");
            if self.socket.is_some() && self.server.is_some() {
                let text = "error: KVMLET_SOCKET and KVMLET_SERVER are both set: say by an option which one is meant";
                return Err(Failure::Unreadable(text.to_owned()));
            }
        }
        let settings = match &self.config {
            Some(path) => Settings::read(path, "--config (or KVMCTL_CONFIG): ")?,
            None => match default_file() {
                Some(path) if path.exists() => Settings::read(&path, "")?,
                _ => Settings::default(),
            },
        };
        let settings = settings.in_context(self.context.as_deref())?;
        if self.socket.is_none() && self.server.is_none() {
            self.server = settings.server;
            self.socket = settings.socket;
        }
        self.cert = self.cert.take().or(settings.cert);
        self.key = self.key.take().or(settings.key);
        self.cacert = self.cacert.take().or(settings.cacert);
        if let Some(home) = &settings.namespace {
            self.home.clone_from(home);
        }
        self.namespace = self.namespace.take().or(settings.namespace);
        Ok(())
    }

    /// The file of settings, be it there or not.
    pub fn file(&self) -> Option<PathBuf> {
        self.config.clone().or_else(default_file)
    }

    /// The namespace to look in.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(&self.home)
    }

    /// What a command that is proposed needs to find a namespace, such as ` -n prod`.
    pub fn option_for(&self, namespace: &str) -> String {
        if namespace == self.home {
            String::new()
        } else {
            format!(" -n {namespace}")
        }
    }

    /// Where the agent is.
    pub fn address(&self) -> Result<AgentAddress, Failure> {
        let Some(url) = &self.server else {
            let socket = self.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET));
            let absolute = std::path::absolute(socket).map_err(|error| {
                Failure::Usage(format!("--socket {}: {error}", socket.display()))
            })?;
            return Ok(AgentAddress::Socket(absolute));
        };
        if !url.starts_with("https://") {
            let text = "must begin with https://: agents are reached over TLS, or by --socket on their own node";
            return Err(Failure::Usage(format!("--server {url}: {text}")));
        }
        let file = |option: &str, variable: &str, file: &Option<PathBuf>| {
            file.clone().ok_or_else(|| {
                Failure::Usage(format!(
                    "--server {url} needs --{option} FILE (or {variable}, or {option} in the file of settings)"
                ))
            })
        };
        Ok(AgentAddress::Server {
            url: url.clone(),
            cert: file("cert", "KVMLET_CERT", &self.cert)?,
            key: file("key", "KVMLET_KEY", &self.key)?,
            cacert: file("cacert", "KVMLET_CACERT", &self.cacert)?,
        })
    }
}

impl Settings {
    /// `named_by` says how the file was named, for messages.
    fn read(path: &Path, named_by: &str) -> Result<Self, Failure> {
        let text = read_file(path, named_by)?;
        toml::from_str(&text).map_err(|error| {
            let (file, why) = (path.display(), error.to_string());
            Failure::Unreadable(format!("error: {named_by}{file}: {}", why.trim_end()))
        })
    }

    /// What holds in a context: all of the place comes from there, and so does the namespace when it says one.
    fn in_context(mut self, asked: Option<&str>) -> Result<Self, Failure> {
        let Some(name) = asked.or(self.current_context.as_deref()) else {
            return Ok(self);
        };
        let Some(place) = self.contexts.remove(name) else {
            let text = format!("context {name:?} does not exist: see kvmctl config get-contexts");
            return Err(Failure::refused(text));
        };
        Ok(Self {
            server: place.server,
            cert: place.cert.or(self.cert),
            key: place.key.or(self.key),
            cacert: place.cacert.or(self.cacert),
            socket: place.socket,
            namespace: place.namespace.or(self.namespace),
            ..Self::default()
        })
    }
}

/// The text of a file of settings. `named_by` says how the file was named, for messages.
pub fn read_file(path: &Path, named_by: &str) -> Result<String, Failure> {
    let file = path.display();
    let failed = |why: String| Failure::Unreadable(format!("error: {named_by}{file}: {why}"));
    let size = std::fs::metadata(path).map_err(|error| failed(file_error(&error)))?;
    if size.len() > LARGEST_FILE {
        return Err(failed(format!("is larger than {LARGEST_FILE} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| failed(file_error(&error)))
}

/// A variable of the environment that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn default_file() -> Option<PathBuf> {
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let directory = home("XDG_CONFIG_HOME").or_else(|| Some(home("HOME")?.join(".config")))?;
    Some(directory.join("kvmlet/kvmctl.toml"))
}
