//! What a node believes, and what it does when nobody talks to it.

use integration::agent::MANIFESTS;
use integration::commands::Commands;
use integration::{host, skip_if};
use proto_node::controlplane::answer::Result as Answered;
use proto_node::controlplane::lease::OnExpiry;
use proto_node::controlplane::session_request::Body as RequestBody;
use proto_node::controlplane::{Lease, Report};

use crate::node::{Node, PATIENCE, guest};
use crate::peer::Peer;

#[test]
fn the_past_another_owner_and_an_empty_list_change_nothing() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let peer = Peer::start()?;
    let node = Node::start("a", &peer.socket())?;
    let agent = node.agent();
    let register = peer.welcome(0)?;
    assert_eq!(
        (register.node_name.as_str(), register.highest_token),
        ("a", 0)
    );
    assert_eq!(register.labels["zone"], "a");
    assert!(
        register
            .capacity
            .is_some_and(|capacity| capacity.memory_bytes > 1 << 30)
    );

    // Made by its token, and fenced by it.
    let web = peer.assign(5, &guest("web"), None)?;
    assert_eq!(web.result(), Answered::Accepted, "{web:?}");
    peer.complete(1)?;
    let first = peer.phase("web", "Running")?;
    let stale = peer.assign(4, &guest("web"), None)?;
    assert_eq!(
        (stale.result(), stale.highest_token),
        (Answered::Stale, 5),
        "{stale:?}"
    );
    let altered = peer.assign(5, &guest("web").replace("16Mi", "32Mi"), None)?;
    assert_eq!(altered.result(), Answered::Altered, "{altered:?}");
    let stale = peer.withdraw(3, "web")?;
    assert_eq!(stale.result(), Answered::Stale, "{stale:?}");

    anothers_name_is_anothers(&peer, &node)?;
    no_list_deletes(&peer, &first)?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;

    // Withdrawn by name it goes, and its token never comes back.
    let gone = peer.withdraw(5, "web")?;
    assert_eq!(gone.result(), Answered::Accepted, "{gone:?}");
    peer.until(|received| match received {
        RequestBody::Report(report) if report.name == "web" && report.gone => Some(()),
        _ => None,
    })?;
    let late = peer.assign(5, &guest("web"), None)?;
    assert_eq!(late.result(), Answered::Stale, "{late:?}");

    // A new token makes it anew, and a newer one in its place.
    let anew = peer.assign(8, &guest("web"), None)?;
    assert_eq!(anew.result(), Answered::Accepted, "{anew:?}");
    let second = peer.phase("web", "Running")?;
    assert_ne!(first.uid, second.uid);
    let waiting = peer.assign(9, &guest("web"), None)?;
    assert_eq!(waiting.result(), Answered::Waiting, "{waiting:?}");
    let third = peer.until(|received| match received {
        RequestBody::Report(report) if report.token == 9 && !report.gone => Some(report),
        _ => None,
    })?;
    assert_ne!(third.uid, second.uid);
    Ok(())
}

/// Both ways, and by name.
fn anothers_name_is_anothers(peer: &Peer, node: &Node) -> anyhow::Result<()> {
    let agent = node.agent();
    let file = format!("{MANIFESTS}/static.yaml");
    node.0.put(&file, 0o644, guest("static").as_bytes())?;
    agent.wait_for_phase("static", "Running", PATIENCE)?;
    let owned = peer.assign(6, &guest("static"), None)?;
    assert_eq!(owned.result(), Answered::OwnedByAnother, "{owned:?}");
    assert!(owned.message.contains("static.yaml"), "{owned:?}");
    for attempt in ["delete vmi web", "apply -f /run/web.yaml"] {
        node.0
            .put("/run/web.yaml", 0o644, guest("web").as_bytes())?;
        let refused = agent.kvmctl(attempt)?;
        assert_ne!(refused.code, Some(0), "{refused}");
        assert!(
            refused.stderr.contains("control plane \"north\""),
            "{refused}"
        );
    }
    Ok(())
}

/// An empty list, a torn list, and a control plane that lost its memory.
fn no_list_deletes(peer: &Peer, first: &Report) -> anyhow::Result<()> {
    peer.hang_up()?;
    peer.welcome(6)?;
    peer.complete(0)?;
    let unlisted = peer.until(|received| match received {
        RequestBody::Report(report) if report.name == "web" && report.unlisted => Some(report),
        _ => None,
    })?;
    assert_eq!((&unlisted.uid, unlisted.token), (&first.uid, 5));
    peer.hang_up()?;
    peer.welcome(6)?;
    peer.complete(7)?;
    let forgetful = peer.welcome(2)?;
    assert_eq!(forgetful.highest_token, 5);
    // It is not talked to: the next word is another registration.
    let next = peer.until(Some)?;
    assert!(matches!(next, RequestBody::Register(_)), "{next:?}");
    peer.send_welcome(6)?;
    Ok(())
}

#[test]
fn leases_are_kept_without_the_control_plane_and_over_a_restart_of_the_agent() -> anyhow::Result<()>
{
    skip_if!(host::without_host(), Ok(()));
    let peer = Peer::start()?;
    let node = Node::start("a", &peer.socket())?;
    let agent = node.agent();
    peer.welcome(0)?;
    let lease = |on_expiry: OnExpiry, seconds| {
        Some(Lease {
            duration_seconds: seconds,
            on_expiry: on_expiry.into(),
            grace_period_seconds: 0,
        })
    };
    peer.assign(1, &guest("stops"), lease(OnExpiry::Stop, 12))?;
    peer.assign(2, &guest("pauses"), lease(OnExpiry::Pause, 12))?;
    peer.assign(3, &guest("keeps"), lease(OnExpiry::Keep, 1))?;
    peer.assign(4, &guest("free"), None)?;
    peer.complete(4)?;
    for name in ["stops", "pauses", "keeps", "free"] {
        agent.wait_for_phase(name, "Running", PATIENCE)?;
    }
    // The control plane goes, and the agent dies on top of it.
    drop(peer);
    node.restart_agent()?;
    agent.wait_for_phase("stops", "Succeeded", PATIENCE)?;
    node.0.wait_for(
        "kvmctl get vmi pauses -o yaml | grep -A4 'type: Paused' | grep -q 'True'",
        PATIENCE,
    )?;
    let events = agent.kvmctl("events")?;
    assert!(
        events.stdout.contains("LeaseExpired") && events.stdout.contains("north"),
        "{events}"
    );
    for name in ["pauses", "keeps", "free"] {
        assert_eq!(agent.value(name, ".status.phase")?, "Running");
    }
    assert_eq!(node.0.sh("pidof kvmlet-vmm | wc -w")?.trim(), "3");
    Ok(())
}
