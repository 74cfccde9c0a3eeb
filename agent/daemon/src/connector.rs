//! How control planes and collectors of spans are reached.

use agent_host::Dialer;
use agent_sources::Connector;

/// Connections by sockets that are not the unit's, which may talk to nobody.
pub(crate) fn connector(dialer: &Dialer) -> Connector {
    let dialer = dialer.clone();
    Connector::new(move |host, port| {
        let dialer = dialer.clone();
        Box::pin(async move { dialer.connect_by_name(&host, port).await })
    })
}
