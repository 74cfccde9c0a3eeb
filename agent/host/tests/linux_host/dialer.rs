//! Sockets that a process of its own opens.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use agent_host::LinuxHost;
use futures_util::TryStreamExt;
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rtnetlink::LinkUnspec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};

use crate::support::{HostDirs, Outcome, trial};

pub const NODE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long the kernel may take to end a process.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub fn trials() -> Vec<Trial> {
    vec![
        trial("sockets_of_another_process_are_the_hosts", sockets),
        trial(
            "a_process_that_opens_sockets_is_nobody_and_is_replaced",
            replaced,
        ),
    ]
}

/// The namespace of the tests has nothing that is up.
pub async fn raise_loopback() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let (connection, handle, _) = rtnetlink::new_connection().unwrap();
    tokio::spawn(connection);
    let mut found = handle.link().get().match_name("lo".to_owned()).execute();
    let index = found.try_next().await.unwrap().unwrap().header.index;
    let up = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(up).execute().await.unwrap();
}

async fn sockets() -> Outcome {
    raise_loopback().await;
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let dialer = host.dialer();
    let listener = dialer.listen(NODE).await?;
    let address = listener.local_addr()?;
    // A name is looked up, and each of its addresses is tried.
    let mut ours = dialer.connect_by_name("localhost", address.port()).await?;
    let (mut theirs, _) = listener.accept().await?;
    ours.write_all(b"hello").await?;
    let mut heard = [0; 5];
    theirs.read_exact(&mut heard).await?;
    assert_eq!(&heard, b"hello");
    let through = dialer.connect(address, Some("lo")).await?;
    assert_eq!(through.peer_addr()?, address);
    drop(listener);
    let refused = dialer.connect(address, None).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    let missing = dialer.connect(address, Some("none0")).await.unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(nix::libc::ENODEV), "{missing}");
    let unknown = dialer.look_up("no host has a space", 80).await.unwrap_err();
    assert!(!unknown.to_string().is_empty());

    let peer = UdpSocket::bind(NODE).await?;
    let stranger = UdpSocket::bind(NODE).await?;
    let ours = dialer.datagrams(peer.local_addr()?, None).await?;
    stranger.send_to(b"no", ours.local_addr()?).await?;
    peer.send_to(b"yes", ours.local_addr()?).await?;
    let mut heard = [0; 8];
    assert_eq!(ours.recv(&mut heard).await?, 3, "it hears its peer alone");
    // Connections that nobody answers hold up no others.
    let full = full_listener()?;
    let silent = full.local_addr()?;
    let held: Vec<_> = (0..600)
        .map(|_| {
            let dialer = dialer.clone();
            tokio::spawn(async move { dialer.connect(silent, None).await })
        })
        .collect();
    let other = dialer.listen(NODE).await?;
    let address = other.local_addr()?;
    let connected = tokio::time::timeout(PATIENCE, dialer.connect(address, None)).await?;
    drop(connected?);
    assert!(
        held.iter().any(|one| !one.is_finished()),
        "all were answered"
    );
    held.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// One whose queue is full, so that the kernel answers nobody else.
fn full_listener() -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 1, 2, 3], 0).into())?;
    socket.listen(0)
}

/// Processes of this program that were started under another name.
fn named(program: &Path) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.starts_with(program.as_os_str().as_bytes())
    })
    .collect()
}

async fn replaced() -> Outcome {
    raise_loopback().await;
    let dirs = HostDirs::new();
    let mut config = dirs.config();
    config.helper_program = dirs.dir.path().join("helper");
    symlink("/proc/self/exe", &config.helper_program)?;
    let program = config.helper_program.clone();
    let host = LinuxHost::start(config).await?;
    let dialer = host.dialer();
    let listener = dialer.listen(NODE).await?;
    let address = listener.local_addr()?;
    let started = named(&program);
    let [pid] = started[..] else {
        return Err(format!("{started:?} instead of one process").into());
    };
    if nix::unistd::geteuid().is_root() {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        for line in [
            "Uid:\t65534\t65534\t65534\t65534",
            "CapEff:\t0000000000000000",
            "NoNewPrivs:\t1",
        ] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
    // Sockets that were opened stay; others are opened by another process.
    let begun = Instant::now();
    while let Err(error) = dialer.connect(address, None).await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    drop(listener.accept().await?);
    Ok(())
}
