//! `kvmctl pause`, `unpause`, `soft-reboot`, `reset` and `stop`.

use proto_node::node::{StopRequest, VerbRequest, VerbResponse};
use proto_node::{FailureReason, failure_reason};

use crate::args::{GuestVerb, Stop};
use crate::client::Client;
use crate::failure::Failure;
use crate::machines;
use crate::misses::Misses;
use crate::no_guest;
use crate::output::print_line;
use crate::resource::{Resource, vmi_names};
use crate::scope::Scope;

/// A request to a running guest.
#[derive(Clone, Copy)]
pub enum Verb {
    Pause,
    Unpause,
    SoftReboot,
    Reset,
    Stop { grace_period_seconds: Option<i64> },
}

impl Verb {
    /// As it is typed.
    const fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::SoftReboot => "soft-reboot",
            Self::Reset => "reset",
            Self::Stop { .. } => "stop",
        }
    }
}

/// Stops machines; of VMIs, shuts the guests down and keeps the VMIs.
pub async fn stop(scope: &Scope, args: Stop) -> Result<(), Failure> {
    let grace_period_seconds = match (args.force, args.grace_period) {
        (true, None | Some(0)) => Some(0),
        (true, Some(_)) => {
            return Err(Failure::Usage(
                "--force is --grace-period 0: leave one of them out".to_owned(),
            ));
        }
        (false, seconds) => seconds,
    };
    let verb = Verb::Stop {
        grace_period_seconds,
    };
    let change = machines::MachineAction::Stop {
        grace: grace_period_seconds,
    };
    let dry_run = &args.dry_run;
    if let Some(names) = machines::typed_names(&args.what)? {
        return machines::change_all(scope, &names, change, dry_run).await;
    }
    // A name alone means the machine of that name, as virtctl has it, and else the VMI.
    if let [name] = args.what.as_slice()
        && !name.contains('/')
        && machines::exists(&mut Client::new(scope)?, scope, name).await?
    {
        return machines::change_all(scope, std::slice::from_ref(name), change, dry_run).await;
    }
    let guests = GuestVerb {
        what: args.what,
        dry_run: args.dry_run,
    };
    run(scope, verb, guests).await
}

/// Sends the request to every named guest; a refusal does not stop the others.
pub async fn run(scope: &Scope, verb: Verb, args: GuestVerb) -> Result<(), Failure> {
    let names = vmi_names(&args.what)?;
    let mut client = Client::new(scope)?;
    let mut misses = Misses::default();
    for name in names {
        misses.take(send_verb(&mut client, scope, verb, &args, &name).await)?;
    }
    misses.end()
}

async fn send_verb(
    client: &mut Client,
    scope: &Scope,
    verb: Verb,
    args: &GuestVerb,
    name: &str,
) -> Result<(), Failure> {
    let request = VerbRequest {
        namespace: scope.namespace().to_owned(),
        name: name.to_owned(),
        dry_run: args.dry_run.is_on,
        ..VerbRequest::default()
    };
    if let Err(status) = ask(client, verb, request).await {
        let is_missing = failure_reason(&status) == Some(FailureReason::NotFound);
        return Err(
            if is_missing && machines::typed_names(&args.what)?.is_some() {
                no_guest::why(client, scope, name).await
            } else {
                Failure::of_status(&status, Resource::Vmi.kind(), name, client.address())
            },
        );
    }
    let dry = args.dry_run.suffix();
    print_line(&format!("VMI {name} was scheduled to {}{dry}", verb.name()))
}

async fn ask(
    client: &mut Client,
    verb: Verb,
    request: VerbRequest,
) -> Result<VerbResponse, tonic::Status> {
    match verb {
        Verb::Pause => client.pause(request).await,
        Verb::Unpause => client.unpause(request).await,
        Verb::SoftReboot => client.soft_reboot(request).await,
        Verb::Reset => client.reset(request).await,
        Verb::Stop {
            grace_period_seconds,
        } => {
            let stop = StopRequest {
                guest: Some(request),
                grace_period_seconds,
            };
            client.stop(stop).await
        }
    }
}
