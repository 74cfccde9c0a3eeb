//! `kvmctl start`, `stop` and `restart` of VirtualMachines.

use proto_node::node::{
    GetObjectRequest, ObjectName, RestartVirtualMachineRequest, StartVirtualMachineRequest,
    StopVirtualMachineRequest, VirtualMachineName,
};
use tonic::Code;

use crate::args::{DryRun, Restart, Start};
use crate::client::Client;
use crate::failure::Failure;
use crate::misses::Misses;
use crate::output::print_line;
use crate::scope::Scope;

/// Kind in manifests.
const KIND: &str = "VirtualMachine";

/// What is asked of a machine.
#[derive(Clone, Copy)]
pub enum MachineAction {
    Start { paused: bool },
    Stop { grace: Option<i64> },
    Restart { grace: Option<i64> },
}

impl MachineAction {
    /// As it is typed.
    const fn name(self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Restart { .. } => "restart",
        }
    }
}

/// Whether a word is the type of machines, with the group or without.
pub fn is_type(word: &str) -> bool {
    let lower = word.to_lowercase();
    let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
    let is_group = matches!(group, "" | "kubevirt.io" | "v1.kubevirt.io");
    is_group && matches!(name, "vm" | "vms" | "virtualmachine" | "virtualmachines")
}

/// The machines that `TYPE NAME...` or `TYPE/NAME...` means; nothing when the words name no type, or another.
pub fn typed_names(words: &[String]) -> Result<Option<Vec<String>>, Failure> {
    let Some(first) = words.first() else {
        return Ok(None);
    };
    let names: Vec<String> = match first.split_once('/') {
        Some((kind, _)) if is_type(kind) => words
            .iter()
            .map(|word| match word.split_once('/') {
                Some((kind, name)) if is_type(kind) => Ok(name.to_owned()),
                _ => Err(Failure::Usage(format!(
                    "{word:?}: vm/NAME was expected, one type at a time"
                ))),
            })
            .collect::<Result<_, _>>()?,
        None if is_type(first) && words.len() > 1 => words.get(1..).unwrap_or_default().to_vec(),
        _ => return Ok(None),
    };
    if names.iter().any(String::is_empty) {
        let text = "a name is missing, such as vm/web".to_owned();
        return Err(Failure::Usage(text));
    }
    Ok(Some(names))
}

/// The same, where words without a type are names of machines.
fn names(words: &[String]) -> Result<Vec<String>, Failure> {
    if let Some(names) = typed_names(words)? {
        return Ok(names);
    }
    if let Some(odd) = words.iter().find(|word| word.contains('/')) {
        let text = format!("{odd:?}: a VirtualMachine was expected, such as vm/web");
        return Err(Failure::Usage(text));
    }
    Ok(words.to_vec())
}

/// `kvmctl start`.
pub async fn start(scope: &Scope, args: &Start) -> Result<(), Failure> {
    let action = MachineAction::Start {
        paused: args.paused,
    };
    change_all(scope, &names(&args.what)?, action, &args.dry_run).await
}

/// `kvmctl restart`.
pub async fn restart(scope: &Scope, args: &Restart) -> Result<(), Failure> {
    let grace = grace_of_restart(args)?;
    let action = MachineAction::Restart { grace };
    change_all(scope, &names(&args.what)?, action, &args.dry_run).await
}

/// How long the guest gets when its machine is restarted by force: the agent judges it.
fn grace_of_restart(args: &Restart) -> Result<Option<i64>, Failure> {
    match (args.force, args.grace_period) {
        (false, None) => Ok(None),
        (true, seconds) => Ok(Some(seconds.unwrap_or(0))),
        // In the words of virtctl.
        (false, Some(_)) => Err(Failure::Usage(
            "Must both use --force=true and set --grace-period.".to_owned(),
        )),
    }
}

/// Changes every named machine; one that does not fit does not keep the others from being changed.
pub async fn change_all(
    scope: &Scope,
    names: &[String],
    action: MachineAction,
    dry_run: &DryRun,
) -> Result<(), Failure> {
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    for name in names {
        misses.take(change(&mut client, scope, (name, dry_run), action).await)?;
    }
    misses.end()
}

