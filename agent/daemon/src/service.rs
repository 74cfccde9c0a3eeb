//! From a configuration to a running agent, and back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_host::{Dialer, LinuxHost, NodeFacts, Restored};
use agent_objects::Kinds;
use agent_sources::manifests::ManifestSource;
use agent_sources::{ControlPlane, ControlPlaneServices, Services, serve};
use agent_store::{Ciphertext, Ledger, Limits};
use anyhow::Context;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use crate::agent::Agent;
use crate::config::Config;
use crate::connector::connector;
use crate::control_plane::Placements;
use crate::logging::LevelSwitch;
use crate::node_service::NodeService;
use crate::objects::Objects;
use crate::reload::Reloader;
use crate::secrets::Secrets;
use crate::{facts, listeners, lock, metrics, paths, traces, watchdog};

/// How long actors may take to finish their current step after SIGTERM.
const FINISH: Duration = Duration::from_secs(10);

/// How long the start waits for a file system where guests' files are.
const FILE_SYSTEM: Duration = Duration::from_secs(2);

/// Runs the agent until SIGTERM or SIGINT. Guests stay as they are.
pub(crate) async fn run(config: Config, level: LevelSwitch) -> anyhow::Result<()> {
    let facts = NodeFacts::collect().context("this node cannot be inspected")?;
    let _lock = lock::lock(&config.state_dir)?;
    if let Err(error) = facts::keep_network6(&config) {
        warn!(%error, "the network of guests' IPv6 addresses is not kept");
    }
    facts::warn_of_missing(&config, &facts);
    go_before_guests();
    let agent = open(&config, facts).await?;
    let (listeners, reloadable) = listeners::open(&config, agent.host.dialer()).await?;
    let endpoint = bind_metrics(&config, agent.host.dialer()).await?;
    let mut ends = Ends::new()?;
    let node = agent.node_service();
    let placements = agent.placements();
    let control_plane = control_plane(&agent, (&node, &placements), &config)?;
    placements.settle_assignments()?;
    agent
        .objects
        .install_common(config.instancetypes.common())?;
    node.publish();
    let adopted = agent.adopt_all()?;
    let services = Services {
        objects: agent.objects.clone(),
        guests: agent.guests(),
        node: node.clone(),
    };
    let mut service = tokio::spawn(serve(services, listeners, stopped(agent.actors.stopping())));
    let scrapes = endpoint.map(|endpoint| {
        let shutdown = stopped(agent.actors.stopping());
        tokio::spawn(metrics::http::serve(node.clone(), endpoint, shutdown))
    });
    let directory = config.manifest_dir.clone();
    let source = ManifestSource::new(agent.objects.clone(), node.clone(), directory);
    let source = tokio::spawn(source.run(stopped(agent.actors.stopping())));
    let keepers = keep(&agent, &node, placements);
    let control_plane =
        control_plane.map(|client| tokio::spawn(client.run(stopped(agent.actors.stopping()))));
    let fed = Arc::clone(&agent);
    let watchdog = tokio::spawn(watchdog::feed(move || fed.store.ledger().version().is_ok()));
    notify_ready(&agent.node.name, adopted, &config.socket);
    let mut reloader = Reloader::new(
        (Arc::clone(&agent), node.clone()),
        level,
        reloadable,
        config,
    );
    let served = tokio::select! {
        ended = &mut service => Some(ended),
        () = ends.wait(|| reloader.reload()) => None,
    };
    if served.is_none() && agent.host.node_goes_down().await {
        let longest = reloader.shutdown().longest_grace();
        node.end_with_node(longest).await;
    }
    info!("ending; guests run on");
    watchdog::notify(&[NotifyState::Stopping]);
    watchdog.abort();
    agent.actors.stop();
    let tasks = [source].into_iter().chain(keepers);
    finish(&agent, tasks.chain(control_plane).chain(scrapes)).await;
    agent.traces.finish().await;
    let ended = match served {
        Some(ended) => ended,
        None => service.await,
    };
    ended
        .context("the service's task failed")?
        .context("the service failed")
}

