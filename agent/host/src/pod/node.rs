//! The node's part: a bridge with the gateway's address, and a table.

use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressProtocol};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Handle, LinkBridge};

use super::clash;
use super::config::PodNetworkConfig;
use super::error::{PodError, link_error};
use super::names::{MARK, PREFIX6, mac_of};
use super::rules;
use super::walls::{self, Member};
use crate::netfilter::{Batch, Netfilter, Restored};
use crate::taps;

/// On addresses that the agent gave a link, as `ip` shows `proto`. Kernels before 5.18 keep nothing of it: there a former gateway
/// stays.
const OURS: AddressAttribute = AddressAttribute::Protocol(AddressProtocol::Other(107));

/// Makes what is missing, and changes what differs. `members` are the guests that run.
pub(crate) async fn prepare_node(
    config: &PodNetworkConfig,
    members: &[Member],
) -> Result<(), PodError> {
    let failed = || link_error("no netlink socket");
    let (connection, handle, _) = rtnetlink::new_connection().map_err(failed())?;
    let driver = tokio::spawn(connection);
    let prepared = async {
        prepare_bridge(&handle, config).await?;
        remove_former(&handle, config, members).await?;
        prepare_ports(&handle, members).await;
        Ok(())
    };
    let prepared = prepared.await;
    driver.abort();
    prepared?;
    let restored = restore_tables(config, members).map_err(PodError::Rules)?;
    for Restored { table, what, .. } in restored {
        tracing::debug!(table, what, "a table of nftables is made what it is to be");
    }
    Ok(())
}

/// Prepares a node on which an earlier agent had guests, and removes what is left of those that are gone. `marks` are those of all
/// guests that may be there. The answer: whether there was anything to prepare.
pub(crate) async fn tidy_node(
    config: &PodNetworkConfig,
    members: &[Member],
    marks: &[String],
) -> Result<bool, PodError> {
    let failed = || link_error("no netlink socket");
    let (connection, handle, _) = rtnetlink::new_connection().map_err(failed())?;
    let driver = tokio::spawn(connection);
    let removed = match index_of(&handle, &config.bridge).await {
        // What is wrong with it is better known before there is a guest.
        None => clash::ensure_free(&handle, config, None)
            .await
            .map(|()| false),
        Some(bridge) => remove_leftovers(&handle, bridge, marks)
            .await
            .map(|()| true),
    };
    driver.abort();
    if removed? {
        prepare_node(config, members).await?;
        return Ok(true);
    }
    Ok(false)
}

/// Removes bridge ports that bear a mark of the agent's which is none of `marks`.
async fn remove_leftovers(handle: &Handle, bridge: u32, marks: &[String]) -> Result<(), PodError> {
    let mut links = handle.link().get().execute();
    let failed = || link_error("the links cannot be listed");
    let mut leftovers = Vec::new();
    while let Some(link) = links.try_next().await.map_err(failed())? {
        let is_bridge_port = link.attributes.contains(&LinkAttribute::Controller(bridge));
        let mark = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::IfAlias(mark) if mark.starts_with(MARK) => Some(mark.clone()),
                _ => None,
            });
        leftovers.extend(
            mark.filter(|mark| is_bridge_port && !marks.contains(mark))
                .map(|mark| (link.header.index, mark)),
        );
    }
    for (index, mark) in leftovers {
        tracing::info!(mark, "a link of a guest that is gone is removed");
        let removed = handle.link().del(index).execute().await;
        removed.map_err(link_error(
            "a link of a guest that is gone cannot be removed",
        ))?;
    }
    Ok(())
}

/// One transaction, of what differs; none when both tables are there as they are wanted. The answer says in words what was not.
pub(crate) fn restore_tables(
    config: &PodNetworkConfig,
    members: &[Member],
) -> io::Result<Vec<Restored>> {
    let netfilter = Netfilter::open()?;
    let mut batch = Batch::default();
    let mut restored = Vec::new();
    for table in [rules::of_node(config), walls::walls(members)] {
        let difference = table.restore(&netfilter, &mut batch)?;
        restored.extend(Restored::of(&table, &difference));
    }
    netfilter.commit(batch)?;
    Ok(restored)
}

/// Has questions of bridged guests go to those whom the node asks now.
pub(crate) fn follow_upstreams(config: &PodNetworkConfig) -> io::Result<()> {
    let mut batch = Batch::default();
    rules::change_upstreams(&mut batch, &config.dns, false);
    Netfilter::open()?.commit(batch)
}

/// Lets a guest send, or not any more.
pub(crate) fn change_member(member: &Member, is_there: bool) -> io::Result<()> {
    let mut batch = Batch::default();
    member.change(&mut batch, is_there);
    Netfilter::open()?.commit(batch)
}

