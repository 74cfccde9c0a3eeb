//! Whom a guest's gateway asks for names, and the ways there.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rtnetlink::{Handle, RouteMessageBuilder};

use super::error::{PodError, link_error};
use super::namespace::Namespace;
use super::overlap::overlap;
use super::plan::WayOut;
use super::rules;
use crate::netfilter::{Batch, Netfilter};

/// Has questions for names go to other servers, in the namespace of a VMM that runs.
pub(crate) async fn change_upstreams(
    namespace: Namespace,
    (servers, has_ipv6): (Vec<IpAddr>, bool),
    ways: Vec<WayOut>,
) -> io::Result<()> {
    let change = async move || {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let driver = tokio::spawn(connection);
        let added = add_ways(&handle, &servers, &ways).await;
        driver.abort();
        added.map_err(io::Error::other)?;
        let mut batch = Batch::default();
        rules::change_upstreams(&mut batch, &servers, has_ipv6);
        Netfilter::open()?.commit(batch)
    };
    namespace.run(change).await?
}

/// Leads to servers by the way out though their addresses are of the network that the guest has to itself: a node of VirtualBox or of
/// QEMU's user network asks 10.0.2.3.
pub(super) async fn add_ways(
    handle: &Handle,
    servers: &[IpAddr],
    ways: &[WayOut],
) -> Result<(), PodError> {
    for server in servers {
        let bits = if server.is_ipv4() { 32 } else { 128 };
        let mut ways = ways.iter();
        let Some(way) = ways.find(|way| overlap(way.inside, (*server, bits))) else {
            continue;
        };
        let route = match (*server, way.gateway) {
            (IpAddr::V4(server), IpAddr::V4(gateway)) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(server, bits)
                .gateway(gateway)
                .build(),
            (IpAddr::V6(server), IpAddr::V6(gateway)) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(server, bits)
                .gateway(gateway)
                .build(),
            _ => continue,
        };
        let added = handle.route().add(route).replace().execute().await;
        added.map_err(link_error(format!("the route to {server} cannot be set")))?;
    }
    Ok(())
}
