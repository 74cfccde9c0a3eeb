//! `ask`: one request to a VMM that runs.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;
use integration::vmm_client::VmmClient;
use proto_vmm::v1::{self, Response, request::Kind};

use crate::flags::{Ask, Question};
use crate::relay::relay;
use crate::{socket, status};

/// Writing a snapshot takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Asks, and prints the machine's status as it is then.
pub fn ask(ask: &Ask) -> anyhow::Result<()> {
    let stream = socket::connect(&ask.socket).with_context(|| ask.socket.clone())?;
    let mut client = VmmClient::over(stream)?;
    client.socket().set_read_timeout(Some(PATIENCE))?;
    let kind = match &ask.question {
        Question::Status => Kind::GetStatus(v1::GetStatus {}),
        Question::Timeline => Kind::GetTimeline(v1::GetTimeline {}),
        Question::Pause => Kind::Pause(v1::Pause {}),
        Question::Resume => Kind::Resume(v1::Resume {}),
        Question::Reset => Kind::Reset(v1::Reset {}),
        Question::PowerButton => Kind::PowerButton(v1::PowerButton {}),
        Question::Stop => Kind::Stop(v1::Stop {
            reason: "vmm-front".to_owned(),
        }),
        Question::Balloon { target } => Kind::SetBalloon(v1::SetBalloon {
            target_bytes: target.0,
        }),
        Question::BalloonStats => Kind::GetBalloonStats(v1::GetBalloonStats { refresh: true }),
        Question::Port { name } => return port(&mut client, name),
        Question::Save { file } => {
            let file = File::create_new(file).with_context(|| file.display().to_string())?;
            let save = Kind::Save(v1::Save {});
            return print(&granted(&mut client, save, &[file.as_fd()])?);
        }
    };
    print(&granted(&mut client, kind, &[])?)
}

/// Asks for what must be granted.
pub fn granted(
    client: &mut VmmClient,
    kind: Kind,
    descriptors: &[BorrowedFd<'_>],
) -> anyhow::Result<Response> {
    let response = client.request(kind, descriptors)?;
    match response.error {
        None => Ok(response),
        Some(error) => anyhow::bail!("refused: {} {}", error.field, error.message),
    }
}

fn print(response: &Response) -> anyhow::Result<()> {
    if let Some(stats) = &response.balloon_stats {
        println!("{}", status::balloon(stats));
        return Ok(());
    }
    let begin_ns = response.timeline.first().map_or(0, |phase| phase.at_ns);
    for phase in &response.timeline {
        println!("{:>12} {}", phase.at_ns - begin_ns, phase.name);
    }
    let status = response.status.as_ref().context("no status came")?;
    println!("{}", status::line(status));
    Ok(())
}

/// Connects this process to the port `name`.
fn port(client: &mut VmmClient, name: &str) -> anyhow::Result<()> {
    let (ours, vmms) = UnixStream::pair()?;
    let attach = Kind::AttachPort(v1::AttachPort {
        port: name.to_owned(),
        client: "vmm-front".to_owned(),
        replay: name.is_empty(),
        ..v1::AttachPort::default()
    });
    granted(client, attach, &[vmms.as_fd()])?;
    drop(vmms);
    relay(&ours, None, || Ok(false))
}
