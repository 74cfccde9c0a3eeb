//! The Linux host.

mod bridges;
mod configure;
mod execute;
mod forward;
mod guest;
mod guest_address;
mod images;
mod logs;
mod observe;
mod pod;
mod probe;
mod release;
mod rules;
mod start;
mod talk;
mod timeline;
mod usage;
mod watch;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use agent_domain::{Name, Namespace, PathRules, Probe, Vmi};
use agent_plan::{
    Action, Completed, Failure, GuestAgentReport, NetworkObservation, Observed, ProbeAnswer, Record,
};
use nix::unistd::geteuid;
use tokio::task::AbortHandle;

use crate::beneath::AllowedPaths;
use crate::config::LinuxHostConfig;
use crate::container_disks::{ContainerDisks, Importer, MakingTurns};
use crate::dialer::Dialer;
use crate::ends::EndTurns;
use crate::facility::{
    ConsoleError, ConsoleRequest, ConsoleStream, GuestPort, Host, ObserveInput, ReachError,
    Reached, ReachedPhase, VerbError, Wake,
};
use crate::firmware::FirmwareFinder;
use crate::guest_agent::{GuestCredentials, GuestInfo};
use crate::kernels::{KernelCache, KernelCacheSettings};
use crate::launch_file::LaunchFile;
use crate::layout::{Layout, PathUid, ensure_private_dir};
use crate::logs::{LogReader, LogsError, Printed, Run};
use crate::pod::{PodNetworkConfig, Responder};
use crate::registry::{Fetches, Puller, Turns};
use crate::sandbox::Sandbox;
use crate::taps::AttachedTap;
use crate::usage::Usage;
use crate::users::VmmUsers;
use crate::vsock::Broker;
use crate::work::{Work, WorkSeen};

/// Runs VMMs on this machine.
#[derive(Debug)]
pub struct LinuxHost {
    settings: RwLock<Arc<Settings>>,
    layout: Layout,
    kernels: KernelCache,
    container_disks: Arc<ContainerDisks>,
    sandbox: Arc<Sandbox>,
    memory: Mutex<Memory>,
    /// Turns of VMMs that the agent ends.
    ends: EndTurns,
    dialer: Dialer,
    /// Answers guests of the pod network that ask for their addresses.
    responder: Arc<Responder>,
    /// What the node's part of the pod network was made for last.
    pod_prepared: tokio::sync::Mutex<Option<PodNetworkConfig>>,
    /// The rules for bridges of the configuration are there.
    bridges_prepared: tokio::sync::Mutex<bool>,
}

/// What the operator decides, as it is now.
#[derive(Debug)]
struct Settings {
    config: LinuxHostConfig,
    firmware: FirmwareFinder,
}

impl Settings {
    /// The paths that a namespace may use, with all that is remembered by now.
    fn allowed_paths(&self, namespace: &Namespace) -> AllowedPaths {
        let rules = PathRules {
            records: self.config.path_records.get(),
            ..self.config.paths.clone()
        };
        AllowedPaths::new(rules, namespace.as_str())
    }

    fn new(config: LinuxHostConfig) -> Arc<Self> {
        let firmware = FirmwareFinder::new(config.firmware.clone());
        Arc::new(Self { config, firmware })
    }
}

/// What is known only while the agent runs. Losing it costs nothing but time.
#[derive(Debug)]
struct Memory {
    users: VmmUsers,
    vmis: HashMap<String, VmiMemory>,
}

#[derive(Debug, Default)]
struct VmiMemory {
    /// Taps that no VMM has yet, by interface number.
    taps: HashMap<usize, AttachedTap>,
    /// Highest incarnation that an action was for.
    incarnation: u64,
    /// Held while somebody talks to the agent in the guest, whose channel has room for one.
    agent_turn: Arc<tokio::sync::Mutex<()>>,
    /// Whoever reads the console's output of its VMM: one at a time, so that readers leave connections to
    /// others.
    console_turn: Arc<tokio::sync::Mutex<()>>,
    /// Connects the guest's programs to the node's.
    broker: Arc<Broker>,
    watch: Option<VmmWatch>,
    /// Of the operation that is under way, or was last.
    work: Work,
}

/// The watch over a VMM. It ends with it.
#[derive(Debug)]
struct VmmWatch {
    incarnation: u64,
    task: AbortHandle,
    /// What the VMM said when it was reached.
    release: Arc<OnceLock<String>>,
}

