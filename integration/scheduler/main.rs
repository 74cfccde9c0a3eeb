//! The reference scheduler: places VMIs over nodes that dial it, and serves as the test peer of the protocol.
//!
//! It trusts whoever reaches its sockets, has no replica and no preemption: an example of the rules of
//! `docs/control-plane.md`, and nothing more.

#![forbid(unsafe_code)]

mod serve;
mod state;

use std::time::Duration;

use anyhow::Context;
use proto_node::controlplane::control_plane_service_server::ControlPlaneServiceServer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

const USAGE: &str = "usage: scheduler serve NODES PEOPLE.sock STATE.json HEARTBEAT_SECONDS
       scheduler order PEOPLE.sock WORD...
NODES: path of a socket, or ADDRESS:PORT@DIRECTORY of server.crt, server.key, ca.crt
orders: apply FILE [stop SECONDS GRACE], delete NAME, fence NODE, get";

/// A node that is gone without a word is missed after this.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (nodes, people, state, beats) = match words.as_slice() {
        ["serve", nodes, people, state, beats] => (nodes, people, state, beats.parse()?),
        ["order", people, words @ ..] => return order(people, &words.join(" ")).await,
        _ => anyhow::bail!(USAGE),
    };
    let scheduler = serve::Scheduler::open(state.into(), beats)?;
    let people = UnixListener::bind(people).context("the socket of people")?;
    let service = ControlPlaneServiceServer::new(scheduler.clone());
    let mut server = Server::builder().http2_keepalive_interval(Some(KEEP_ALIVE));
    if let Some((address, directory)) = nodes.split_once('@') {
        let server = server.tls_config(tls(directory)?)?.add_service(service);
        tokio::spawn(server.serve(address.parse()?));
    } else {
        let nodes = UnixListenerStream::new(UnixListener::bind(nodes)?);
        tokio::spawn(server.add_service(service).serve_with_incoming(nodes));
    }
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = ticks.tick() => scheduler.tick()?,
            person = people.accept() => drop(tokio::spawn(receive(scheduler.clone(), person?.0))),
        }
    }
}

/// Nodes show a certificate as well.
fn tls(directory: &str) -> anyhow::Result<ServerTlsConfig> {
    let read = |name: &str| {
        let file = format!("{directory}/{name}");
        std::fs::read(&file).context(file)
    };
    Ok(ServerTlsConfig::new()
        .identity(Identity::from_pem(read("server.crt")?, read("server.key")?))
        .client_ca_root(Certificate::from_pem(read("ca.crt")?)))
}

/// One line an order, one reply.
async fn receive(scheduler: serve::Scheduler, mut person: UnixStream) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(&mut person).read_line(&mut line).await?;
    let reply = scheduler.obey(&line);
    let reply = reply.unwrap_or_else(|error| format!("error: {error:#}"));
    person.write_all(reply.as_bytes()).await
}

/// Tells a scheduler what a person wants.
async fn order(people: &str, line: &str) -> anyhow::Result<()> {
    let mut stream = UnixStream::connect(people).await.context("no scheduler")?;
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    anyhow::ensure!(!reply.starts_with("error: "), "{reply}");
    println!("{reply}");
    Ok(())
}
