//! State that outlives a process, as bytes that anybody may have written: that of every device, and a
//! snapshot as a whole.

use prost::Message;
use proto_vmm::payload::{
    MAX_SNAPSHOT_BYTES, PAYLOAD_HEADER_BYTES, decode_snapshot, encode_snapshot, snapshot_head_bytes,
};
use proto_vmm::v1;
use vmm_devices::virtio::VirtioPciFunction;
use vmm_devices::{Payload, Payloads, PciFunction};
use vmm_machine::{PciAddress, Section, Snapshot, fuzzing};

use super::exits::{layout, line};
use super::serial;
use crate::driver::Peer;
use crate::guest::{Guest, NoMsi, ram, settle};
use crate::input::Input;
use crate::peers::{BalloonPeer, BlkPeer, ConsolePeer, NetPeer, RngPeer, VsockPeer};

/// Which device, the bytes of its own state, and then those of its transport. With no bytes for the
/// transport it has that of a driver that is ready.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.below(7);
    if choice == 6 {
        return drop(serial::port().load(&Payload {
            kind: "serial-16550".to_owned(),
            version: 1,
            bytes: input.rest().to_vec(),
        }));
    }
    let peer: Box<dyn Peer> = match choice {
        0 => Box::new(BlkPeer::new(&mut input)),
        1 => Box::new(NetPeer::new()),
        2 => Box::new(ConsolePeer::new()),
        3 => Box::new(BalloonPeer),
        4 => Box::new(VsockPeer::new()),
        _ => Box::new(RngPeer),
    };
    let mut guest = Guest::new(peer.device());
    guest.start(input.u64());
    guest.settle();
    let mut payloads = guest.save().expect("a device that rests");
    let own = usize::from(input.u16());
    let own = input.bytes(own);
    if let Some(payload) = payloads.get_mut(1).filter(|_| !own.is_empty()) {
        payload.bytes = own.to_vec();
    }
    if let Some(payload) = payloads.get_mut(0).filter(|_| !input.is_empty()) {
        payload.bytes = input.rest().to_vec();
    }
    goes_on(&*peer, payloads);
}

fn goes_on(peer: &dyn Peer, payloads: Vec<Payload>) {
    let mut payloads = Payloads::new(payloads);
    let Some(device) = peer.restored(&mut payloads) else {
        return;
    };
    let msi = std::sync::Arc::new(NoMsi::default());
    let Ok(mut function) = VirtioPciFunction::restored(device, ram(), msi, &mut payloads) else {
        return;
    };
    function.resume();
    settle(&mut function);
    function.reset();
    settle(&mut function);
}

/// A snapshot: its head as a file has it, and the body of one whose checksums are right.
pub fn snapshot(bytes: &[u8]) {
    if let Some(head) = bytes.get(..PAYLOAD_HEADER_BYTES)
        && let Ok(length) = snapshot_head_bytes(head)
    {
        // How much is read is the head's to say.
        assert!(
            length <= PAYLOAD_HEADER_BYTES + MAX_SNAPSHOT_BYTES,
            "a head without bounds"
        );
    }
    let Ok(body) = v1::Snapshot::decode(bytes) else {
        // A whole head is rare here, and seldom right.
        return drop(decode_snapshot(bytes));
    };
    let decoded = decode_snapshot(&encode_snapshot(&body)).expect("what was written");
    assert_eq!(decoded, body, "another snapshot");
    let sections = decoded.sections.into_iter().map(|section| Section {
        name: section.name,
        payload: Payload {
            kind: section.kind,
            version: section.version,
            bytes: section.content,
        },
    });
    let snapshot = Snapshot {
        sections: sections.collect(),
    };
    let functions = (1..4).filter_map(|device| PciAddress::new(0, device));
    let functions: Vec<_> = functions.collect();
    let line = line();
    fuzzing::take_apart(
        snapshot,
        layout(),
        &functions,
        serial::port(),
        line.as_ref(),
    );
}
