use std::os::fd::RawFd;
use std::os::unix::net::UnixListener;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, send};
use nix::unistd::close;
use tokio::io::AsyncReadExt;

use super::*;

/// The VMM's end.
struct Vmm(UnixStream);

impl Vmm {
    async fn ask(&self, number: u64, port: u32) {
        let mut packet = number.to_le_bytes().to_vec();
        packet.extend(port.to_le_bytes());
        packet.extend([0; 4]);
        self.send(&packet).await;
    }

    async fn send(&self, packet: &[u8]) {
        let sent = self.0.async_io(Interest::WRITABLE, || {
            Ok(send(self.0.as_raw_fd(), packet, MsgFlags::empty())?)
        });
        sent.await.unwrap();
    }

    /// Number, yes or no, and descriptors.
    async fn receive(&self) -> (u64, u32, Vec<RawFd>) {
        let received = self.0.async_io(Interest::READABLE, || {
            let mut packet = [0; 32];
            let mut space = [IoSliceMut::new(&mut packet)];
            let mut rights = cmsg_space!([RawFd; 2]);
            let flags = MsgFlags::MSG_CMSG_CLOEXEC;
            let got =
                recvmsg::<UnixAddr>(self.0.as_raw_fd(), &mut space, Some(&mut rights), flags)?;
            let descriptors = got.cmsgs()?.filter_map(|message| match message {
                ControlMessageOwned::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            });
            let descriptors = descriptors.flatten().collect();
            assert_eq!(got.bytes, PACKET_BYTES);
            let word = |at: usize| u32::from_le_bytes(packet[at..at + 4].try_into().unwrap());
            let number = u64::from(word(4)) << 32 | u64::from(word(0));
            Ok((number, word(8), descriptors))
        });
        received.await.unwrap()
    }
}

fn served(broker: &Broker, incarnation: u64, dir: &Path) -> Vmm {
    Vmm(polled(broker.start(incarnation, dir).unwrap()).unwrap())
}

#[tokio::test]
async fn a_program_that_listens_gets_the_guests_connection_and_others_refuse_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = UnixListener::bind(dir.path().join("vsock.sock_7000")).unwrap();
    program.set_nonblocking(true).unwrap();
    let program = tokio::net::UnixListener::from_std(program).unwrap();
    let broker = Broker::default();
    let vmm = served(&broker, 1, dir.path());
    vmm.ask(1 << 40, 7001).await;
    assert_eq!(vmm.receive().await, (1 << 40, 0, Vec::new()));
    vmm.ask(5, 7000).await;
    let (number, yes, descriptors) = vmm.receive().await;
    assert_eq!((number, yes, descriptors.len()), (5, 1, 1));
    let (mut peer, _) = program.accept().await.unwrap();
    // Nobody else holds the guest's end.
    close(descriptors[0]).unwrap();
    assert_eq!(peer.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_broker_serves_one_incarnation_until_its_vmm_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::default();
    assert!(!broker.serves(1));
    let first = served(&broker, 1, dir.path());
    assert!(broker.serves(1) && !broker.serves(2));
    let second = served(&broker, 2, dir.path());
    assert!(broker.serves(2) && !broker.serves(1));
    drop((first, second));
    while broker.serves(2) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_vmm_that_asks_nonsense_is_served_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::default();
    let vmm = served(&broker, 1, dir.path());
    vmm.send(&[1; 17]).await;
    while broker.serves(1) {
        tokio::task::yield_now().await;
    }
}
