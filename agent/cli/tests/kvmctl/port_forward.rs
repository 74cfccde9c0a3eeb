//! `kvmctl port-forward`: local ports, standard input and output, and connections of which an end breaks off.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::time::Duration;

use crate::support::Agent;
use crate::support::output::{code, err, out, with_web};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(20));

/// A `kvmctl` that listens, killed when dropped.
struct Forwarding {
    child: Child,
    printed: BufReader<ChildStdout>,
    noted: BufReader<ChildStderr>,
}

impl Forwarding {
    fn start(agent: &Agent, args: &[&str]) -> Self {
        let mut child = agent
            .command(&[&["port-forward"], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            printed: BufReader::new(child.stdout.take().unwrap()),
            noted: BufReader::new(child.stderr.take().unwrap()),
            child,
        }
    }

    /// The local address that the next line tells, with the rest of the line.
    fn address(&mut self) -> (String, String) {
        let mut line = String::new();
        self.printed.read_line(&mut line).unwrap();
        let line = line.trim_end().strip_prefix("Forwarding ").unwrap();
        let (address, rest) = line.split_once(' ').unwrap();
        (address.to_owned(), rest.to_owned())
    }

    fn note(&mut self) -> String {
        let mut line = String::new();
        self.noted.read_line(&mut line).unwrap();
        line
    }

    /// Ctrl+C.
    fn interrupt(mut self) -> Option<i32> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(PATIENCE).unwrap();
    stream
}

/// All that comes until the end.
fn rest(mut stream: TcpStream) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).map(|_| all)
}

#[test]
fn connections_are_carried_with_their_ends_and_several_at_a_time() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let mut forwarding = Forwarding::start(&agent, &["vm/web/team", "0:80", "tcp/0:2"]);
    let (address, rest_of_line) = forwarding.address();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert_eq!(rest_of_line, "to 80");
    let (ends_first, _) = forwarding.address();

    // One that nobody reads holds no other one up.
    let idle = connect(&address);
    let sent = "abcdefgh".repeat(400_000);
    let mut busy = connect(&address);
    let mut writer = busy.try_clone().unwrap();
    let whole = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(whole.as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    busy.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(
        back == sent.to_ascii_uppercase().into_bytes(),
        "{}",
        back.len()
    );
    drop(idle);

    // The guest's end comes before the client's.
    let mut stream = connect(&ends_first);
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said, b"bye");
    stream.write_all(b"more").unwrap();

    let requests = agent.requests();
    assert_eq!(requests.first().unwrap(), "forward team web tcp/80");
    assert_eq!(forwarding.interrupt(), Some(0));
}

#[test]
fn a_connection_that_is_refused_or_lost_ends_alone_and_is_reported() {
    let agent = Agent::new();
    let server = agent.serve();
    with_web(&agent);
    let mut forwarding = Forwarding::start(&agent, &["vmi/web", "0:1", "0:80"]);
    let (refused, _) = forwarding.address();
    let (address, _) = forwarding.address();
    // By a reset: an end would mean that all data came.
    let reset = std::io::ErrorKind::ConnectionReset;
    assert_eq!(rest(connect(&refused)).unwrap_err().kind(), reset);
    let note = forwarding.note();
    assert!(note.starts_with("connection of 127.0.0.1:"), "{note}");
    assert!(
        note.contains("(ServiceUnavailable): dial tcp 10.0.0.2:1: Connection refused"),
        "{note}"
    );

    let mut open = connect(&address);
    open.write_all(b"a").unwrap();
    open.read_exact(&mut [0]).unwrap();
    drop(server);
    assert_eq!(rest(open).unwrap_err().kind(), reset);
    let note = forwarding.note();
    assert!(
        note.contains("the agent went away, and with it this connection to web"),
        "{note}"
    );
    assert_eq!(rest(connect(&address)).unwrap_err().kind(), reset);
    let note = forwarding.note();
    assert!(note.contains("the agent cannot be reached at"), "{note}");

    let _server = agent.serve();
    let mut again = connect(&address);
    again.write_all(b"b").unwrap();
    again.shutdown(Shutdown::Write).unwrap();
    assert_eq!(rest(again).unwrap(), b"B");
}

#[test]
fn datagrams_go_both_ways_and_each_peer_has_its_own_way() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    let mut forwarding =
        Forwarding::start(&agent, &["vmi/web", "udp/0:53", "--address", "localhost"]);
    let (address, rest_of_line) = forwarding.address();
    assert_eq!(rest_of_line, "to 53 (udp)");
    let peers: Vec<UdpSocket> = (0..2)
        .map(|_| {
            let any = if address.starts_with('[') {
                "[::1]:0"
            } else {
                "127.0.0.1:0"
            };
            let peer = UdpSocket::bind(any).unwrap();
            peer.set_read_timeout(PATIENCE).unwrap();
            peer.connect(&address).unwrap();
            peer
        })
        .collect();
    for (peer, text) in peers.iter().zip(["first", "second"]) {
        for text in [text, ""] {
            peer.send(text.as_bytes()).unwrap();
            let mut answer = [0; 16];
            let count = peer.recv(&mut answer).unwrap();
            assert_eq!(answer[..count], *text.to_ascii_uppercase().as_bytes());
        }
    }
    assert_eq!(agent.requests(), ["forward default web udp/53"; 2]);
}

#[test]
fn one_connection_goes_over_standard_input_and_output() {
    let agent = Agent::new();
    let _server = agent.serve();
    let mut child = agent
        .command(&["port-forward", "--stdio=true", "vm/web/team", "22"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"ssh-2.0").unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), out(&output).as_str()), (0, "SSH-2.0"));
    assert_eq!(agent.requests(), ["forward team web tcp/22"]);

    let refused = agent.kvmctl(&["port-forward", "--stdio", "vmi/web", "1"]);
    assert_eq!((code(&refused), out(&refused).as_str()), (1, ""));
    assert!(
        err(&refused).contains("Connection refused"),
        "{}",
        err(&refused)
    );
}

#[test]
fn what_makes_no_sense_is_refused_before_anybody_listens() {
    let agent = Agent::new();
    let _server = agent.serve();
    with_web(&agent);
    for (args, status, words) in [
        (&["vmi/web"][..], 2, "[PROTOCOL/]LOCAL[:TARGET]"),
        (&["web", "80"], 2, "must contain type and name"),
        (&["vmi/web", "sctp/80"], 2, "tcp and udp are"),
        (&["vmi/web", "0"], 2, "the guest has no port 0"),
        (&["vmi/nobody", "8080"], 1, "\"nobody\" not found"),
        (&["--stdio", "vmi/web", "1", "2"], 2, "only one port"),
        (
            &["--stdio", "vmi/web", "udp/1"],
            2,
            "udp cannot be forwarded",
        ),
        (
            &["vmi/web", "0:1", "--address", "192.0.2.1"],
            1,
            "cannot be listened on",
        ),
    ] {
        let output = agent.kvmctl(&[&["port-forward"], args].concat());
        assert_eq!(code(&output), status, "{args:?} {}", err(&output));
        assert!(err(&output).contains(words), "{args:?} {}", err(&output));
    }
}
