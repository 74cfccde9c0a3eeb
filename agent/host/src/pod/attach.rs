//! Joining one guest to the pod network.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use agent_domain::PodBinding;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder,
};

use super::error::{PodError, link_error};
use super::names::{BRIDGE, BRIDGE_ADDRESS, ETH, PREFIX6, TAP, mac_of};
use super::namespace::Namespace;
use super::node::{add_address, change_member, index_of, show_all_frames};
use super::plan::PodPlan;
use super::upstreams::add_ways;
use super::{forwarding, rules};
use crate::netfilter::Netfilter;
use crate::taps::{self, open_tap};

/// A guest's part of the pod network.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The queues of its tap.
    pub(crate) queues: Vec<OwnedFd>,
}

/// Makes everything in the VMM's namespace, and the veth. What an earlier attempt left there is replaced.
pub(crate) async fn attach(plan: PodPlan, namespace: Namespace) -> Result<Attached, PodError> {
    let own = Namespace::own().map_err(PodError::Namespace)?;
    if own.is(&namespace).map_err(PodError::Namespace)? {
        return Err(PodError::NoNamespace);
    }
    // Of an earlier attempt, or of an earlier VMM whose namespace is on its way out.
    taps::remove(&plan.member.veth)
        .await
        .map_err(link_error("an older veth cannot be removed"))?;
    let inside = plan.clone();
    let made = namespace.run(async move || make(&inside, &own).await);
    let attached = made.await.map_err(PodError::Namespace)??;
    change_member(&plan.member, true).map_err(PodError::Rules)?;
    join_bridge(&plan).await?;
    Ok(attached)
}

/// In the VMM's namespace.
async fn make(plan: &PodPlan, node: &Namespace) -> Result<Attached, PodError> {
    // Links take settings over when they are made.
    forwarding::switch_on(plan.v6.is_some()).map_err(PodError::Forwarding)?;
    let failed = || link_error("no netlink socket");
    let (connection, handle, _) = rtnetlink::new_connection().map_err(failed())?;
    let driver = tokio::spawn(connection);
    let result = make_links(plan, node, &handle).await;
    driver.abort();
    let queues = result?;
    let netfilter = Netfilter::open().map_err(PodError::Rules)?;
    rules::inside(plan)
        .make(&netfilter)
        .map_err(PodError::Rules)?;
    Ok(Attached { queues })
}

async fn make_links(
    plan: &PodPlan,
    node: &Namespace,
    handle: &Handle,
) -> Result<Vec<OwnedFd>, PodError> {
    if let Some(index) = index_of(handle, ETH).await {
        let removed = handle.link().del(index).execute().await;
        removed.map_err(link_error("an older veth cannot be removed"))?;
    }
    let queues = open_tap(TAP, plan.queues).map_err(PodError::Tap)?;
    let tap = index_of(handle, TAP).await;
    let tap = tap.ok_or_else(|| link_error("the tap")("it vanished after it was made"))?;
    let made = handle.link().add(veth(plan, node)).execute().await;
    made.map_err(link_error("the veth cannot be made"))?;
    let eth = index_of(handle, ETH).await;
    let eth = eth.ok_or_else(|| link_error("the veth")("it vanished after it was made"))?;
    let loopback = LinkUnspec::new_with_name("lo").up().build();
    let set = handle.link().set(loopback).execute().await;
    set.map_err(link_error("the loopback interface"))?;
    let up = LinkUnspec::new_with_index(tap)
        .mtu(plan.node.mtu)
        .up()
        .build();
    let set = handle.link().set(up).execute().await;
    set.map_err(link_error("the tap cannot be set up"))?;
    match plan.binding {
        PodBinding::Masquerade => {
            let inside = plan.inside;
            add_address(handle, tap, (inside.gateway.into(), inside.prefix)).await?;
            add_address(handle, eth, (plan.member.address.into(), plan.node.prefix)).await?;
            add_default_route(handle, plan.node.gateway()).await?;
            if let Some(v6) = plan.v6 {
                add_address(handle, tap, (v6.inside.gateway.into(), v6.inside.prefix)).await?;
                add_address(handle, eth, (v6.address.into(), PREFIX6)).await?;
                add_default_route6(handle, v6.gateway).await?;
            }
            add_ways(handle, &plan.upstreams, &plan.ways_out()).await?;
        }
        PodBinding::Bridge => bridge(plan, handle, [tap, eth]).await?,
    }
    Ok(queues)
}

