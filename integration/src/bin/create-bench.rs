//! Measures, beside an agent, how long a VMI takes from the client's send to the guest's first
//! instruction: `create-bench RUNS MANIFEST`; `create-bench RUNS start MACHINE` does so for a halted VirtualMachine that
//! is started. Prints one number of nanoseconds a line.
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
use proto_node::node::virtual_machine_service_client::VirtualMachineServiceClient;
use proto_node::node::{
    ApplyRequest, DeleteRequest, GetRequest, Object, StartVirtualMachineRequest,
    StopVirtualMachineRequest, VirtualMachineName, object::Kind,
};
use proto_node::vmi::VirtualMachineInstance;
use proto_vmm::v1::{Frame, frame::Body};
use proto_vmm::{FRAME_HEADER_BYTES, FrameHeader};
use tonic::transport::{Channel, Endpoint};

const SOCKET: &str = "unix:///run/kvmlet/kvmlet.sock";
const VMMS: &str = "/run/kvmlet/host/vmm";
const KIND: &str = "VirtualMachineInstance";
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at the agent; no figure depends on it.
const LOOK: Duration = Duration::from_millis(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let channel = Endpoint::from_static(SOCKET)
        .connect()
        .await
        .context("the agent")?;
    match arguments.as_slice() {
        [runs, manifest] => created(channel, runs.parse()?, manifest).await,
        [runs, start, machine] if start == "start" => {
            started(channel, runs.parse()?, machine).await
        }
        _ => anyhow::bail!("usage: create-bench RUNS MANIFEST, create-bench RUNS start MACHINE"),
    }
}

/// Creates a VMI and deletes it again, `runs` times.
async fn created(channel: Channel, runs: u32, manifest: &str) -> anyhow::Result<()> {
    let vmi: VirtualMachineInstance = std::fs::read_to_string(manifest)?.parse()?;
    let mut service = NodeServiceClient::new(channel);
    for run in 0..runs {
        let mut vmi = vmi.clone();
        let name = format!("bench-{run}");
        vmi.metadata.get_or_insert_default().name.clone_from(&name);
        println!("{}", create(&mut service, vmi).await?);
        delete(&mut service, &name).await?;
    }
    Ok(())
}

/// Starts a halted VirtualMachine and stops it again, `runs` times.
async fn started(channel: Channel, runs: u32, name: &str) -> anyhow::Result<()> {
    let mut service = NodeServiceClient::new(channel.clone());
    let mut machines = VirtualMachineServiceClient::new(channel);
    let machine = || {
        Some(VirtualMachineName {
            name: name.to_owned(),
            ..VirtualMachineName::default()
        })
    };
    for _ in 0..runs {
        let sent_ns = monotonic_ns()?;
        let start = StartVirtualMachineRequest {
            machine: machine(),
            paused: false,
        };
        machines.start_virtual_machine(start).await?;
        let until = Instant::now() + PATIENCE;
        let vmi = loop {
            if let Ok(answer) = service.get(get(name)).await {
                break answer.into_inner().object;
            }
            anyhow::ensure!(
                Instant::now() < until,
                "{name} has no VMI after {PATIENCE:?}"
            );
            tokio::time::sleep(LOOK).await;
        };
        println!("{}", first_instruction_after(sent_ns, vmi).await?);
        let stop = StopVirtualMachineRequest {
            machine: machine(),
            grace_period_seconds: Some(0),
        };
        machines.stop_virtual_machine(stop).await?;
        gone(&mut service, name).await?;
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
    first_instruction_after(sent_ns, answer.object).await
}

/// How long after `sent_ns` the guest of a VMI ran its first instruction.
async fn first_instruction_after(sent_ns: u64, vmi: Option<Object>) -> anyhow::Result<u64> {
    let Some(Kind::VirtualMachineInstance(stored)) = vmi.and_then(|object| object.kind) else {
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
        tokio::time::sleep(LOOK).await;
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
    gone(service, name).await
}

fn get(name: &str) -> GetRequest {
    GetRequest {
        kind: KIND.to_owned(),
        name: name.to_owned(),
        ..GetRequest::default()
    }
}

/// Waits until there is no VMI of a name.
async fn gone(service: &mut NodeServiceClient<Channel>, name: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while service.get(get(name)).await.is_ok() {
        anyhow::ensure!(
            Instant::now() < until,
            "{name} is not gone within {PATIENCE:?}"
        );
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
