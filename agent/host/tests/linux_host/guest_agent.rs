//! The channel to the agent in a guest.

use std::os::unix::fs::PermissionsExt;

use agent_plan::Observation;
use libtest_mimic::Trial;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::guest::{console, guest_vmi, run, testguest};
use crate::support::{HostDirs, Outcome, UID, eventually, launched, observe, release, skip, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial(
        "the_guest_agents_socket_is_its_owners_alone_and_leads_to_the_port",
        channel,
    )]
}

async fn channel() -> Outcome {
    let testguest = match testguest() {
        Ok(path) => path,
        Err(reason) => return skip(reason),
    };
    let dirs = HostDirs::new();
    std::fs::copy(testguest, dirs.images().join("vmlinuz"))?;
    let host = dirs.host().await;
    let vmi = guest_vmi(&dirs, UID, "tests=console");
    let identity = run(&host, &vmi).await;
    let socket = dirs.run().join("vmm").join(UID).join("1/guest-agent.sock");
    let mode = std::fs::metadata(&socket)?.permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut peer = UnixStream::connect(&socket).await?;
    peer.write_all(b"{\"execute\":\"guest-ping\"}").await?;
    let mut echo = [0; 24];
    peer.read_exact(&mut echo).await?;
    assert_eq!(&echo, b"{\"execute\":\"guest-ping\"}");
    drop(peer);
    let launched = launched(UID, 1, &identity);
    eventually("gone", || async {
        observe(&host, &launched).await.vmms == Observation::Absent
    })
    .await;
    let printed = console(&dirs);
    let expected = "name=\"org.qemu.guest_agent.0\" console=false sessions=1";
    assert!(printed.contains(expected), "{printed}");
    assert!(printed.contains("failed=0"), "{printed}");
    release(&host, &vmi, 1).await.unwrap();
    assert!(!socket.exists());
    Ok(())
}
