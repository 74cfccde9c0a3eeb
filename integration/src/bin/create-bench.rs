//! Measures, beside an agent, how long a VMI takes from the client's send to the guest's first
//! instruction: `create-bench RUNS MANIFEST`. Prints one number of nanoseconds a line.
//!
//! Both ends are read from one clock, CLOCK_MONOTONIC: this program before it sends, the VMM when
//! the guest first writes to the boot timestamp port. Between runs everything is deleted.

#![forbid(unsafe_code)]

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::time::{ClockId, clock_gettime};
use prost::Message;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{ApplyRequest, DeleteRequest, GetRequest, Object, object::Kind};
use proto_node::vmi::VirtualMachineInstance;
use proto_vmm::v1::{Frame, frame::Body};
use proto_vmm::{FRAME_HEADER_BYTES, FrameHeader};
use tonic::transport::{Channel, Endpoint};

const SOCKET: &str = "unix:///run/kvmlet/kvmlet.sock";
const VMMS: &str = "/run/kvmlet/host/vmm";
const KIND: &str = "VirtualMachineInstance";
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [runs, manifest] = arguments.as_slice() else {
        anyhow::bail!("usage: create-bench RUNS MANIFEST");
    };
    let vmi: VirtualMachineInstance = std::fs::read_to_string(manifest)?.parse()?;
    let channel = Endpoint::from_static(SOCKET)
        .connect()
        .await
        .context("the agent")?;
    let mut service = NodeServiceClient::new(channel);
    for run in 0..runs.parse::<u32>()? {
        let mut vmi = vmi.clone();
        let name = format!("bench-{run}");
        vmi.metadata.get_or_insert_default().name.clone_from(&name);
        println!("{}", create(&mut service, vmi).await?);
        delete(&mut service, &name).await?;
    }
    Ok(())
}

fn monotonic_ns() -> anyhow::Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?);
    Ok(u64::try_from(now.as_nanos())?)
}

async fn create(
    service: &mut NodeServiceClient<Channel>,
    vmi: VirtualMachineInstance,
) -> anyhow::Result<u64> {
    let object = Some(Object {
        kind: Some(Kind::VirtualMachineInstance(vmi)),
    });
    let sent_ns = monotonic_ns()?;
    let answer = service
        .apply(ApplyRequest {
            object,
            ..ApplyRequest::default()
        })
        .await?
        .into_inner();
    let Some(Kind::VirtualMachineInstance(stored)) = answer.object.and_then(|object| object.kind)
    else {
        anyhow::bail!("the agent answered with another object");
    };
    let uid = stored.metadata.context("no metadata")?.uid;
    let socket = PathBuf::from(VMMS).join(uid).join("1/control.sock");
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(first_ns) = first_instruction_ns(&socket) {
            return first_ns
                .checked_sub(sent_ns)
                .context("the guest ran before it was asked for");
        }
        anyhow::ensure!(Instant::now() < until, "no guest ran within {PATIENCE:?}");
        // The figure does not depend on how often this looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The VMM greets every connection with its status. `None` while there is no VMM or no guest yet.
fn first_instruction_ns(socket: &std::path::Path) -> Option<u64> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let mut header = [0; FRAME_HEADER_BYTES];
    stream.read_exact(&mut header).ok()?;
    let mut body = vec![0; FrameHeader::decode(header).ok()?.body_bytes()];
    stream.read_exact(&mut body).ok()?;
    let Some(Body::Hello(hello)) = Frame::decode(body.as_slice()).ok()?.body else {
        return None;
    };
    hello
        .status
        .map(|status| status.first_timestamp_ns)
        .filter(|first| *first != 0)
}

async fn delete(service: &mut NodeServiceClient<Channel>, name: &str) -> anyhow::Result<()> {
    let request = DeleteRequest {
        kind: KIND.to_owned(),
        name: name.to_owned(),
        grace_period_seconds: Some(0),
        ..DeleteRequest::default()
    };
    service.delete(request).await?;
    let until = Instant::now() + PATIENCE;
    let get = || GetRequest {
        kind: KIND.to_owned(),
        name: name.to_owned(),
        ..GetRequest::default()
    };
    while service.get(get()).await.is_ok() {
        anyhow::ensure!(
            Instant::now() < until,
            "{name} is not gone within {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