/// Makes both links ports of one bridge, which hands the guest its address and takes no other part.
async fn bridge(plan: &PodPlan, handle: &Handle, ports: [u32; 2]) -> Result<(), PodError> {
    if let Some(older) = index_of(handle, BRIDGE).await {
        let removed = handle.link().del(older).execute().await;
        removed.map_err(link_error("an older bridge cannot be removed"))?;
    }
    let what = "the bridge between tap and veth";
    let made = handle
        .link()
        .add(LinkBridge::new(BRIDGE).mtu(plan.node.mtu).up().build());
    made.execute().await.map_err(link_error(what))?;
    let index = index_of(handle, BRIDGE).await;
    let index = index.ok_or_else(|| link_error(what)("it vanished after it was made"))?;
    for port in ports {
        let link = LinkUnspec::new_with_index(port).controller(index).build();
        let set = handle.link().set(link).execute().await;
        set.map_err(link_error(what))?;
    }
    add_address(handle, index, (BRIDGE_ADDRESS.into(), 32)).await
}

/// Both ends, the one for the node in the node's namespace from the start: moving a link takes the kernel long.
fn veth(plan: &PodPlan, node: &Namespace) -> rtnetlink::packet_route::link::LinkMessage {
    // As high as a unicast address can be: the node's bridge keeps its own.
    let [_, rest @ ..] = mac_of(plan.member.address);
    let mut outer = vec![0xfe];
    outer.extend(rest);
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(plan.member.veth.clone())
        .mtu(plan.node.mtu)
        .address(outer)
        .setns_by_fd(node.number())
        .build();
    LinkVeth::new(ETH, &plan.member.veth)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .mtu(plan.node.mtu)
        .address(mac_of(plan.member.address).to_vec())
        .up()
        .build()
}

async fn add_default_route(handle: &Handle, gateway: Ipv4Addr) -> Result<(), PodError> {
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .gateway(gateway)
        .build();
    let added = handle.route().add(route).replace().execute().await;
    added.map_err(link_error(format!("the route by {gateway} cannot be set")))
}

async fn add_default_route6(handle: &Handle, gateway: Ipv6Addr) -> Result<(), PodError> {
    let route = RouteMessageBuilder::<Ipv6Addr>::new()
        .gateway(gateway)
        .build();
    let added = handle.route().add(route).replace().execute().await;
    added.map_err(link_error(format!("the route by {gateway} cannot be set")))
}

/// Makes the node's end of the veth a port of the node's bridge.
async fn join_bridge(plan: &PodPlan) -> Result<(), PodError> {
    let failed = || link_error("no netlink socket");
    let (connection, handle, _) = rtnetlink::new_connection().map_err(failed())?;
    let driver = tokio::spawn(connection);
    let joined = async {
        let bridge = &plan.node.bridge;
        let gone = |name: &str| link_error(format!("the link {name}"))("it is not there");
        let port = index_of(&handle, &plan.member.veth).await;
        let port = port.ok_or_else(|| gone(&plan.member.veth))?;
        let index = index_of(&handle, bridge)
            .await
            .ok_or_else(|| gone(bridge))?;
        let link = LinkUnspec::new_with_index(port)
            .controller(index)
            .alias(plan.mark.clone())
            .build();
        let failed = || link_error(format!("the veth cannot join the bridge {bridge}"));
        let set = handle.link().set(link).execute().await;
        set.map_err(failed())?;
        show_all_frames(&handle, port).await?;
        let up = LinkUnspec::new_with_index(port).up().build();
        let set = handle.link().set(up).execute().await;
        set.map_err(failed())
    };
    let joined = joined.await;
    driver.abort();
    joined
}
