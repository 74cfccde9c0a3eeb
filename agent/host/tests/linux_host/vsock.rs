//! Sockets between a guest and the node.

use std::sync::Arc;
use std::time::Duration;

use agent_domain::Vmi;
use agent_host::Host;
use agent_plan::Observation;
use libtest_mimic::Trial;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::guest::{console, run, testguest};
use crate::support::{
    HostDirs, Outcome, UID, VSOCK_CID, eventually, launched, observe, release, skip, trial,
};

pub fn trials() -> Vec<Trial> {
    vec![trial(
        "a_guests_sockets_outlive_the_agent_that_started_it",
        both_ways,
    )]
}

fn vmi(dirs: &HostDirs) -> Vmi {
    dirs.vmi(
        UID,
        &[
            (
                "/spec/domain/firmware/kernelBoot/kernelArgs",
                json!("tests=vsock vsock_serve=1 vsock_connect=7000 vsock_kib=16"),
            ),
            ("/spec/domain/devices/autoattachVSOCK", json!(true)),
        ],
    )
}

/// Connects to port 7 of the guest, as it says it can be: the guest listens once it has booted.
async fn connect(socket: &std::path::Path) -> std::io::Result<BufReader<UnixStream>> {
    loop {
        let mut stream = BufReader::new(UnixStream::connect(socket).await?);
        stream.write_all(b"CONNECT 7\n").await?;
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.starts_with("OK ") {
            return Ok(stream);
        }
        // The guest does not listen yet, and nothing reports when it does.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn both_ways() -> Outcome {
    let testguest = match testguest() {
        Ok(path) => path,
        Err(reason) => return skip(reason),
    };
    let dirs = HostDirs::new();
    std::fs::copy(testguest, dirs.images().join("vmlinuz"))?;
    let first = dirs.host().await;
    let vmi = vmi(&dirs);
    let identity = run(&first, &vmi).await;
    drop(first);

    // The next agent's broker takes over; the actor is woken when it is there.
    let host = dirs.host().await;
    let mut launched = launched(UID, 1, &identity);
    launched.allocations.vsock_cid = Some(VSOCK_CID);
    let wake = Arc::new(Notify::new());
    host.watch(&launched, wake.clone());
    tokio::time::timeout(Duration::from_secs(20), wake.notified()).await?;

    let dir = dirs.run().join("vmm").join(UID).join("1");
    let program = UnixListener::bind(dir.join("vsock.sock_7000"))?;
    let mut stream = connect(&dir.join("vsock.sock")).await?;
    stream.write_all(b"hello").await?;
    let mut echo = [0; 5];
    stream.read_exact(&mut echo).await?;
    assert_eq!(&echo, b"hello");
    drop(stream);
    let (guest, _) = tokio::time::timeout(Duration::from_secs(30), program.accept()).await??;
    let (mut from, mut to) = guest.into_split();
    tokio::io::copy(&mut from, &mut to).await?;
    drop((from, to));

    eventually("gone", || async {
        observe(&host, &launched).await.vmms == Observation::Absent
    })
    .await;
    let printed = console(&dirs);
    assert!(printed.contains("connect=echoed"), "{printed}");
    assert!(printed.contains("failed=0"), "{printed}");
    release(&host, &vmi, 1).await.unwrap();
    assert!(!dir.exists());
    Ok(())
}
