//! The other end of the guest's NIC.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::Context;
use integration::process;
use integration::vmm_bench::{ECHO_PORT, NODE_ADDRESS, SINK_PORT, SOURCE_PORT, TAP};
use tun_rs::{DeviceBuilder, Layer};

const CHUNK_BYTES: usize = 256 << 10;

/// Makes the tap, which stays when this program ends.
pub fn make_tap() -> anyhow::Result<()> {
    DeviceBuilder::new()
        .name(TAP)
        .layer(Layer::L2)
        .packet_information(false)
        .offload(true)
        .build_sync()
        .and_then(|tap| tap.persist())
        .context(TAP)?;
    let ip = |arguments: &[&str]| process::output(Command::new("ip").args(arguments));
    ip(&["addr", "flush", "dev", TAP])?;
    ip(&["addr", "add", &format!("{NODE_ADDRESS}/24"), "dev", TAP])?;
    ip(&["link", "set", TAP, "up"])?;
    Ok(())
}

/// Starts a process that serves guests, so that what it does is not this one's.
pub fn start_server() -> anyhow::Result<Child> {
    let own = std::env::current_exe()?;
    let child = Command::new(own)
        .arg("serve")
        .stdin(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// Serves guests for ever.
pub fn serve() -> anyhow::Result<Infallible> {
    let listen = |port, serve: fn(TcpStream) -> io::Result<()>| -> anyhow::Result<_> {
        let listener = TcpListener::bind(("0.0.0.0", port))?;
        Ok(thread::spawn(move || {
            for stream in listener.incoming() {
                // A guest that hangs up ends its own service only.
                stream.and_then(serve).ok();
            }
        }))
    };
    listen(SINK_PORT, sink)?;
    listen(SOURCE_PORT, source)?;
    let last = listen(ECHO_PORT, echo)?;
    last.join().ok().context("a server ended")?;
    anyhow::bail!("a server ended")
}

/// Receives until the guest is done and sends it the number of bytes.
fn sink(mut stream: TcpStream) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut received: u64 = 0;
    loop {
        match stream.read(&mut chunk)? {
            0 => return stream.write_all(&received.to_le_bytes()),
            count => received += count as u64,
        }
    }
}

fn source(mut stream: TcpStream) -> io::Result<()> {
    let chunk = vec![0; CHUNK_BYTES];
    loop {
        stream.write_all(&chunk)?;
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        stream.write_all(&byte)?;
    }
}
