//! Measures, beside an agent, how long a VMI takes from the client's send to the guest's first
//! instruction: `create-bench RUNS MANIFEST`. Prints one number of nanoseconds a line.
//! `create-bench RUNS MANIFEST start MACHINE` also starts a halted VirtualMachine each time, in turn with the VMI, and
//! prints two numbers a line: what else the machine does meets both alike.
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
/// What a run leaves to be written (statuses, events, revisions) is written after this: no start pays for a stop before it.
const REST: Duration = Duration::from_millis(300);
/// The pause between two polls of the agent; no figure depends on it.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let channel = Endpoint::from_static(SOCKET)
        .connect()
        .await
        .context("the agent")?;
    let mut bench = Bench {
        service: NodeServiceClient::new(channel.clone()),
        machines: VirtualMachineServiceClient::new(channel),
    };
    let (runs, manifest, machine) = match arguments.as_slice() {
        [runs, manifest] => (runs, manifest, None),
        [runs, manifest, start, machine] if start == "start" => (runs, manifest, Some(machine)),
        _ => anyhow::bail!("usage: create-bench RUNS MANIFEST [start MACHINE]"),
    };
    let vmi: VirtualMachineInstance = std::fs::read_to_string(manifest)?.parse()?;
    for run in 0..runs.parse::<u32>()? {
        let created = bench.created(vmi.clone(), &format!("bench-{run}")).await?;
        match machine {
            None => println!("{created}"),
            Some(machine) => println!("{created} {}", bench.started(machine).await?),
        }
    }
    Ok(())
}

struct Bench {
    service: NodeServiceClient<Channel>,
    machines: VirtualMachineServiceClient<Channel>,
}

impl Bench {
    /// Creates a VMI and deletes it again.
    async fn created(
        &mut self,
        mut vmi: VirtualMachineInstance,
        name: &str,
    ) -> anyhow::Result<u64> {
        name.clone_into(&mut vmi.metadata.get_or_insert_default().name);
        // The agent finishes its work for the VMI before, which would be measured with this one.
        tokio::time::sleep(REST).await;
        let ns = create(&mut self.service, vmi).await?;
        delete(&mut self.service, name).await?;
        Ok(ns)
    }

    /// Starts a halted VirtualMachine and stops it again.
    async fn started(&mut self, name: &str) -> anyhow::Result<u64> {
        let machine = || {
            Some(VirtualMachineName {
                name: name.to_owned(),
                ..VirtualMachineName::default()
            })
        };
        // The agent finishes its work for the start before, which would be measured with this one.
        tokio::time::sleep(REST).await;
        let sent_ns = monotonic_ns()?;
        let start = StartVirtualMachineRequest {
            machine: machine(),
            paused: false,
        };
        self.machines.start_virtual_machine(start).await?;
        let until = Instant::now() + PATIENCE;
        let vmi = loop {
            if let Ok(answer) = self.service.get(get(name)).await {
                break answer.into_inner().object;
            }
            anyhow::ensure!(
                Instant::now() < until,
                "{name} has no VMI after {PATIENCE:?}"
            );
            // Polled: a watch would add work of the agent to what is measured.
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        let ns = first_instruction_after(sent_ns, vmi).await?;
        let stop = StopVirtualMachineRequest {
            machine: machine(),
            grace_period_seconds: Some(0),
        };
        self.machines.stop_virtual_machine(stop).await?;
        gone(&mut self.service, name).await?;
        Ok(ns)
    }
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
        // The VMM signals to nobody when its guest runs its first instruction; its figures have the time.
        tokio::time::sleep(POLL_INTERVAL).await;
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
        // Polled: a watch would add work of the agent to what is measured.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
