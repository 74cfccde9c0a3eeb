//! What the guests have used, and for how long that is known.

use std::sync::Arc;
use std::time::Duration;

use agent_domain::Vmi;
use agent_host::Usage;
use agent_plan::Record;
use proto_node::vmi::VirtualMachineInstance;
use tokio::time::Instant;

/// A VMI with what it has used.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) object: VirtualMachineInstance,
    pub(crate) record: Record,
    pub(crate) vmi: Vmi,
    /// `None`: it has no VMM, or time was up.
    pub(crate) usage: Option<Usage>,
}

/// All VMIs, by namespace and name.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) guests: Vec<Guest>,
    /// VMIs of which the ledger says nothing that this release can read.
    pub(crate) unreadable: usize,
    pub(crate) took: Duration,
}

/// The figures of a moment ago.
#[derive(Debug, Default)]
pub(crate) struct LastFigures(pub(super) tokio::sync::Mutex<Option<(Instant, Arc<Figures>)>>);
