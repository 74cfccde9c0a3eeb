//! Peers that misbehave, and peers that must not be there.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use integration::vmm_client::VmmProcess;
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::soon;

fn is_alive(vmm: &VmmProcess) -> bool {
    let status = vmm
        .connect()
        .and_then(|mut client| client.must(Kind::GetStatus(v1::GetStatus {})));
    status.is_ok()
}

/// Whether the VMM closes the connection.
fn is_closed(mut socket: &UnixStream) -> bool {
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("set");
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn noise_is_answered_by_the_end_of_the_connection() {
    let vmm = VmmProcess::start().unwrap();
    for noise in [
        vec![0xff; 100],
        // A body of 4 GiB.
        vec![0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        // More descriptors than allowed, and descriptors that do not come.
        vec![1, 0, 0, 0, 0xff, 0xff, 0, 0, 0],
        vec![1, 0, 0, 0, 1, 0, 0, 0, 0],
        // An empty frame, where a HelloAck is due.
        vec![0; 8],
    ] {
        let mut socket = UnixStream::connect(vmm.socket()).unwrap();
        socket.write_all(&noise).unwrap();
        assert!(is_closed(&socket), "{noise:?}");
    }
    assert!(is_alive(&vmm));
}

#[test]
fn a_request_before_the_handshake_is_refused() {
    let vmm = VmmProcess::start().unwrap();
    let socket = UnixStream::connect(vmm.socket()).unwrap();
    let stop = v1::Frame {
        body: Some(v1::frame::Body::Request(v1::Request {
            id: 1,
            kind: Some(Kind::Stop(v1::Stop::default())),
        })),
    };
    let bytes = proto_vmm::encode_frame(&stop, 0).unwrap();
    (&socket).write_all(&bytes).unwrap();
    assert!(is_closed(&socket));
    assert!(is_alive(&vmm));
}

#[test]
fn the_ninth_connection_is_refused_until_another_goes() {
    let vmm = VmmProcess::start().unwrap();
    let mut clients: Vec<_> = (0..8).map(|_| vmm.connect().unwrap()).collect();
    assert!(is_closed(&UnixStream::connect(vmm.socket()).unwrap()));
    clients.pop();
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while !is_alive(&vmm) {
        assert!(std::time::Instant::now() < deadline);
    }
}

#[test]
fn a_peer_that_does_not_read_is_cut_off_and_holds_nobody_up() {
    let vmm = VmmProcess::start().unwrap();
    let client = vmm.connect().unwrap();
    let request = v1::Frame {
        body: Some(v1::frame::Body::Request(v1::Request {
            id: 1,
            kind: Some(Kind::GetStatus(v1::GetStatus {})),
        })),
    };
    let bytes = proto_vmm::encode_frame(&request, 0).unwrap().repeat(1000);
    let mut socket = client.socket();
    socket
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut sent = 0;
    while socket.write_all(&bytes).is_ok() {
        sent += bytes.len();
        assert!(
            sent < 64 << 20,
            "a peer that does not read is served for ever"
        );
    }
    assert!(is_alive(&vmm));
}

#[test]
fn only_root_and_the_own_user_may_connect() {
    if !nix::unistd::geteuid().is_root() {
        integration::skip::report("becoming another user takes root");
        return;
    }
    let vmm = VmmProcess::start().unwrap();
    let socket = vmm.socket();
    let directory = socket.parent().unwrap();
    std::fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&socket, PermissionsExt::from_mode(0o777)).unwrap();
    // Prints what the VMM says; perl is part of every Debian.
    let script = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0) or die; \
                  connect(S, pack_sockaddr_un($ARGV[0])) or die \"$!\"; \
                  print length(<S> // '');";
    let heard_by = |uid: u32| {
        let output = Command::new("perl")
            .args(["-e", script])
            .arg(&socket)
            .uid(uid)
            .output()
            .expect("perl");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(heard_by(65_534), "0");
    soon(|| vmm.log().unwrap().contains("peer-refused"));
}
