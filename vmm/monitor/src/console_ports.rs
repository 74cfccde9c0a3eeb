//! The ports of the guest's virtio console: who listens for peers, and who attaches them.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Instant;

use vmm_devices::virtio::console::{ConsolePorts, HostPort};

use crate::config::ConsoleParts;
use crate::console::Console;

/// Ports of a machine.
pub struct ServedConsolePorts {
    /// The ports as the device shares them.
    pub host: Arc<ConsolePorts>,
    /// The console port, if there is one.
    pub console: Option<Console>,
    /// Listeners of the named ports.
    pub listeners: Vec<Listener>,
}

/// Accepts the peers of a named port.
pub struct Listener {
    /// The port of the virtio console that its peers talk to.
    pub port: Arc<HostPort>,
    /// Where its peers connect.
    pub socket: UnixListener,
    /// The host ran out of descriptors: nothing is accepted before this time.
    pub rests_until: Option<Instant>,
}

impl ServedConsolePorts {
    /// What was checked, nobody attached.
    pub fn new(parts: ConsoleParts) -> Self {
        let console = parts
            .output
            .zip(parts.host.console())
            .map(|(output, line)| Console::new(output, Box::new(Arc::clone(line))));
        let listeners = parts
            .listeners
            .into_iter()
            .map(|(port, socket)| Listener {
                port,
                socket,
                rests_until: None,
            })
            .collect();
        Self {
            host: parts.host,
            console,
            listeners,
        }
    }

    /// When a listener's rest is over.
    pub fn deadline(&self) -> Option<Instant> {
        let rests = self
            .listeners
            .iter()
            .filter_map(|listener| listener.rests_until);
        rests.min()
    }

    pub fn named(&self, name: &str) -> Option<&Arc<HostPort>> {
        self.host.named().iter().find(|port| port.name() == name)
    }
}