async fn prepare_bridge(handle: &Handle, config: &PodNetworkConfig) -> Result<(), PodError> {
    let name = &config.bridge;
    let present = index_of(handle, name).await;
    clash::ensure_free(handle, config, present).await?;
    if present.is_none() {
        // An address of its own: otherwise it takes that of a port, and guests lose their gateway for a while.
        let bridge = LinkBridge::new(name)
            .address(mac_of(config.gateway()).to_vec())
            .build();
        let made = handle.link().add(bridge).execute().await;
        made.map_err(link_error(format!("the bridge {name} cannot be made")))?;
    }
    let what = format!("the bridge {name}");
    let index = index_of(handle, name).await;
    let index = index.ok_or_else(|| link_error(what.clone())("it vanished after it was made"))?;
    // A guest that asks who belongs to which group, or says so itself, would have the bridge keep frames from others.
    let set = LinkBridge::new(name)
        .mcast_snooping(false)
        .mtu(config.mtu)
        .up()
        .build();
    let set = handle.link().change(set).execute().await;
    set.map_err(link_error(what.clone()))?;
    let v4 = Some((IpAddr::V4(config.gateway()), config.prefix));
    let v6 = config
        .gateway6()
        .map(|gateway| (IpAddr::V6(gateway), PREFIX6));
    for address in v4.into_iter().chain(v6) {
        add_address(handle, index, address).await?;
    }
    Ok(())
}

/// Takes the gateways of former networks off the bridge, as far as no guest has an address of them any more.
pub(crate) async fn remove_former_gateways(
    config: &PodNetworkConfig,
    members: &[Member],
) -> Result<(), PodError> {
    let failed = || link_error("no netlink socket");
    let (connection, handle, _) = rtnetlink::new_connection().map_err(failed())?;
    let driver = tokio::spawn(connection);
    let removed = remove_former(&handle, config, members).await;
    driver.abort();
    removed
}

/// The same. Addresses that somebody else gave the bridge stay.
async fn remove_former(
    handle: &Handle,
    config: &PodNetworkConfig,
    members: &[Member],
) -> Result<(), PodError> {
    let Some(index) = index_of(handle, &config.bridge).await else {
        return Ok(());
    };
    let mut addresses = handle
        .address()
        .get()
        .set_link_index_filter(index)
        .execute();
    let failed = || link_error("the addresses of the bridge cannot be listed");
    let mut former = Vec::new();
    while let Some(message) = addresses.try_next().await.map_err(failed())? {
        let attributes = &message.attributes;
        let address = attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        let Some(address) = address.filter(|_| attributes.contains(&OURS)) else {
            continue;
        };
        let prefix = message.header.prefix_len;
        let is_gateway = address == IpAddr::V4(config.gateway())
            || config.gateway6().map(IpAddr::V6) == Some(address);
        if !is_gateway && !members.iter().any(|member| member.is_of(address, prefix)) {
            former.push((address, message));
        }
    }
    for (address, message) in former {
        tracing::info!(%address, "the gateway of a former network is removed");
        let removed = handle.address().del(message).execute().await;
        removed.map_err(link_error(format!(
            "the former gateway {address} cannot be removed"
        )))?;
    }
    Ok(())
}

/// Has the rules see whatever comes by a port of the node's bridge.
pub(super) async fn show_all_frames(handle: &Handle, port: u32) -> Result<(), PodError> {
    let set = taps::show_all_frames(handle, port).await;
    set.map_err(link_error("the veth's port of the bridge"))
}

/// The ports of guests that another release has joined. One without a link is about to be joined again, or to go.
async fn prepare_ports(handle: &Handle, members: &[Member]) {
    for member in members {
        if let Some(port) = index_of(handle, &member.veth).await
            && let Err(error) = show_all_frames(handle, port).await
        {
            tracing::warn!(
                veth = member.veth,
                error = &error as &(dyn std::error::Error + 'static),
                "frames to groups of links are not judged"
            );
        }
    }
}

/// Gives a link an address. It is usable at once: nobody else has one of ours.
pub(super) async fn add_address(
    handle: &Handle,
    index: u32,
    (address, prefix): (IpAddr, u8),
) -> Result<(), PodError> {
    let mut added = handle.address().add(index, address, prefix).replace();
    added.message_mut().attributes.push(OURS);
    if address.is_ipv6() {
        added.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    }
    let added = added.execute().await;
    added.map_err(link_error(format!("the address {address} cannot be set")))
}

/// The index of a link; `None` when there is none of that name.
pub(super) async fn index_of(handle: &Handle, name: &str) -> Option<u32> {
    let mut links = handle.link().get().match_name(name.to_owned()).execute();
    // The kernel answers ENODEV for a name that does not exist.
    let link = links.try_next().await.ok().flatten()?;
    Some(link.header.index)
}
