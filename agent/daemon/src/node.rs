//! The node: what it has, what of it is taken, and whether it takes more.

use std::sync::{PoisonError, RwLock};

use agent_domain::{NodeCaps, PathRules};
use agent_host::{FirmwareFinder, KnownPaths, NodeFacts};
use agent_plan::{CapacityRules, Timestamp};

use crate::clock;
use crate::config::Hooks;
use crate::node_maintenance::NodeMaintenance;
use crate::reservations::Reservations;

/// What tasks know of the node that they run on.
pub(crate) struct Node {
    /// Its name; another one takes a restart.
    pub(crate) name: String,
    /// Whose files of the host are, beside what the configuration grants.
    pub(crate) known_paths: KnownPaths,
    pub(crate) facts: NodeFacts,
    pub(crate) started_at: Timestamp,
    pub(crate) reservations: Reservations,
    pub(crate) maintenance: NodeMaintenance,
    caps: RwLock<(NodeCaps, FirmwareFinder)>,
    hooks: RwLock<Hooks>,
}

impl Node {
    /// A node by its configuration.
    pub(crate) fn new(
        (caps, firmware): (NodeCaps, FirmwareFinder),
        facts: NodeFacts,
        rules: CapacityRules,
        known_paths: KnownPaths,
        maintenance: NodeMaintenance,
    ) -> Self {
        let name = caps.node_name.clone();
        Self {
            known_paths,
            started_at: clock::now(),
            reservations: Reservations::new(name.clone(), &facts, rules),
            facts,
            name,
            maintenance,
            caps: RwLock::new((caps, firmware)),
            hooks: RwLock::new(Hooks::default()),
        }
    }

    /// What admission judges by at present: firmware that was installed since the start is there. May take a second,
    /// for which nothing is held up but its caller.
    pub(crate) fn caps(&self) -> NodeCaps {
        // Nobody waits for the lock while a file system does not answer.
        let (caps, firmware) = {
            let present = self.caps.read().unwrap_or_else(PoisonError::into_inner);
            present.clone()
        };
        NodeCaps {
            firmware: firmware.lacks(),
            paths: self.with_known_paths(&caps),
            ..caps
        }
    }

    /// The same as far as no file system has to be asked; firmware is as the agent found it when it read its configuration.
    pub(crate) fn configured_caps(&self) -> NodeCaps {
        let present = self.caps.read().unwrap_or_else(PoisonError::into_inner);
        let caps = &present.0;
        NodeCaps {
            paths: self.with_known_paths(caps),
            ..caps.clone()
        }
    }

    /// Which paths of the host a namespace may name at present.
    pub(crate) fn path_rules(&self) -> PathRules {
        let present = self.caps.read().unwrap_or_else(PoisonError::into_inner);
        self.with_known_paths(&present.0)
    }

    fn with_known_paths(&self, caps: &NodeCaps) -> PathRules {
        PathRules {
            records: self.known_paths.get(),
            ..caps.paths.clone()
        }
    }

    /// Has admission judge by something else from now on. What was admitted stays.
    pub(crate) fn set_caps(&self, caps: (NodeCaps, FirmwareFinder)) {
        let mut present = self.caps.write().unwrap_or_else(PoisonError::into_inner);
        *present = caps;
    }

    /// Who is asked about machines.
    pub(crate) fn hooks(&self) -> Hooks {
        let present = self.hooks.read().unwrap_or_else(PoisonError::into_inner);
        present.clone()
    }

    /// Has others be asked about machines from now on.
    pub(crate) fn set_hooks(&self, hooks: Hooks) {
        *self.hooks.write().unwrap_or_else(PoisonError::into_inner) = hooks;
    }
}
