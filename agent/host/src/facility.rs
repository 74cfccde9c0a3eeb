//! The narrow waist between deciding and doing.
//!
//! The planner decides, a [`Host`] does. There are two: the Linux host of this crate, and the seeded
//! one of the simulator.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use agent_domain::{ContainerDisk, Name, Namespace, Probe, Vmi};
use agent_plan::{
    Action, Completed, Failure, GuestAgentReport, NetworkObservation, Observed, ProbeAnswer,
    Record, Timestamp,
};
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::sync::Notify;

use crate::container_disks::{PullProgress, RemoveImageError, StoreUsage, StoredImage};
use crate::guest_agent::{GuestCredentials, GuestInfo};
use crate::logs::{LogReader, LogsError, Printed, Run};
use crate::usage::Usage;
use crate::work::WorkSeen;

/// Notified whenever something may have changed for one VMI. The actor of the VMI observes again; what
/// changed is not passed on, because a wake-up may be lost or doubled and an observation finds all.
pub type Wake = Arc<Notify>;

/// Input of an observation.
#[derive(Clone, Copy, Debug)]
pub struct ObserveInput<'a> {
    /// What is remembered. `record.id.uid` names everything that belongs to the VMI on the host.
    pub record: &'a Record,
    /// When the observation is made.
    pub now: Timestamp,
}

/// Disks of images that a host keeps.
pub trait ImageStore: Send + Sync + 'static {
    /// Pulls an image, or goes on with it, as a guest of the namespace would have it pulled. Takes a second or so.
    fn pull_image(
        &self,
        namespace: &Namespace,
        disk: &ContainerDisk,
    ) -> impl Future<Output = Result<PullProgress, Failure>> + Send;

    /// All that are kept.
    fn list_images(&self) -> impl Future<Output = io::Result<Vec<StoredImage>>> + Send;

    /// Removes some by digest or name.
    fn remove_images(
        &self,
        images: Vec<String>,
    ) -> impl Future<Output = Result<Vec<StoredImage>, RemoveImageError>> + Send;

    /// Removes all that no guest has, or says what would go: disks, and number and bytes of layers.
    fn prune_images(
        &self,
        is_dry: bool,
    ) -> impl Future<Output = io::Result<(Vec<StoredImage>, usize, u64)>> + Send;

    /// Usage of the image store.
    fn image_usage(&self) -> impl Future<Output = io::Result<StoreUsage>> + Send;
}

