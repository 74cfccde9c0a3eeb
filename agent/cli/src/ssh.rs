//! `kvmctl ssh` and `kvmctl scp`: the local programs, connected to the guest through the agent as `virtctl` does it.

mod host_key;
mod wait;

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::agent_address::AgentAddress;
use crate::args::{Scp, Ssh, SshOptions};
use crate::client::Client;
use crate::failure::Failure;
use crate::guest::Guest;
use crate::scope::Scope;

/// `kvmctl ssh`.
pub async fn ssh(scope: &Scope, args: &Ssh) -> Result<(), Failure> {
    let (user, guest) = login(scope, &args.target)?;
    let user = user.or_else(|| user_of(&args.options));
    let mut command = local(scope, "ssh", &guest, &args.options).await?;
    command.arg("--").arg(host(user.as_deref(), &guest));
    command.args(&args.command);
    Err(run(command, "ssh"))
}

/// `kvmctl scp`.
pub async fn scp(scope: &Scope, args: &Scp) -> Result<(), Failure> {
    let copy = Copy::parse(&args.source, &args.destination)?;
    let (user, guest) = login(scope, copy.target)?;
    let user = user.or_else(|| user_of(&args.options));
    let mut command = local(scope, "scp", &guest, &args.options).await?;
    if args.recursive {
        command.arg("-r");
    }
    if args.preserve {
        command.arg("-p");
    }
    let remote = format!("{}:{}", host(user.as_deref(), &guest), copy.remote);
    command.arg("--");
    if copy.is_upload {
        command.args([copy.local, &remote]);
    } else {
        command.args([&remote, copy.local]);
    }
    Err(run(command, "scp"))
}

/// What is copied where.
#[derive(Debug, PartialEq, Eq)]
struct Copy<'a> {
    target: &'a str,
    remote: &'a str,
    local: &'a str,
    is_upload: bool,
}

impl<'a> Copy<'a> {
    fn parse(source: &'a str, destination: &'a str) -> Result<Self, Failure> {
        let refuse = |why: &str| {
            Err(Failure::Usage(format!(
                "{why}: {source:?} to {destination:?}"
            )))
        };
        match (source.split_once(':'), destination.split_once(':')) {
            (Some(_), Some(_)) => {
                refuse("copying from a remote location to another remote location is not supported")
            }
            (None, None) => {
                refuse("none of the two provided locations seems to be a remote location")
            }
            (Some((target, remote)), None) => Ok(Self {
                target,
                remote,
                local: destination,
                is_upload: false,
            }),
            (None, Some((target, remote))) => Ok(Self {
                target,
                remote,
                local: source,
                is_upload: true,
            }),
        }
    }
}

/// The user, if one is named, and the guest.
fn login(scope: &Scope, target: &str) -> Result<(Option<String>, Guest), Failure> {
    let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
    let (user, target) = match target.split_once('@') {
        Some(("", _)) => return refuse("expected username before '@'"),
        Some((user, target)) => (Some(user.to_owned()), target),
        None => (None, target),
    };
    if target.is_empty() {
        return refuse("expected target after '@'");
    }
    Ok((user, Guest::parse(target)?.placed(scope)))
}

fn user_of(options: &SshOptions) -> Option<String> {
    let variables = ["USER", "USERNAME", "LOGNAME"].into_iter();
    let mut own = variables.filter_map(|name| std::env::var(name).ok());
    let own = || own.find(|name| !name.is_empty());
    options
        .username
        .clone()
        .or_else(own)
        .filter(|user| !user.is_empty())
}

/// The name under which ssh knows the guest.
fn host(user: Option<&str>, guest: &Guest) -> String {
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    format!(
        "{user}{}.{}.{}",
        guest.type_name(),
        guest.name,
        guest.namespace
    )
}

/// The local program with the options that both have, once the guest answers.
async fn local(
    scope: &Scope,
    program: &str,
    guest: &Guest,
    options: &SshOptions,
) -> Result<Command, Failure> {
    let mut client = Client::new(scope)?;
    wait::until_answered(scope, &mut client, guest, options).await?;
    let own = std::env::current_exe()
        .map_err(|error| Failure::refused(format!("this program is not found: {error}")))?;
    let mut words = vec![own.display().to_string()];
    words.extend(agent_options(&scope.address()?));
    words.extend(["port-forward".to_owned(), "--stdio=true".to_owned()]);
    words.push(format!("{guest}/{}", guest.namespace));
    words.push(options.port.to_string());
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let mut command = Command::new(program);
    command.args(["-o", &format!("ProxyCommand={}", words.join(" "))]);
    if let Some(file) = &options.known_hosts {
        command.args(["-o", &format!("UserKnownHostsFile={file}")]);
    }
    command.args(&options.local_ssh_opts);
    // Of an option that is given twice ssh takes the first: what the user says goes before.
    let vmi = host_key::vmi_of(&mut client, guest).await;
    if let Some(suffix) = vmi.as_ref().and_then(host_key::suffix) {
        command.args([
            "-o",
            &format!("HostKeyAlias={}.{suffix}", host(None, guest)),
        ]);
    }
    if let Some(file) = &options.identity_file {
        command.args(["-i", file]);
    }
    Ok(command)
}

/// Options with which the same agent is found again.
fn agent_options(address: &AgentAddress) -> Vec<String> {
    let option = |name: &str, value: String| [format!("--{name}"), value];
    match address {
        AgentAddress::Socket(socket) => option("socket", socket.display().to_string()).into(),
        AgentAddress::Server {
            url,
            cert,
            key,
            cacert,
        } => [
            option("server", url.clone()),
            option("cert", cert.display().to_string()),
            option("key", key.display().to_string()),
            option("cacert", cacert.display().to_string()),
        ]
        .concat(),
    }
}

/// A word for the shell that ssh starts, which also has percent signs for itself.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:".contains(c);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''").replace('%', "%%"))
}

/// Becomes the local program, which has the terminal, its signals and the exit code to itself from then on.
fn run(mut command: Command, program: &str) -> Failure {
    let error = command.exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return Failure::refused(format!(
            "{program} is not installed here, and kvmctl {program} runs it: apt install openssh-client"
        ));
    }
    Failure::refused(format!("{program}: {}", crate::failure::file_error(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_locations_is_remote() {
        let copy = |source, destination| Copy::parse(source, destination);
        let read = |source, destination| copy(source, destination).ok();
        let up = Copy {
            target: "a@vm/web",
            remote: "x:y",
            local: "file",
            is_upload: true,
        };
        assert_eq!(read("file", "a@vm/web:x:y"), Some(up));
        let down = Copy {
            target: "vmi/web/team",
            remote: "",
            local: ".",
            is_upload: false,
        };
        assert_eq!(read("vmi/web/team:", "."), Some(down));
        for (source, destination, why) in [
            (
                "a:b",
                "c:d",
                "error: copying from a remote location to another remote location is not supported: \"a:b\" to \"c:d\"",
            ),
            (
                "a",
                "c",
                "error: none of the two provided locations seems to be a remote location: \"a\" to \"c\"",
            ),
        ] {
            let message = copy(source, destination)
                .err()
                .map(|failure| failure.to_string());
            assert_eq!(message.as_deref(), Some(why));
        }
    }

    #[test]
    fn what_the_shell_reads_is_quoted() {
        for (word, wanted) in [
            ("--socket=/run/a.sock", "--socket=/run/a.sock"),
            ("/a b/%h", "'/a b/%%h'"),
            ("it's", "'it'\\''s'"),
            ("$(x)", "'$(x)'"),
        ] {
            assert_eq!(quoted(word), wanted);
        }
    }
}