/// Reports to the log and to the service manager that everything is served, and how many VMIs there were at the start.
fn notify_ready(node_name: &str, adopted: usize, socket: &Path) {
    let socket = socket.display();
    let status = format!("{adopted} VirtualMachineInstances at start; serving {socket}");
    info!(node = node_name, vmis = adopted, %socket, "ready");
    watchdog::notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Waits for what is under way, for a while.
async fn finish(agent: &Agent<LinuxHost>, tasks: impl Iterator<Item = JoinHandle<()>>) {
    let finish = async {
        agent.actors.join().await;
        for task in tasks {
            // These only end; they have nothing to report.
            drop(task.await);
        }
    };
    if tokio::time::timeout(FINISH, finish).await.is_err() {
        warn!("some actions are still under way; the next start observes their effects");
    }
}

/// Starts what looks after leases, drains, objects without an actor, and rules for guests.
fn keep(
    agent: &Arc<Agent<LinuxHost>>,
    node: &NodeService<LinuxHost>,
    placements: Placements,
) -> [JoinHandle<()>; 4] {
    let stopped = || stopped(agent.actors.stopping());
    [
        tokio::spawn(placements.run_leases(stopped())),
        tokio::spawn(node.clone().run_drains(stopped())),
        tokio::spawn(agent.objects.clone().run_controllers(stopped())),
        tokio::spawn(keep_rules(Arc::clone(agent), stopped())),
    ]
}

/// Has rules of nftables for guests be what they are to be.
async fn keep_rules(agent: Arc<Agent<LinuxHost>>, shutdown: impl Future<Output = ()>) {
    let kept = agent.host.keep_rules(|Restored { table, what, .. }| {
        warn!(
            table,
            what, "somebody changed rules for guests: they are put right"
        );
        agent.metrics.restored(table);
    });
    tokio::select! {
        () = kept => {}
        () = shutdown => {}
    }
}

/// Has the kernel kill this agent before any guest where memory runs out.
fn go_before_guests() {
    if let Err(error) = agent_host::offer_first() {
        warn!(%error, "where memory runs out, the kernel may kill guests before this agent");
    }
}

/// Where the ledger is.
pub(crate) fn ledger_file(config: &Config) -> PathBuf {
    config.state_dir.join("ledger.redb")
}

/// The agent with its ledger and its host, before it does anything.
async fn open(config: &Config, facts: NodeFacts) -> anyhow::Result<Arc<Agent<LinuxHost>>> {
    let ledger = Ledger::open(&ledger_file(config), Limits::default())?;
    make_dirs(config).await?;
    let secrets = open_secrets(&config.state_dir, &ledger)?;
    if let Some(why) = secrets.refused() {
        error!(
            "Secrets can be neither read nor written until the agent starts with their key: {why}"
        );
    }
    let known_paths = paths::load(&ledger, &facts::path_rules(config))?;
    let host = LinuxHost::start(facts::host_config(config, &known_paths))
        .await
        .context("the host cannot be prepared")?;
    let judged_by = (facts::caps(config, &facts), facts::firmware(config));
    let rules = config.capacity.rules();
    let stored = (ledger, secrets);
    let agent = Agent::new(stored, host, judged_by, facts, rules, known_paths)?;
    agent.node.set_hooks(config.hooks.clone());
    let connector = connector(agent.host.dialer());
    let of_node = (agent.node.name.as_str(), &agent.metrics.spans);
    let pipeline = traces::configured(config, connector, of_node)?;
    agent.traces.replace(pipeline);
    Ok(agent)
}

/// The key of what is confidential. One that is lost is needed no longer once all that was encrypted under it is deleted.
fn open_secrets(state_dir: &Path, ledger: &Ledger) -> anyhow::Result<Secrets> {
    let kinds = Kinds::this_release().all();
    let confidential = kinds.filter(|kind| !kind.confidential.is_empty());
    let kinds: Vec<&str> = confidential.map(|kind| kind.kind).collect();
    let used = ledger.prune_seal_keys(&kinds, Ciphertext::All)?;
    let secrets = Secrets::load(state_dir, &used);
    if secrets.refused().is_none() || used.is_empty() {
        return Ok(secrets);
    }
    let needed = ledger.prune_seal_keys(&kinds, Ciphertext::OfObjects)?;
    Ok(if needed == used {
        secrets
    } else {
        Secrets::load(state_dir, &needed)
    })
}

/// Signals.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Ends {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the one that ends the agent; each SIGHUP is a reload.
    async fn wait(&mut self, mut reload: impl FnMut()) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => reload(),
            }
        }
    }
}

/// The client of a control plane.
type NodeClient = ControlPlane<Objects, NodeService<LinuxHost>, Placements>;

/// The client of the control plane, if the node has one.
fn control_plane(
    agent: &Agent<LinuxHost>,
    (node, placements): (&NodeService<LinuxHost>, &Placements),
    config: &Config,
) -> anyhow::Result<Option<NodeClient>> {
    let Some(settings) = config.control_plane()? else {
        return Ok(None);
    };
    placements.dial(&settings.name);
    info!(control_plane = settings.name, "dialling");
    let services = ControlPlaneServices {
        objects: agent.objects.clone(),
        node: node.clone(),
        assignments: placements.clone(),
    };
    Ok(Some(ControlPlane::new(
        services,
        settings,
        connector(agent.host.dialer()),
    )))
}

/// Listens where Prometheus is to come to, if anywhere.
async fn bind_metrics(
    config: &Config,
    dialer: &Dialer,
) -> anyhow::Result<Option<metrics::http::Endpoint>> {
    let Some(address) = config.metrics.listen else {
        return Ok(None);
    };
    let endpoint = metrics::http::Endpoint::bind(address, dialer)
        .await
        .with_context(|| {
            format!(
                "metrics.listen = \"{address}\" in {}: it cannot be listened there",
                config.origin.display()
            )
        })?;
    info!(%address, "metrics are served");
    Ok(Some(endpoint))
}

/// Directories that manifests and images are expected in.
async fn make_dirs(config: &Config) -> anyhow::Result<()> {
    let rules = facts::path_rules(config);
    for directory in rules.roots().chain([config.run_dir.as_path()]) {
        let path = directory.to_owned();
        let making = tokio::task::spawn_blocking(move || std::fs::create_dir_all(path));
        // Guests of a file system that does not answer wait for it, and nobody else does.
        let Ok(made) = tokio::time::timeout(FILE_SYSTEM, making).await else {
            warn!(directory = %directory.display(), "the file system of this directory does not answer");
            continue;
        };
        made.map_err(std::io::Error::other).flatten().with_context(|| {
            format!(
                "the directory {} cannot be made (the unit of systemd opens no others than its own: \
                 systemctl edit kvmlet, ReadWritePaths=)",
                directory.display()
            )
        })?;
    }
    Ok(())
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the agent itself is gone.
    drop(stopping.wait_for(|stopping| *stopping).await);
}
