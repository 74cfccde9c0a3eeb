//! Connections of clients to ports of guests.

use agent_domain::Vmi;
use agent_host::{GuestLink, GuestPort, Host, ReachError};
use agent_plan::Phase;
use agent_sources::{ApiError, Forward, ForwardLink, Forwarded};
use tracing::info;

use super::Guests;
use crate::error::store;
use crate::object;

impl<H: Host> Guests<H> {
    /// Connects to a port of a guest.
    pub(super) async fn open_forward(&self, forward: Forward) -> Result<Forwarded, ApiError> {
        let target = &forward.target;
        let row = self.store.row(target)?;
        object::check_uid(target, &forward.uid, &row)?;
        let record = self.store.ledger().record(&row.uid).map_err(store)?;
        let record = record.ok_or_else(|| object::not_found(target))?;
        if record.phase() != Phase::Running {
            return Err(ApiError::Conflict(format!(
                "no port of {:?} can be forwarded: the guest is not running (phase {})",
                target.name,
                record.phase().as_str()
            )));
        }
        let admitted = Vmi::restore(object::vmi(&row)?).map_err(|errors| {
            let first = errors.first().map(ToString::to_string).unwrap_or_default();
            ApiError::Internal(format!("this release cannot read the VMI: {first}"))
        })?;
        let port = GuestPort {
            datagrams: forward.datagrams,
            number: forward.port,
        };
        let reached = self.host.reach(&admitted.vmi, &record, port).await;
        let reached = reached.map_err(|error| {
            let text = format!("port {} of {:?}: {error}", forward.port, target.name);
            match error {
                ReachError::NoAddress(_) => ApiError::Forbidden(text),
                ReachError::Node(_) | ReachError::Guest(_) => ApiError::Unavailable(text),
            }
        })?;
        info!(
            vmi = %format_args!("{}/{}", target.namespace, target.name),
            to = %reached.address,
            datagrams = forward.datagrams,
            client = forward.client.as_str(),
            "forwarding"
        );
        Ok(Forwarded {
            uid: row.uid,
            address: reached.address,
            link: match reached.link {
                GuestLink::Tcp(stream) => ForwardLink::Tcp(stream),
                GuestLink::Udp(socket) => ForwardLink::Udp(socket),
            },
            stopping: self.actors.stopping(),
        })
    }
}
