//! The process that answers guests, as the agent has it: started when the first guest needs it, and again when it
//! ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_dhcp::Guest;
use tokio::process::Child;

use super::namespace::Namespace;
use crate::child::{DhcpOrder, OPEN_DHCP, send_dhcp_order};
use crate::facility::Wake;
use crate::sandbox::Sandbox;
use crate::scope::{Kind, Scope, Server, start_server};

/// What the process and the one that it starts may take.
const KIND: Kind = Kind {
    word: "dhcp",
    memory_bytes: 64 << 20,
    tasks: 16,
};

/// Starts and tells the process.
#[derive(Debug)]
pub(crate) struct Responder {
    program: PathBuf,
    sandbox: Arc<Sandbox>,
    /// Held while it is started, and told something.
    turn: tokio::sync::Mutex<()>,
    present: Arc<Mutex<Option<Present>>>,
}

/// The process that runs.
#[derive(Debug)]
struct Present {
    pid: u32,
    orders: OwnedFd,
    /// Whom it answers, by the name of their VMM, and who looks after them.
    served: HashMap<String, Option<Wake>>,
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
    pub(crate) fn new(program: PathBuf, sandbox: Arc<Sandbox>) -> Self {
        Self {
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
        let order = DhcpOrder::Serve {
            id: served.id.clone(),
            bridged: served.bridged,
            guest: Box::new(served.guest.clone()),
        };
        let mut present = self.locked();
        let ended = || io::Error::other("it has just ended");
        let running = present.as_mut().ok_or_else(ended)?;
        let descriptors = [vmm.as_fd(), namespace.descriptor()];
        send_dhcp_order(&running.orders, &order, &descriptors)?;
        running.served.entry(served.id.clone()).or_default();
        Ok(())
    }

    /// Whether a guest is answered. Whoever asks is woken when it is not any more.
    pub(crate) fn serves(&self, id: &str, wake: &Wake) -> bool {
        let mut present = self.locked();
        let served = present
            .as_mut()
            .and_then(|present| present.served.get_mut(id));
        served.is_some_and(|known| {
            *known = Some(Arc::clone(wake));
            true
        })
    }

    /// Leaves a guest alone.
    pub(crate) fn leave(&self, id: &str) {
        let mut present = self.locked();
        let Some(running) = present.as_mut() else {
            return;
        };
        if running.served.remove(id).is_none() {
            return;
        }
        let order = DhcpOrder::Leave { id: id.to_owned() };
        if let Err(error) = send_dhcp_order(&running.orders, &order, &[]) {
            // It leaves the guest alone by itself once the VMM has ended.
            tracing::debug!(id, %error, "the DHCP server did not take the order to forget a guest that is gone");
        }
    }

    /// Starts it in a cgroup of its own: its sockets are not bound by the rules of the agent's.
    async fn start(&self) -> io::Result<()> {
        let server = start_server(&self.program, OPEN_DHCP, &self.sandbox, KIND).await?;
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
    for wake in served.into_iter().flatten().filter_map(|(_, wake)| wake) {
        wake.notify_one();
    }
    scope.remove().await;
}