/// What a plan can do to a host, for one VMI at a time. Calls for different uids overlap. Of one uid there may be observations
/// while an action is carried out that is an operation ([`Action::work`]), and no other action.
pub trait Host: ImageStore {
    /// Observes, changing nothing. What is not known within a second or so is `Unknown`. Processes
    /// are read before exit records (see [`Observed`]).
    fn observe(&self, input: ObserveInput<'_>) -> impl Future<Output = Observed> + Send;

    /// Carries out one action. Carrying out an action again is success. An action of an incarnation
    /// older than one already seen for this uid is refused with [`agent_plan::FailureClass::Retry`] and the reason
    /// `Fenced`. [`Action::StopVmm`] and [`Action::KillVmm`] wait for their turn while many other VMMs end.
    ///
    /// Dropping the future of an operation cancels it: nothing is made for the VMI any more that a later
    /// [`Action::Release`] would not find, though a thread may still wait for a file system.
    fn execute(
        &self,
        action: &Action,
        vmi: &Vmi,
        record: &Record,
    ) -> impl Future<Output = Result<Completed, Failure>> + Send;

    /// Progress of the action that is being carried out for a uid, if it takes more than a moment; from memory.
    fn work(&self, uid: &str) -> WorkSeen;

    /// From now on, while the record's present VMM lives, `wake` is notified when its machine changes
    /// state and when its process ends. Idempotent for a uid and incarnation. Called after an observation
    /// that found a VMM.
    fn watch(&self, record: &Record, wake: Wake);

    /// Drops what is kept in memory for a uid (connections, watchers). Called when its object is
    /// gone.
    fn drop_vmi_state(&self, uid: &str);

    /// Brings the machine of the record's present VMM back to power-on, as its reset button would.
    fn reset(&self, record: &Record) -> impl Future<Output = Result<(), VerbError>> + Send;

    /// Has the guest of the record's present VMM reboot: by the agent in it, else by its power button.
    fn soft_reboot(&self, record: &Record) -> impl Future<Output = Result<(), VerbError>> + Send;

    /// Asks the guest of the record's present VMM once what the probe wants to know. An answer has the probe's time;
    /// before that, others may have to be done with the agent in the guest.
    fn probe(
        &self,
        vmi: &Vmi,
        record: &Record,
        probe: &Probe,
    ) -> impl Future<Output = ProbeAnswer> + Send;

    /// Asks the agent in the guest of the record's present VMM what the guest is; or why there is no answer. Takes some
    /// seconds at most once others are done with the agent.
    fn guest(
        &self,
        record: &Record,
    ) -> impl Future<Output = Result<GuestAgentReport, String>> + Send;

    /// With which addresses the node has seen the guest on networks of the configuration, and how its rules judge them; or why that
    /// cannot be read.
    fn observe_networks(
        &self,
        vmi: &Vmi,
        record: &Record,
    ) -> impl Future<Output = Result<NetworkObservation, String>> + Send;

    /// Asks the agent in the guest of the record's present VMM for all that it says of the guest. Takes some seconds at most
    /// once others are done with the agent.
    fn guest_info(
        &self,
        record: &Record,
    ) -> impl Future<Output = Result<GuestInfo, VerbError>> + Send;

    /// Has the agent in the guest of the record's present VMM set keys and passwords; or why it did not set them all. Takes
    /// some seconds at most once others are done with the agent.
    fn give_credentials(
        &self,
        record: &Record,
        credentials: &GuestCredentials,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Releases of the VMMs that are watched and live, as each reported when it was reached; from memory.
    fn releases(&self) -> Vec<String>;

    /// What the record's present VMM and its guest have used; `None` when no VMM lives. Takes a second or
    /// so at most, whatever the VMM does.
    fn usage(&self, vmi: &Vmi, record: &Record) -> impl Future<Output = Option<Usage>> + Send;

    /// How far the record's present VMM and its machine came on the way to the guest's first instruction, in the order
    /// of the times; `None` when no VMM answers.
    fn timeline(&self, record: &Record) -> impl Future<Output = Option<Vec<ReachedPhase>>> + Send;

    /// What a guest printed on its serial console, as far as it is kept, without attaching to it.
    fn printed(
        &self,
        record: &Record,
        run: Run,
    ) -> impl Future<Output = Result<LogReader, LogsError>> + Send;

    /// What the last VMI of this name that is gone printed in the end, as far as it is kept.
    ///
    /// # Errors
    /// [`LogsError::NothingKept`] and [`LogsError::Unreadable`].
    fn printed_of_gone(&self, namespace: &Namespace, name: &Name) -> Result<LogReader, LogsError>;

    /// What the guest of the record's present VMM printed from byte `from` of its whole output on. When that
    /// is not kept any more, from a later byte on.
    fn printed_since(
        &self,
        record: &Record,
        from: u64,
    ) -> impl Future<Output = Result<Printed, LogsError>> + Send;

    /// Connects to the serial console of the record's present VMM.
    fn attach_console(
        &self,
        record: &Record,
        request: ConsoleRequest,
    ) -> impl Future<Output = Result<ConsoleStream, ConsoleError>> + Send;

    /// Connects to a port of the guest of the record's present VMM, over the bridge of its first interface. Takes some
    /// seconds at most.
    fn reach(
        &self,
        vmi: &Vmi,
        record: &Record,
        port: GuestPort,
    ) -> impl Future<Output = Result<Reached, ReachError>> + Send;
}

/// A port of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestPort {
    /// Datagrams (UDP) rather than a connection (TCP).
    pub datagrams: bool,
    /// Number, at least 1.
    pub number: u16,
}

/// What leads to a port of a guest.
#[derive(Debug)]
pub enum GuestLink {
    /// A connection. It ends when the guest has not answered for a minute.
    Tcp(TcpStream),
    /// A socket that sends to the port alone and hears it alone.
    Udp(UdpSocket),
}

/// A port of a guest that was reached.
#[derive(Debug)]
pub struct Reached {
    /// Connection to the guest's port.
    pub link: GuestLink,
    /// Address of the port in the guest.
    pub address: SocketAddr,
}

/// Why a port of a guest was not reached.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// Nobody knows where the guest is; with the way out.
    #[error("{0}")]
    NoAddress(String),
    /// The node cannot go there.
    #[error("{0}")]
    Node(String),
    /// The guest did not take the connection.
    #[error("{0}")]
    Guest(String),
}

/// A point on the way of a VMM to the first instruction of its guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachedPhase {
    /// Its name, as in `docs/boot-timeline.md`.
    pub name: String,
    /// When it was reached, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
}

/// A request for a console.
#[derive(Clone, Debug)]
pub struct ConsoleRequest {
    /// End another attached console instead of being refused.
    pub force: bool,
    /// First what the ring still holds of the output, from this byte of the whole output on.
    pub replay_from: Option<u64>,
    /// Who attaches, such as `uid 1000 (pid 4242)`; shown to whoever is refused.
    pub client: String,
}

/// The guest's first serial port.
#[derive(Debug)]
pub struct ConsoleStream {
    /// Raw bytes both ways.
    pub stream: UnixStream,
    /// Which byte of the guest's whole output comes first, counted from 0.
    pub offset: u64,
}

/// Why a request to a guest was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// No VMM runs.
    #[error("the guest is not running")]
    NotRunning,
    /// No agent in the guest answers.
    #[error("no agent in the guest answers: {0}")]
    NoGuestAgent(String),
    /// The agent in the guest did not do it.
    #[error("the agent in the guest refuses: {0}")]
    GuestRefused(String),
    /// The VMM did not answer, or refused.
    #[error("the VMM did not do it: {0}")]
    Vmm(String),
}

/// Why there is no console.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// No VMM runs.
    #[error("the guest is not running")]
    NotRunning,
    /// Somebody else is attached.
    #[error("{said}")]
    Busy {
        /// The VMM's sentence, which says who.
        said: String,
    },
    /// The VMM did not answer, or refused.
    #[error("the VMM did not give its console: {0}")]
    Vmm(String),
}
