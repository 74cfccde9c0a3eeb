//! Texts of VMMs. People read them in statuses, events and errors, and one that a guest has taken over says what it likes.

use agent_domain::tame;
use proto_vmm::v1::{self, frame::Body};

/// The longest release, and the longest name of a phase.
const MAX_NAME_CHARS: usize = 64;
/// The most disks that are heard of.
const MAX_DISKS: usize = 64;
/// The most NICs that are heard of: as many as a machine has buses.
const MAX_NICS: usize = 256;
/// The longest sentence.
const MAX_TEXT_CHARS: usize = 1000;

/// What a VMM sent, with texts that harm no terminal and no log.
pub(super) fn tamed(mut body: Body) -> Body {
    match &mut body {
        Body::Hello(hello) => {
            tame_name(&mut hello.version);
            tame_status(hello.status.as_mut());
        }
        Body::Response(response) => {
            tame_status(response.status.as_mut());
            if let Some(error) = &mut response.error {
                tame_text(&mut error.message);
                tame_text(&mut error.field);
            }
            for phase in &mut response.timeline {
                tame_name(&mut phase.name);
            }
        }
        // That they came is all that is read of events, and nothing else comes from a VMM.
        Body::HelloAck(_) | Body::Request(_) | Body::Event(_) => {}
    }
    body
}

/// What a VMM says of its end.
pub(super) fn detail(record: &v1::ExitRecord) -> String {
    tame(&record.detail, MAX_TEXT_CHARS)
}

fn tame_status(status: Option<&mut v1::MachineStatus>) {
    if let Some(status) = status {
        tame_text(&mut status.pause_detail);
        if let Some(links) = &mut status.net_links {
            links.down.truncate(MAX_NICS);
        }
        status.disk_sync_failures.truncate(MAX_DISKS);
        for failure in &mut status.disk_sync_failures {
            tame_name(&mut failure.error);
        }
    }
}

fn tame_name(name: &mut String) {
    *name = tame(name, MAX_NAME_CHARS);
}

fn tame_text(text: &mut String) {
    *text = tame(text, MAX_TEXT_CHARS);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use proto_vmm::encode_frame;
    use proto_vmm::v1::request::Kind;

    use super::*;
    use crate::control::{
        Connection, ControlError, Deadlines, SocketDir, exit_observed, listen_at,
    };

    /// Sets the title of a terminal, and is long.
    fn hostile() -> String {
        format!("\u{1b}]0;x\u{7}{}", "9".repeat(9000))
    }

    fn hello(versions: (u32, u32)) -> Body {
        let mut failures = vec![v1::DiskSyncFailure::default(); 100];
        failures[0].error = hostile();
        Body::Hello(v1::Hello {
            protocol_min: versions.0,
            protocol_max: versions.1,
            version: hostile(),
            status: Some(v1::MachineStatus {
                pause_detail: hostile(),
                disk_sync_failures: failures,
                ..v1::MachineStatus::default()
            }),
            ..v1::Hello::default()
        })
    }

    fn refusal(id: u64) -> Body {
        Body::Response(v1::Response {
            id,
            error: Some(v1::Error {
                code: v1::ErrorCode::ConsoleBusy.into(),
                message: hostile(),
                field: hostile(),
            }),
            ..v1::Response::default()
        })
    }

    fn phases() -> Body {
        let phase = v1::ReachedPhase {
            name: hostile(),
            at_ns: 1,
        };
        Body::Response(v1::Response {
            timeline: vec![phase],
            ..v1::Response::default()
        })
    }

    /// A connection to a VMM that says all of this at once.
    async fn connected(said: Vec<Body>) -> Result<(Connection, UnixStream), ControlError> {
        let dir = tempfile::tempdir().unwrap();
        let listener = listen_at(dir.path()).unwrap();
        let vmm = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for body in said {
                let frame = v1::Frame { body: Some(body) };
                stream.write_all(&encode_frame(&frame, 0).unwrap()).unwrap();
            }
            stream
        });
        let socket = SocketDir::open(dir.path()).unwrap();
        let connection = Connection::open(&socket, Deadlines::of_an_action()).await;
        let vmm = vmm.join().unwrap();
        connection.map(|connection| (connection, vmm))
    }

    fn is_tame(text: &str, max_chars: usize) -> bool {
        // One more says that there was more.
        !text.contains(char::is_control) && text.chars().count() == max_chars + 1
    }

    #[tokio::test]
    async fn nothing_that_a_vmm_says_types_at_a_terminal() {
        let said = vec![hello((1, 1)), refusal(1)];
        let (mut connection, _vmm) = connected(said).await.unwrap();
        assert!(is_tame(&connection.hello().version, 64));
        let status = connection.hello().status.clone().unwrap();
        assert!(is_tame(&status.pause_detail, 1000));
        assert_eq!(status.disk_sync_failures.len(), 64);
        assert!(is_tame(&status.disk_sync_failures[0].error, 64));
        let asked = connection.ask(Kind::GetStatus(v1::GetStatus {})).await;
        let Err(ControlError::Refused { message, field, .. }) = asked else {
            panic!("{asked:?}");
        };
        assert!(is_tame(&message, 1000) && is_tame(&field, 1000));
    }

    #[tokio::test]
    async fn a_vmm_of_another_protocol_is_named_tamely() {
        let refused = connected(vec![hello((7, 9))]).await.unwrap_err();
        let ControlError::Version { program, .. } = &refused else {
            panic!("{refused:?}");
        };
        assert!(is_tame(program, 64));
    }

    #[test]
    fn names_of_phases_and_last_words_are_tame() {
        let Body::Response(response) = tamed(phases()) else {
            panic!("no response");
        };
        assert!(is_tame(&response.timeline[0].name, 64));
        let record = v1::ExitRecord {
            detail: hostile(),
            ..v1::ExitRecord::default()
        };
        assert!(is_tame(&exit_observed(&record).detail, 1000));
    }
}
