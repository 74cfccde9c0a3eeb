//! One node: an agent in a corner of this machine. Dropping it cuts its power.

use std::path::Path;
use std::time::Duration;

use integration::agent::{Agent, CONFIG, GuestSpec, MANIFESTS};
use integration::commands::Commands;
use integration::host::Host;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node that dials the control plane `north`.
pub struct Node(pub Host);

impl Node {
    /// Starts one with the label `zone: NAME`.
    pub fn start(name: &str, endpoint: &Path) -> anyhow::Result<Self> {
        let host = Host::enter()?;
        let agent = Agent::prepare(&host)?;
        agent.add_image("/run/bin/testguest", "testguest")?;
        let endpoint = endpoint.display();
        let config = format!(
            "node_name = \"{name}\"\nmanifest_dir = \"{MANIFESTS}\"\n\n[labels]\nzone = \"{name}\"\n\n\
             [control_plane]\nname = \"north\"\nendpoint = \"unix:{endpoint}\"\nlongest_pause_seconds = 1\n"
        );
        host.put(CONFIG, 0o644, config.as_bytes())?;
        agent.start()?;
        Ok(Self(host))
    }

    pub fn agent(&self) -> Agent<'_, Host> {
        Agent::of(&self.0)
    }

    /// Kills the agent, and starts it again; its guests go on.
    pub fn restart_agent(&self) -> anyhow::Result<()> {
        self.agent().kill()?;
        self.agent().start()
    }
}

/// A guest that counts on its console until it is ended.
pub fn guest(name: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=tick")
        .without_devices()
        .manifest()
}
