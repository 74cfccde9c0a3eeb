//! The console device: a named port whose peers come and go, and a console.

use std::io::Write;
use std::os::unix::net::UnixStream;

use vmm_devices::virtio::console::{ConsolePorts, ConsoleSize, ConsoleSpec};

use super::*;

const NAME: &str = "org.qemu.guest_agent.0";
const GREETING: &str = "TESTGUEST on the console port\r\n";

struct Host {
    ports: Arc<ConsolePorts>,
    printed: Arc<Console>,
}

impl Host {
    fn new() -> Self {
        let printed = Arc::<Console>::default();
        let console = ConsoleSpec {
            name: String::new(),
            output: Arc::clone(&printed) as _,
            size: ConsoleSize::default(),
        };
        let names = vec![NAME.to_owned(), "other".to_owned()];
        let ports = ConsolePorts::new(Some(console), names).expect("ports");
        Self { ports, printed }
    }

    fn device(&self) -> DeviceConfig {
        DeviceConfig::Console(Arc::clone(&self.ports))
    }

    fn attach(&self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PATIENCE)).expect("set");
        let port = &self.ports.named()[0];
        port.attach(theirs.into(), "test", false).expect("attached");
        ours
    }

    fn greeting(&self) -> String {
        self.printed.text()
    }
}

/// Sends `bytes` bytes and reads the guest's echo of them.
fn exchange(peer: &UnixStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at % 253).to_le_bytes()[0]).collect();
    let mut writer = peer.try_clone().expect("a descriptor");
    let copy = sent.clone();
    let writer = std::thread::spawn(move || writer.write_all(&copy));
    let mut echoed = vec![0; bytes];
    let mut reader = peer;
    reader.read_exact(&mut echoed).expect("an echo");
    writer.join().expect("no panic").expect("written");
    assert!(echoed == sent, "the echo is another");
}

#[test]
fn a_named_port_carries_data_for_one_peer_after_the_other() {
    skip_if!(without_machine());
    for mode in ["irq", "poll"] {
        let host = Host::new();
        let command_line = format!("tests=console mode={mode} console_sessions=3");
        let machine = Machine::boot(&command_line, KernelEntry::Default, vec![host.device()]);
        for session in 1..=3 {
            // The first peer may be there before the guest is.
            let peer = host.attach();
            exchange(&peer, 300_000);
            drop(peer);
            machine.wait_for(&format!("TESTGUEST port closed={session}"));
        }
        let (status, results) = machine.ended();
        assert_eq!(
            results.one("done"),
            "passed=4 failed=0 skipped=0",
            "{results:#?}"
        );
        let line = results.one("console");
        let expected = format!("name=\"{NAME}\" console=true sessions=3 echoed_bytes=900000");
        assert!(line.contains(&expected), "{line}");
        assert_eq!(results.number("console", "irqs") > 0, mode == "irq");
        assert_eq!(host.greeting(), GREETING);
        assert_powered_off(&status, &results);
    }
}

#[test]
fn a_guest_that_moves_sees_its_peer_go_and_talks_to_the_next() {
    skip_if!(without_machine());
    let mut host = Host::new();
    let command_line = "tests=console console_sessions=4";
    let mut machine = Machine::boot(command_line, KernelEntry::Default, vec![host.device()]);
    for session in 1..=3 {
        let peer = host.attach();
        exchange(&peer, 10_000);
        let next = Host::new();
        let moved = machine.moved(command_line, vec![next.device()]);
        machine = moved.ok().expect("the guest goes on");
        host = next;
        machine.wait_for(&format!("TESTGUEST port closed={session}"));
    }
    let peer = host.attach();
    exchange(&peer, 10_000);
    drop(peer);
    let (_, results) = machine.ended();
    assert_eq!(
        results.one("done"),
        "passed=4 failed=0 skipped=0",
        "{results:#?}"
    );
    assert_eq!(results.number("console", "sessions"), 4);
}