/// Why the host cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StartHostError {
    /// A directory of the configuration cannot be made.
    #[error("the directory {path} cannot be made")]
    Directory {
        /// Path of the directory.
        path: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// What an earlier agent left cannot be read.
    #[error("the run directory cannot be read")]
    RunDirectory(#[source] io::Error),
    /// The caches cannot be cleaned up.
    #[error("the state directory cannot be cleaned up")]
    StateDirectory(#[source] io::Error),
}

impl LinuxHost {
    /// Takes possession of the host's directories and finds out where guests can live.
    ///
    /// # Errors
    /// When a directory cannot be made or read.
    pub async fn start(config: LinuxHostConfig) -> Result<Self, StartHostError> {
        for path in [&config.run_dir, &config.state_dir] {
            ensure_private_dir(path).map_err(|source| StartHostError::Directory {
                path: path.display().to_string(),
                source,
            })?;
        }
        let layout = Layout::new(&config.run_dir, &config.state_dir);
        let users =
            users_in_use(&layout, config.vmm_user_base).map_err(StartHostError::RunDirectory)?;
        let sandbox = Arc::new(Sandbox::detect().await);
        match *sandbox {
            Sandbox::Session { .. } => tracing::warn!("{}", sandbox.describe()),
            _ => tracing::info!("{}", sandbox.describe()),
        }
        let kernels = KernelCache::new(KernelCacheSettings {
            dir: layout.kernel_cache(),
            extracted: layout.extracted_files(),
            helper: config.helper_program.clone(),
            max_bytes: config.kernel_cache_bytes,
        });
        kernels
            .remove_half_written()
            .map_err(StartHostError::StateDirectory)?;
        let dialer = Dialer::new(config.helper_program.clone(), Arc::clone(&sandbox));
        let images = layout.images();
        let container_disks = ContainerDisks::new(Importer {
            helper: config.helper_program.clone(),
            puller: Puller {
                dir: images.join("layers"),
                helper: config.helper_program.clone(),
                fetches: Fetches::default(),
                turns: Turns::default(),
                dialer: dialer.clone(),
                sandbox: Arc::clone(&sandbox),
            },
            turns: MakingTurns::default(),
            limits: config.images,
            sandbox: Arc::clone(&sandbox),
            dir: images,
        });
        container_disks
            .remove_half_written()
            .map_err(StartHostError::StateDirectory)?;
        container_disks.collect_now_and_then();
        let host = Self {
            memory: Mutex::new(Memory {
                users,
                vmis: HashMap::new(),
            }),
            ends: EndTurns::default(),
            dialer,
            responder: Arc::new(Responder::new(
                config.helper_program.clone(),
                config.dhcp_program.clone(),
                Arc::clone(&sandbox),
            )),
            pod_prepared: tokio::sync::Mutex::default(),
            bridges_prepared: tokio::sync::Mutex::default(),
            settings: RwLock::new(Settings::new(config)),
            container_disks,
            layout,
            kernels,
            sandbox,
        };
        host.tidy_pod_network().await;
        host.tidy_bridge_walls().await;
        Ok(host)
    }

    /// Opens what goes out of the node or comes in.
    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Whether the node goes down: it is about to be switched off or restarted, as the service manager says. Takes five
    /// seconds at most. False where nobody can tell.
    pub async fn node_goes_down(&self) -> bool {
        match self.sandbox.node_goes_down().await {
            Ok(goes_down) => goes_down,
            Err(error) => {
                tracing::warn!(
                    error = &error as &(dyn std::error::Error + 'static),
                    "nobody can tell whether the node goes down; guests are left alone"
                );
                false
            }
        }
    }

    /// Has what is started from now on start by another configuration. Directories, users of VMMs and the
    /// size of the cache stay what they were at the start; what runs is not touched.
    pub fn reconfigure(&self, config: LinuxHostConfig) {
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *settings = Settings::new(config);
    }

    /// As they are now. Who does one thing for a guest takes them once.
    fn settings(&self) -> Arc<Settings> {
        // Nothing that holds the lock can leave them half changed.
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&settings)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing that holds the lock can leave the maps half changed.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the work of an operation.
    fn begin_work(&self, uid: &PathUid) -> Work {
        let work = Work::default();
        self.memory().vmi(uid).work = work.clone();
        work
    }

    /// The user for a VMI's VMM; `None` when the agent is not root and cannot change users.
    fn vmm_user(&self, uid: &PathUid) -> Option<u32> {
        geteuid().is_root().then(|| self.memory().users.assign(uid))
    }
}

impl Memory {
    fn vmi(&mut self, uid: &PathUid) -> &mut VmiMemory {
        self.vmis.entry(uid.as_str().to_owned()).or_default()
    }
}

/// Users of VMMs that an earlier agent started.
fn users_in_use(layout: &Layout, base: u32) -> io::Result<VmmUsers> {
    let mut users = VmmUsers::new(base);
    for uid in layout.uids_with_run_dir()? {
        for incarnation in layout.run_incarnations(&uid)? {
            let note = LaunchFile::read(&layout.run_of_vmm(&uid, incarnation))?;
            if let Some(user) = note.and_then(|note| note.user) {
                users.adopt(&uid, user);
            }
        }
    }
    Ok(users)
}

impl Host for LinuxHost {
    async fn observe(&self, input: ObserveInput<'_>) -> Observed {
        self.observe_vmi(input).await
    }

    async fn execute(
        &self,
        action: &Action,
        vmi: &Vmi,
        record: &Record,
    ) -> Result<Completed, Failure> {
        self.carry_out(action, vmi, record).await
    }

    fn work(&self, uid: &str) -> WorkSeen {
        let memory = self.memory();
        memory
            .vmis
            .get(uid)
            .map(|vmi| vmi.work.seen())
            .unwrap_or_default()
    }

    fn watch(&self, record: &Record, wake: Wake) {
        self.keep_watch(record, wake);
    }

    fn drop_vmi_state(&self, uid: &str) {
        let mut memory = self.memory();
        if let Some(watch) = memory.vmis.remove(uid).and_then(|vmi| vmi.watch) {
            watch.task.abort();
        }
        if let Ok(uid) = PathUid::new(uid) {
            memory.users.release(&uid);
        }
    }

    async fn reset(&self, record: &Record) -> Result<(), VerbError> {
        self.reset_machine(record).await
    }

    async fn soft_reboot(&self, record: &Record) -> Result<(), VerbError> {
        self.reboot_guest(record).await
    }

    async fn probe(&self, vmi: &Vmi, record: &Record, probe: &Probe) -> ProbeAnswer {
        self.question(vmi, record, probe).await
    }

    async fn guest(&self, record: &Record) -> Result<GuestAgentReport, String> {
        self.guest_agent_report(record).await
    }

    async fn observe_networks(
        &self,
        vmi: &Vmi,
        record: &Record,
    ) -> Result<NetworkObservation, String> {
        self.network_observation(vmi, record).await
    }

    async fn guest_info(&self, record: &Record) -> Result<GuestInfo, VerbError> {
        self.ask_guest_agent_of_guest(record).await
    }

    async fn give_credentials(
        &self,
        record: &Record,
        credentials: &GuestCredentials,
    ) -> Result<(), String> {
        self.set_credentials(record, credentials).await
    }

    fn releases(&self) -> Vec<String> {
        let memory = self.memory();
        let watches = memory.vmis.values().filter_map(|vmi| vmi.watch.as_ref());
        let living = watches.filter(|watch| !watch.task.is_finished());
        living
            .filter_map(|watch| watch.release.get().cloned())
            .collect()
    }

    async fn usage(&self, vmi: &Vmi, record: &Record) -> Option<Usage> {
        self.figures(vmi, record).await
    }

    async fn timeline(&self, record: &Record) -> Option<Vec<ReachedPhase>> {
        self.reached_phases(record).await
    }

    async fn printed(&self, record: &Record, run: Run) -> Result<LogReader, LogsError> {
        self.all_printed(record, run).await
    }

    fn printed_of_gone(&self, namespace: &Namespace, name: &Name) -> Result<LogReader, LogsError> {
        self.last_printed(namespace.as_str(), name.as_str())
    }

    async fn printed_since(&self, record: &Record, from: u64) -> Result<Printed, LogsError> {
        self.printed_from(record, from).await
    }

    async fn attach_console(
        &self,
        record: &Record,
        request: ConsoleRequest,
    ) -> Result<ConsoleStream, ConsoleError> {
        self.console(record, request).await
    }

    async fn reach(
        &self,
        vmi: &Vmi,
        record: &Record,
        port: GuestPort,
    ) -> Result<Reached, ReachError> {
        self.forward(vmi, record, port).await
    }
}
