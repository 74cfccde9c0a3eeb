//! `ask`: one request to a VMM that runs.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use integration::vmm_client::VmmClient;
use proto_vmm::v1::{self, request::Kind};

use crate::flags::{Ask, Question};
use crate::socket;

/// Writing a snapshot takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// Asks, and prints the machine's status as it is then.
pub fn ask(ask: &Ask) -> anyhow::Result<()> {
    let stream = socket::connect(&ask.socket).with_context(|| ask.socket.clone())?;
    let mut client = VmmClient::over(stream)?;
    client.socket().set_read_timeout(Some(PATIENCE))?;
    let mut file = None;
    let kind = match &ask.question {
        Question::Status => Kind::GetStatus(v1::GetStatus {}),
        Question::Pause => Kind::Pause(v1::Pause {}),
        Question::Resume => Kind::Resume(v1::Resume {}),
        Question::Reset => Kind::Reset(v1::Reset {}),
        Question::PowerButton => Kind::PowerButton(v1::PowerButton {}),
        Question::Stop => Kind::Stop(v1::Stop {
            reason: "vmm-front".to_owned(),
        }),
        Question::Save { file: path } => {
            file = Some(File::create_new(path).with_context(|| path.display().to_string())?);
            Kind::Save(v1::Save {})
        }
    };
    let descriptors: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    let response = client.request(kind, &descriptors)?;
    if let Some(error) = response.error {
        anyhow::bail!("refused: {} {}", error.field, error.message);
    }
    if let Some(status) = response.status {
        println!("{} resets={}", status.state().as_str_name(), status.resets);
    }
    Ok(())
}
