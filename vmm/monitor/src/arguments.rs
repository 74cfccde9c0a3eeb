//! The command line, and the one descriptor that it names.

use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use nix::sys::socket::{Backlog, listen};
use vmm_sys::listen::{ListenError, take_inherited, take_only};

const USAGE: &str = "\
Runs one guest. Started with a listening Unix socket, over which it is configured.

Usage: kvmlet-vmm [--control-fd N] [--controller-uid UID]...

  --control-fd N        the inherited listening socket; without, LISTEN_FDS tells (sd_listen_fds)
  --controller-uid UID  who may connect, besides root and the user that this process runs as
  --version             prints the version
  --help                prints this
";

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Command that the program's arguments ask for.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Run a guest.
    Run(Arguments),
    /// Print something and end.
    Print(String),
}

/// How to run a guest.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// The inherited socket, unless the environment names it.
    pub control_fd: Option<RawFd>,
    /// User ids that may connect besides root and our own.
    pub controllers: Vec<u32>,
}

/// Why the command line is wrong.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgumentError {
    /// Not an option.
    #[error("{0:?} is not an option; see --help")]
    Unknown(OsString),
    /// An option without its number.
    #[error("{option} wants a number, not {value:?}")]
    Number {
        /// Name of the option, with its dashes.
        option: &'static str,
        /// Value of the option as it was given.
        value: Option<OsString>,
    },
}

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlSocketError {
    /// Nothing was passed on.
    #[error("no control socket: neither --control-fd nor LISTEN_FDS with exactly one descriptor")]
    Missing,
    /// What was passed on cannot be taken.
    #[error("the inherited descriptor is not usable")]
    Inherit(#[from] ListenError),
    /// It is no listening Unix socket.
    #[error("the inherited descriptor is not a listening Unix stream socket")]
    NotListening(#[source] io::Error),
}

/// Reads the arguments after the program's name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, ArgumentError> {
    let mut parsed = Arguments::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--help") => return Ok(Command::Print(USAGE.to_owned())),
            Some("--version") => {
                let version = env!("CARGO_PKG_VERSION");
                return Ok(Command::Print(format!("kvmlet-vmm {version}\n")));
            }
            Some("--control-fd") => {
                parsed.control_fd = Some(number("--control-fd", arguments.next())?);
            }
            Some("--controller-uid") => {
                parsed
                    .controllers
                    .push(number("--controller-uid", arguments.next())?);
            }
            _ => return Err(ArgumentError::Unknown(argument)),
        }
    }
    Ok(Command::Run(parsed))
}

fn number<T: std::str::FromStr>(
    option: &'static str,
    value: Option<OsString>,
) -> Result<T, ArgumentError> {
    value
        .as_ref()
        .and_then(|value| value.to_str())
        .and_then(|text| text.parse().ok())
        .ok_or(ArgumentError::Number { option, value })
}

/// Takes the control socket and closes whatever else was inherited.
///
/// The peers of a Unix socket see the credentials of whoever called `listen` last: calling it anew
/// makes them ours instead of those of the program that made the socket.
pub fn control_socket(arguments: &Arguments) -> Result<UnixListener, ControlSocketError> {
    let socket: OwnedFd = match arguments.control_fd {
        Some(fd) => take_only(fd)?,
        None => {
            let mut inherited = take_inherited()?;
            match (inherited.pop(), inherited.is_empty()) {
                (Some(socket), true) => socket,
                _ => return Err(ControlSocketError::Missing),
            }
        }
    };
    let not_listening = |errno: nix::Error| ControlSocketError::NotListening(errno.into());
    let backlog = Backlog::new(BACKLOG).map_err(not_listening)?;
    listen(&socket, backlog).map_err(not_listening)?;
    let listener = UnixListener::from(socket);
    listener
        .local_addr()
        .map_err(ControlSocketError::NotListening)?;
    listener
        .set_nonblocking(true)
        .map_err(ControlSocketError::NotListening)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(line: &str) -> Result<Command, ArgumentError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn socket_and_controllers_are_understood() {
        assert_eq!(
            parse_text("--control-fd 3 --controller-uid 107 --controller-uid 108"),
            Ok(Command::Run(Arguments {
                control_fd: Some(3),
                controllers: vec![107, 108],
            }))
        );
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert!(matches!(
            parse_text("--disk x"),
            Err(ArgumentError::Unknown(_))
        ));
        assert!(matches!(
            parse_text("--control-fd"),
            Err(ArgumentError::Number { .. })
        ));
        assert!(matches!(
            parse_text("--control-fd x"),
            Err(ArgumentError::Number { .. })
        ));
        assert!(matches!(
            parse_text("--controller-uid -1"),
            Err(ArgumentError::Number { .. })
        ));
    }
}