async fn change(
    client: &mut Client,
    scope: &Scope,
    (name, dry_run): (&str, &DryRun),
    action: MachineAction,
) -> Result<(), Failure> {
    let machine = Some(VirtualMachineName {
        namespace: scope.namespace().to_owned(),
        name: name.to_owned(),
        dry_run: dry_run.is_on,
    });
    let machines = client.machines();
    let changed = match action {
        MachineAction::Start { paused } => {
            let request = StartVirtualMachineRequest { machine, paused };
            machines.start_virtual_machine(request).await
        }
        MachineAction::Stop { grace } => {
            let request = StopVirtualMachineRequest {
                machine,
                grace_period_seconds: grace,
            };
            machines.stop_virtual_machine(request).await
        }
        MachineAction::Restart { grace } => {
            let request = RestartVirtualMachineRequest {
                machine,
                grace_period_seconds: grace,
            };
            machines.restart_virtual_machine(request).await
        }
    };
    changed.map_err(|status| Failure::of_status(&status, KIND, name, client.address()))?;
    let dry = dry_run.suffix();
    print_line(&format!(
        "VM {name} was scheduled to {}{dry}",
        action.name()
    ))
}

/// Whether there is a machine of this name. An older agent has none.
pub async fn exists(client: &mut Client, scope: &Scope, name: &str) -> Result<bool, Failure> {
    let request = GetObjectRequest {
        name: Some(ObjectName {
            kind: KIND.to_owned(),
            namespace: scope.namespace().to_owned(),
            name: name.to_owned(),
        }),
        ..GetObjectRequest::default()
    };
    match client.objects().get_object(request).await {
        Ok(_) => Ok(true),
        Err(status) if matches!(status.code(), Code::NotFound | Code::Unimplemented) => Ok(false),
        // A kind that the agent does not know.
        Err(status) if status.message().starts_with("no matches for kind") => Ok(false),
        Err(status) => Err(Failure::of_status(&status, KIND, name, client.address())),
    }
}

#[cfg(test)]
mod tests {
    use agent_objects::{Kinds, MachineRequest, change_state};
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{Cli, Command};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn machines_are_named_as_virtctl_and_kubectl_name_them() {
        for text in [
            "vm web db",
            "vm/web virtualmachine/db",
            "virtualmachines.kubevirt.io web db",
        ] {
            let named = typed_names(&words(text)).ok().flatten();
            assert_eq!(named, Some(words("web db")), "{text}");
        }
        for text in ["web", "vm", "vmi/web", "vmi web"] {
            assert_eq!(typed_names(&words(text)).ok(), Some(None), "{text}");
        }
        for text in ["vm/web db", "vm/", "vm/web vmi/db"] {
            assert!(typed_names(&words(text)).is_err(), "{text}");
        }
        assert_eq!(names(&words("web vm")).ok(), Some(words("web vm")));
        assert!(names(&words("vmi/web")).is_err());
    }

    #[test]
    fn a_restart_by_force_is_refused_as_kubevirt_refuses_it() {
        let machine = json!({
            "apiVersion": "kubevirt.io/v1", "kind": KIND,
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"runStrategy": "Always", "template": {"spec": {"domain": {"devices": {}}}}},
        });
        let machine = Kinds::this_release().read(machine).unwrap().1;
        // What the client says of it, and else the agent; the end is that there is no VMI.
        let refused = |options: &str| {
            let typed = format!("kvmctl restart web {options}");
            let Ok(Cli {
                command: Command::Restart(args),
                ..
            }) = Cli::try_parse_from(typed.split_whitespace())
            else {
                panic!("{typed} is not taken");
            };
            match grace_of_restart(&args) {
                Err(failure) => failure.to_string(),
                Ok(grace) => change_state(&machine, None, MachineRequest::Restart { grace })
                    .unwrap_err()
                    .to_string(),
            }
        };
        let fits = "VM is not running: Halted";
        for (options, wanted) in [
            ("", fits),
            ("--force", fits),
            ("--force --grace-period 0", fits),
            (
                "--force --grace-period 5",
                "For force restart, only gracePeriod=0 is supported for now",
            ),
            (
                "--force --grace-period=-1",
                "gracePeriod has to be greater or equal to 0",
            ),
            (
                "--grace-period 5",
                "error: Must both use --force=true and set --grace-period.",
            ),
            (
                "--grace-period 0",
                "error: Must both use --force=true and set --grace-period.",
            ),
        ] {
            assert_eq!(refused(options), wanted, "{options}");
        }
    }
}
