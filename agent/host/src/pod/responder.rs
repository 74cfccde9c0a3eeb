//! The process that answers guests, as the agent has it: started when the first guest needs it, and again when it
//! ended.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_dhcp::Guest;
use agent_dhcp_server::{Dropped, Order, PLACES, create_counts, read_counts, send_order};
use tokio::process::Child;

use super::namespace::Namespace;
use crate::child::OPEN_DHCP;
use crate::facility::Wake;
use crate::sandbox::Sandbox;
use crate::scope::{Kind, Scope, Server, start_server};

/// What the process and the one that it starts may take.
const KIND: Kind = Kind {
    word: "dhcp",
    memory_bytes: 64 << 20,
    tasks: 16,
};

/// Starts the process and sends it orders.
#[derive(Debug)]
pub(crate) struct Responder {
    helper: PathBuf,
    program: PathBuf,
    sandbox: Arc<Sandbox>,
    /// Held while it is started and while an order is sent to it.
    turn: tokio::sync::Mutex<()>,
    present: Arc<Mutex<Option<Present>>>,
}

/// The process that runs.
#[derive(Debug)]
struct Present {
    pid: u32,
    orders: OwnedFd,
    /// Where it counts what it drops.
    counts: OwnedFd,
    /// Whom it answers, by the name of their VMM.
    served: HashMap<String, Served>,
}

/// A guest that is answered.
#[derive(Debug, Default)]
struct Served {
    /// Who looks after it.
    wake: Option<Wake>,
    /// Where in the file of counts it is; nowhere when there are too many guests.
    place: Option<u32>,
}

impl Present {
    /// The place of a guest in the file of counts: the one that it has, or one that is nobody's.
    fn place_of(&self, id: &str) -> Option<u32> {
        if let Some(served) = self.served.get(id) {
            return served.place;
        }
        let taken: BTreeSet<u32> = self
            .served
            .values()
            .filter_map(|served| served.place)
            .collect();
        (0..PLACES).find(|place| !taken.contains(place))
    }
}

/// A guest to answer.
#[derive(Clone, Debug)]
pub(crate) struct DhcpGuest {
    /// Names its VMM.
    pub(crate) id: String,
    /// It is bridged to the pod network.
    pub(crate) bridged: bool,
    /// What its answers say.
    pub(crate) guest: Guest,
}

impl Responder {
    /// `helper` carries out hidden subcommands, and `program` is the server that it starts.
    pub(crate) fn new(helper: PathBuf, program: PathBuf, sandbox: Arc<Sandbox>) -> Self {
        Self {
            helper,
            program,
            sandbox,
            turn: tokio::sync::Mutex::default(),
            present: Arc::default(),
        }
    }

    /// Has a guest be answered, in the namespace of its VMM and until that has ended.
    pub(crate) async fn serve(
        &self,
        served: &DhcpGuest,
        vmm: &OwnedFd,
        namespace: &Namespace,
    ) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        if self.locked().is_none() {
            self.start().await?;
        }
        let mut present = self.locked();
        let ended = || io::Error::other("it has just ended");
        let running = present.as_mut().ok_or_else(ended)?;
        let place = running.place_of(&served.id);
        let order = Order::Serve {
            id: served.id.clone(),
            place,
            bridged: served.bridged,
            guest: Box::new(served.guest.clone()),
        };
        let descriptors = [vmm.as_fd(), namespace.descriptor()];
        send_order(&running.orders, &order, &descriptors)?;
        let known = running.served.entry(served.id.clone()).or_default();
        known.place = place;
        Ok(())
    }

    /// What was dropped of a guest, since it is answered by the process that runs; `None` when it is not answered.
    pub(crate) fn dropped(&self, id: &str) -> Option<Dropped> {
        let present = self.locked();
        let running = present.as_ref()?;
        let read = read_counts(&running.counts, running.served.get(id)?.place?);
        read.inspect_err(|error| tracing::debug!(id, %error, "what was dropped is not known"))
            .ok()
    }

    /// Whether a guest is answered. Whoever asks is woken when it is not any more.
    pub(crate) fn serves(&self, id: &str, wake: &Wake) -> bool {
        let mut present = self.locked();
        let served = present
            .as_mut()
            .and_then(|present| present.served.get_mut(id));
        served.is_some_and(|known| {
            known.wake = Some(Arc::clone(wake));
            true
        })
    }

    /// Stops answering a guest.
    pub(crate) fn remove(&self, id: &str) {
        let mut present = self.locked();
        let Some(running) = present.as_mut() else {
            return;
        };
        if running.served.remove(id).is_none() {
            return;
        }
        let order = Order::Leave { id: id.to_owned() };
        if let Err(error) = send_order(&running.orders, &order, &[]) {
            // It leaves the guest alone by itself once the VMM has ended.
            tracing::debug!(id, %error, "the DHCP server did not take the order to forget a guest that is gone");
        }
    }

    /// Starts it in a cgroup of its own: its sockets are not bound by the rules of the agent's.
    async fn start(&self) -> io::Result<()> {
        let counts = create_counts()?;
        let stdout = Stdio::from(counts.try_clone()?);
        let arguments = [OPEN_DHCP.as_ref(), self.program.as_os_str()];
        let server = start_server(&self.helper, &arguments, stdout, &self.sandbox, KIND).await?;
        let Server {
            child,
            pid,
            orders,
            scope,
        } = server;
        // Before anybody waits for its end, which is to find it here.
        *self.locked() = Some(Present {
            pid,
            orders,
            counts,
            served: HashMap::new(),
        });
        let present = Arc::clone(&self.present);
        tokio::spawn(outlive((pid, child), scope, present));
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Option<Present>> {
        locked(&self.present)
    }
}

/// No holder of the lock can leave what it guards half changed.
fn locked(present: &Mutex<Option<Present>>) -> MutexGuard<'_, Option<Present>> {
    present.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the end of the process, and has its guests be looked after.
async fn outlive(
    (pid, mut child): (u32, Child),
    scope: Scope,
    present: Arc<Mutex<Option<Present>>>,
) {
    let ended = child.wait().await;
    let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
    tracing::warn!(
        pid,
        ended,
        "the DHCP server ended; another one takes its place"
    );
    let served = {
        let mut present = locked(&present);
        let is_it = present.as_ref().is_some_and(|present| present.pid == pid);
        present.take_if(|_| is_it).map(|present| present.served)
    };
    let served = served.into_iter().flatten();
    for wake in served.filter_map(|(_, served)| served.wake) {
        wake.notify_one();
    }
    scope.remove().await;
}
