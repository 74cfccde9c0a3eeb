//! Streams to and from the node, and bytes that go there and come back.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::process;
use integration::vmm_bench::{ECHO_PORT, GUEST_ADDRESS, NODE_ADDRESS, SINK_PORT, SOURCE_PORT};

use crate::figure::figure;

const CHUNK_BYTES: usize = 64 << 10;
/// A NIC may take a moment until the first packet gets through.
const ATTEMPTS: u32 = 100;

/// Talks to the node at an address for a time.
type Test = fn(&str, Duration) -> anyhow::Result<f64>;

/// Mbit/s to the node and from it, and round trips a second.
const TESTS: [(&str, Test); 3] = [
    ("tcp_to_node", send),
    ("tcp_from_node", receive),
    ("tcp_round_trips", echo),
];

/// Gives the NIC its address, and then as [`talk`] by each test.
pub fn run(time: Duration) -> anyhow::Result<()> {
    set_up()?;
    for (name, _) in TESTS {
        talk(NODE_ADDRESS, name, time)?;
    }
    Ok(())
}

/// Prints the figure of one test. `node` is the node's address.
pub fn talk(node: &str, name: &str, time: Duration) -> anyhow::Result<()> {
    let test = TESTS.into_iter().find(|(known, _)| *known == name);
    let (_, test) = test.with_context(|| format!("there is no test {name}"))?;
    figure(name, test(node, time).with_context(|| name.to_owned())?);
    Ok(())
}

/// Gives the one NIC its address.
fn set_up() -> anyhow::Result<()> {
    let nics = fs::read_dir("/sys/class/net")?.filter_map(Result::ok);
    let names = nics.map(|nic| nic.file_name().to_string_lossy().into_owned());
    let nic = names
        .into_iter()
        .find(|name| name != "lo")
        .context("no network device")?;
    let ip = |arguments: &[&str]| {
        let mut command = Command::new("/bin/busybox");
        process::output(command.arg("ip").args(arguments))
    };
    ip(&["addr", "add", &format!("{GUEST_ADDRESS}/24"), "dev", &nic])?;
    ip(&["link", "set", &nic, "up"])?;
    Ok(())
}

fn connect(node: &str, port: u16) -> anyhow::Result<TcpStream> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        match TcpStream::connect((node, port)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
        // The listener may not be bound yet, which refuses connections and signals nothing.
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(last.context("never tried")?.into())
}

/// Mbit/s, counted by whoever receives.
fn send(node: &str, time: Duration) -> anyhow::Result<f64> {
    let mut stream = connect(node, SINK_PORT)?;
    let chunk = vec![0; CHUNK_BYTES];
    let started = Instant::now();
    while started.elapsed() < time {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut received = [0; 8];
    stream.read_exact(&mut received)?;
    megabits(u64::from_le_bytes(received), started)
}

fn receive(node: &str, time: Duration) -> anyhow::Result<f64> {
    let mut stream = connect(node, SOURCE_PORT)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    let started = Instant::now();
    while started.elapsed() < time {
        let count = stream.read(&mut chunk)?;
        anyhow::ensure!(count > 0, "the node hung up");
        bytes += u64::try_from(count)?;
    }
    megabits(bytes, started)
}

fn megabits(bytes: u64, started: Instant) -> anyhow::Result<f64> {
    let bytes = u32::try_from(bytes).context("too many bytes")?;
    Ok(f64::from(bytes) * 8.0 / 1e6 / started.elapsed().as_secs_f64())
}

/// Round trips of one byte a second.
fn echo(node: &str, time: Duration) -> anyhow::Result<f64> {
    let mut stream = connect(node, ECHO_PORT)?;
    stream.set_nodelay(true)?;
    let mut byte = [0];
    let mut trips: u32 = 0;
    let started = Instant::now();
    while started.elapsed() < time {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        trips += 1;
    }
    Ok(f64::from(trips) / started.elapsed().as_secs_f64())
}
