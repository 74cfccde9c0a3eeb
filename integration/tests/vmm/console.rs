//! The serial console.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::{VmmClient, VmmProcess};
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::ByHand;
use crate::tiny_guest::{echo, kernel, print};

fn attach(client: &mut VmmClient, name: &str, force: bool) -> (UnixStream, Option<v1::Error>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(Duration::from_secs(10)))
        .expect("set");
    let attach = Kind::AttachConsole(v1::AttachConsole {
        force,
        replay: true,
        client: name.to_owned(),
        replay_from: 0,
    });
    let response = client
        .request(attach, &[theirs.as_fd()])
        .expect("an answer");
    (ours, response.error)
}

fn read_until(socket: &mut UnixStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    socket.read_exact(&mut bytes).expect("output");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_client_sees_the_past_types_and_is_replaced_only_by_force() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[print("prompt> "), echo()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);

    let (mut first, error) = attach(&mut client, "first", false);
    assert_eq!(error, None);
    assert_eq!(read_until(&mut first, 8), "prompt> ");
    // Far more than the port's FIFO takes at a time.
    let pasted = "0123456789".repeat(100);
    first.write_all(pasted.as_bytes()).unwrap();
    assert_eq!(read_until(&mut first, pasted.len()), pasted);

    let (_refused, error) = attach(&mut client, "second", false);
    let error = error.unwrap();
    assert_eq!(error.code(), v1::ErrorCode::ConsoleBusy);
    assert!(error.message.contains("first"), "{}", error.message);

    let (mut second, error) = attach(&mut client, "second", true);
    assert_eq!(error, None);
    assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(read_until(&mut second, 8), "prompt> ");
}

#[test]
fn a_console_outlives_its_agent() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[echo()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let (mut console, error) = attach(&mut client, "user", false);
    assert_eq!(error, None);
    drop(client);
    console.write_all(b"still there").unwrap();
    assert_eq!(read_until(&mut console, 11), "still there");
}
