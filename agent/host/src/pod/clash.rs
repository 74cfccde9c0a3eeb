//! Networks that the node has a way to: guests' networks must be none of them.

use std::net::IpAddr;

use futures_util::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};

use super::config::PodNetworkConfig;
use super::error::{PodError, link_error};
use super::overlap::{Network, overlap};

/// Makes sure that no route of the node leads to a network that the bridge, if it is there, does not have yet. One that it has is in use:
/// whoever came later is at fault, and guests go on.
pub(super) async fn ensure_free(
    handle: &Handle,
    config: &PodNetworkConfig,
    bridge: Option<u32>,
) -> Result<(), PodError> {
    let present = match bridge {
        Some(bridge) => addresses_of(handle, bridge).await?,
        None => Vec::new(),
    };
    for pool in config.pools() {
        if present.contains(&pool.gateway) {
            continue;
        }
        if let Some((route, link)) = route_to(handle, pool.network, bridge).await? {
            return Err(PodError::Clash {
                setting: pool.setting,
                network: pool.shown(),
                route: shown(route),
                link: name_of(handle, link).await,
            });
        }
    }
    Ok(())
}

fn shown((address, bits): Network) -> String {
    format!("{address}/{bits}")
}

async fn addresses_of(handle: &Handle, link: u32) -> Result<Vec<IpAddr>, PodError> {
    let request = handle.address().get().set_link_index_filter(link);
    let listed: Vec<_> = request
        .execute()
        .try_collect()
        .await
        .map_err(link_error("the addresses of the bridge cannot be listed"))?;
    let attributes = listed.into_iter().flat_map(|message| message.attributes);
    let addresses = attributes.filter_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(address),
        _ => None,
    });
    Ok(addresses.collect())
}

/// A route that leads into a network, or to one that it is in, by another link than the bridge.
async fn route_to(
    handle: &Handle,
    network: Network,
    bridge: Option<u32>,
) -> Result<Option<(Network, Option<u32>)>, PodError> {
    let mut asked = RouteMessage::default();
    asked.header.address_family = match network.0 {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let mut routes = handle.route().get(asked).execute();
    let failed = || link_error("the routes of the node cannot be listed");
    let mut found = None;
    // To the end: what is left of an answer would be taken for the next one.
    while let Some(message) = routes.try_next().await.map_err(failed())? {
        let Some((route, link)) = led_to(&message) else {
            continue;
        };
        let is_other = bridge.is_none() || link != bridge;
        if is_other && overlap(route, network) {
            found = found.or(Some((route, link)));
        }
    }
    Ok(found)
}

/// Where a route of the table `main` leads, and by which link; default routes lead everywhere, and refuse nothing.
fn led_to(message: &RouteMessage) -> Option<(Network, Option<u32>)> {
    let header = &message.header;
    let is_main = header.table == RouteHeader::RT_TABLE_MAIN && header.kind == RouteType::Unicast;
    let attributes = message.attributes.iter();
    let (mut network, mut link) = (None, None);
    for attribute in attributes.filter(|_| is_main) {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => {
                network = Some(IpAddr::V4(*address));
            }
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => {
                network = Some(IpAddr::V6(*address));
            }
            RouteAttribute::Oif(index) => link = Some(*index),
            _ => {}
        }
    }
    Some(((network?, header.destination_prefix_length), link))
}

async fn name_of(handle: &Handle, link: Option<u32>) -> String {
    let unknown = || String::from("several links");
    let Some(link) = link else {
        return unknown();
    };
    let mut links = handle.link().get().match_index(link).execute();
    // It may be gone by now.
    let found = links.try_next().await.ok().flatten();
    let attributes = found.map(|link| link.attributes).into_iter().flatten();
    let mut names = attributes.filter_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    names.next().unwrap_or_else(|| format!("link {link}"))
}
