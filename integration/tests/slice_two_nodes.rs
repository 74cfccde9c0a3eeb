//! The pod networks of two nodes with distinct pools and routes to each other's: their guests reach each other directly, each
//! under its own address. The route to the other's pool is announced to each guest beside its default route.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::{Commands, Session};
use integration::image::busybox::{self, GuestImage};
use integration::node::{Flavour, Network, Node, NodeSpec};
use integration::{skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);

/// The pools of both nodes.
const POOLS: [&str; 2] = ["10.213.0.0/16", "10.214.0.0/16"];

/// The same by IPv6, and the nodes' own addresses between each other.
const POOLS6: [&str; 2] = ["fd00:213::/64", "fd00:214::/64"];
const NODES6: [&str; 2] = ["fd00:77::1", "fd00:77::2"];

/// Prints a line for each request, with the address of who asks.
const SERVE: &str = "mkdir -p /tmp/www && echo it works >/tmp/www/page && httpd -f -vv -p 80 -h /tmp/www >/tmp/log 2>&1 &";

/// A node with an agent and a guest of the pod network.
struct NodeWithGuest<'n> {
    node: &'n Node,
    console: Session,
    address: String,
    address6: String,
}

fn boot(network: Network) -> anyhow::Result<[Node; 2]> {
    let spec = |number| -> anyhow::Result<NodeSpec> {
        let spec = NodeSpec::bare(Flavour::Busybox)
            .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
            .with(busybox::guest()?.directory, "images/busybox");
        Ok(network.join(spec, number))
    };
    let first = Node::boot(spec(1)?)?;
    let second = first.boot_beside(2, spec(2)?)?;
    Ok([first, second])
}

impl<'n> NodeWithGuest<'n> {
    /// `number` is the node's, 1 or 2. A node that does not name the other's pool has its guests' connections leave under its
    /// own address.
    fn new(node: &'n Node, number: u8) -> anyhow::Result<Self> {
        let (other_number, [own, other]) = match number {
            1 => (2, POOLS),
            _ => (1, [POOLS[1], POOLS[0]]),
        };
        let agent = Agent::prepare(node)?;
        agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
        let (index, other_index) = (usize::from(number) - 1, usize::from(other_number) - 1);
        let (own6, other6) = (POOLS6[index], POOLS6[other_index]);
        let setting = format!(
            "\n[pod_network]\ncidr = \"{own}\"\ncidr6 = \"{own6}\"\nnon_masquerade_cidrs = [\"{other}\", \"{other6}\"]\n\
             routes = [\"{other}\", \"{other6}\"]\n"
        );
        node.sh(&format!("printf '%s' '{setting}' >>{CONFIG}"))?;
        Network::bring_up(node, number)?;
        let gateway = Network::address(other_number);
        node.sh(&format!(
            "echo 1 >/proc/sys/net/ipv4/ip_forward && ip route add {other} via {gateway}"
        ))?;
        let (node6, gateway6) = (NODES6[index], NODES6[other_index]);
        node.sh(&format!(
            "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding && ip -6 addr add {node6}/64 dev eth0 && \
             ip -6 route add {other6} via {gateway6}"
        ))?;
        agent.start()?;
        agent.apply(
            &GuestSpec::busybox("web", "quiet")
                .on_pod_network()
                .manifest(),
        )?;
        agent.wait_for_phase("web", "Running", PATIENCE)?;
        let address = agent.value("web", ".status.interfaces[0].ipAddress")?;
        let address6 = agent.value("web", ".status.interfaces[0].ipAddresses[1]")?;
        let mut place = Self {
            node,
            console: agent.console("web")?,
            address,
            address6,
        };
        place.console.read_until(GuestImage::PROMPT, PATIENCE)?;
        place.ask("until ip route | grep ^default; do usleep 100000; done")?;
        // Its busybox has no client of DHCPv6; a router it hears of by itself.
        place.ask("ip addr add fd10:0:2::2/120 dev eth0")?;
        place.ask("until ip -6 route | grep ^default; do usleep 100000; done")?;
        place.has_routes(other, other6)?;
        Ok(place)
    }

    /// The guest has the routes that are announced to it, by its gateway, and the default routes too.
    fn has_routes(&mut self, other: &str, other6: &str) -> anyhow::Result<()> {
        let routes = self.ask("ip route")?;
        for wanted in [other, "default"] {
            let wanted = format!("{wanted} via 10.0.2.1 dev eth0");
            ensure!(routes.contains(&wanted), "{wanted} is not in {routes}");
        }
        let routes = self.ask("ip -6 route")?;
        for wanted in [other6, "default"] {
            let wanted = format!("{wanted} via fe80::");
            ensure!(routes.contains(&wanted), "{wanted} is not in {routes}");
        }
        Ok(())
    }

    /// What the guest says to a command.
    fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        self.console.write(format!("{command}\n").as_bytes())?;
        self.console.read_until(GuestImage::PROMPT, PATIENCE)
    }

    /// The guest reaches another, which sees its address of the pool.
    fn reach(&mut self, other: &mut Self) -> anyhow::Result<()> {
        for address in [&other.address, &other.address6] {
            let said = self.ask(&format!("ping -c 1 -W 20 {address}"))?;
            ensure!(said.contains(" 0% packet loss"), "{address}: {said}");
        }
        let said = self.ask(&format!("wget -q -O - http://{}/page", other.address))?;
        ensure!(said.contains("it works"), "{said}");
        let seen = other.ask("cat /tmp/log")?;
        let own = format!("{}]:", self.address);
        ensure!(
            seen.contains(&own),
            "{} was seen as another: {seen}",
            self.address
        );
        Ok(())
    }
}

#[test]
fn guests_of_two_nodes_reach_each_other_under_their_own_addresses() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let [first, second] = boot(Network::new()?)?;
    let (mut here, mut there) = (
        NodeWithGuest::new(&first, 1)?,
        NodeWithGuest::new(&second, 2)?,
    );
    ensure!(here.address.starts_with("10.213."), "{}", here.address);
    ensure!(there.address.starts_with("10.214."), "{}", there.address);
    for place in [&mut here, &mut there] {
        place.ask(SERVE)?;
    }
    here.reach(&mut there)
        .and_then(|()| there.reach(&mut here))
        .with_context(|| {
            format!(
                "{}\n{}",
                Agent::of(here.node).log(),
                Agent::of(there.node).log()
            )
        })
}
