//! The host's side of a console device: what stands behind its ports, shared by the device and by
//! whoever attaches peers. Both may come at any time, and neither waits for the other.

mod line;
mod peer;
mod watch;

use std::fmt;
use std::io;
use std::sync::Arc;

pub use self::line::{ConsoleLine, ConsoleSize, ConsoleSpec};
pub use self::peer::{AttachError, HostPort};
use self::watch::Watch;

/// Most named ports of a device: as many as QEMU's have room for.
pub const MAX_NAMED_PORTS: usize = 31;
/// Longest name of a port.
pub const MAX_NAME_BYTES: usize = 64;

/// Ports cannot be made as asked.
#[derive(Debug, thiserror::Error)]
pub enum ConsolePortsError {
    /// No port at all.
    #[error("there is neither a console nor a named port")]
    None,
    /// More than the device has numbers for.
    #[error("{0} named ports are more than {MAX_NAMED_PORTS}")]
    TooMany(usize),
    /// A name that guests could not make a file name of, or that two ports have.
    #[error(
        "the name {0:?} is not 1 to {MAX_NAME_BYTES} of a-z, A-Z, 0-9, '.', '_' and '-', or not the only one"
    )]
    Name(String),
    /// The host has no descriptor left.
    #[error("the host has no descriptors left")]
    Descriptors(#[from] io::Error),
}

/// The ports of one device, from the host's side.
pub struct ConsolePorts {
    watch: Arc<Watch>,
    console: Option<Arc<ConsoleLine>>,
    named: Vec<Arc<HostPort>>,
}

impl ConsolePorts {
    /// A console, which is port 0, if there is to be one, and named ports from 1 on. Nobody is
    /// attached.
    ///
    /// # Errors
    /// Too many or no ports, names that cannot be, or a host without descriptors.
    pub fn new(
        console: Option<ConsoleSpec>,
        names: Vec<String>,
    ) -> Result<Arc<Self>, ConsolePortsError> {
        check(console.as_ref(), &names)?;
        let watch = Arc::new(Watch::new()?);
        let console = match console {
            Some(spec) => Some(Arc::new(ConsoleLine::new(spec, Arc::clone(&watch))?)),
            None => None,
        };
        let named = (1..)
            .zip(names)
            .map(|(number, name)| Arc::new(HostPort::new(number, name, Arc::clone(&watch))))
            .collect();
        Ok(Arc::new(Self {
            watch,
            console,
            named,
        }))
    }

    /// The console, if there is one.
    #[must_use]
    pub fn console(&self) -> Option<&Arc<ConsoleLine>> {
        self.console.as_ref()
    }

    /// The named ports, in the order of their numbers, which begin with 1.
    #[must_use]
    pub fn named(&self) -> &[Arc<HostPort>] {
        &self.named
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }
}

impl fmt::Debug for ConsolePorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.named.iter().map(|port| port.name());
        f.debug_list()
            .entries(self.console.iter().map(|console| console.name()))
            .entries(names)
            .finish()
    }
}

fn check(console: Option<&ConsoleSpec>, names: &[String]) -> Result<(), ConsolePortsError> {
    if console.is_none() && names.is_empty() {
        return Err(ConsolePortsError::None);
    }
    if names.len() > MAX_NAMED_PORTS {
        return Err(ConsolePortsError::TooMany(names.len()));
    }
    let own = console.map(|spec| &spec.name);
    let all: Vec<&String> = own
        .filter(|name| !name.is_empty())
        .into_iter()
        .chain(names)
        .collect();
    for (index, name) in all.iter().enumerate() {
        if !is_name(name) || all.iter().take(index).any(|before| before == name) {
            return Err(ConsolePortsError::Name((*name).clone()));
        }
    }
    Ok(())
}

/// Whether guests can make a file name of it.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}
