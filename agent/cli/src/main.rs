//! `kvmctl`: the command line client.
//!
//! Verbs, flags, columns and words are `kubectl`'s and `virtctl`'s where those have them. Data goes to
//! standard output and nothing else does. What is admitted is the agent's to say; only what cannot be
//! read at all is refused here.

#![forbid(unsafe_code)]

mod agent_address;
mod apply;
mod args;
mod change;
mod client;
mod console;
mod contexts;
mod create;
mod credentials;
mod delete;
mod describe;
mod describe_node;
mod drain;
mod edit;
mod events;
mod expand;
mod explain;
mod explain_field;
mod explain_kind;
mod failure;
mod files;
mod follow;
mod generate;
mod get;
mod grace;
mod guest;
mod guest_info;
mod image;
mod later;
mod logs;
mod machines;
mod maintenance;
mod misses;
mod names;
mod no_guest;
mod objects;
mod output;
mod port_forward;
mod resource;
mod resources;
mod scope;
mod ssh;
mod state;
mod terminal;
mod text;
mod time;
mod top;
mod unreachable;
mod validate;
mod verbs;
mod version;
mod wait;
mod wait_goal;
mod why;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::change::Marks;
use crate::failure::Failure;
use crate::guest_info::Part;
use crate::verbs::Verb;

fn main() -> ExitCode {
    // Wrong usage ends here with exit code 2.
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(cli)),
        Err(error) => Err(Failure::refused(format!("no event loop: {error}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                output::note(&text);
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    let mut scope = cli.scope;
    if needs_agent(&cli.command) {
        scope.complete()?;
    }
    match cli.command {
        Command::Apply(args) => apply::run(&scope, args).await,
        Command::Create(args) => create::run(&scope, &args).await,
        Command::Replace(args) => change::replace(&scope, &args).await,
        Command::Patch(args) => change::patch(&scope, &args).await,
        Command::Edit(args) => edit::run(&scope, &args).await,
        Command::Label(args) => change::mark(&scope, &args, Marks::Labels).await,
        Command::Annotate(args) => change::mark(&scope, &args, Marks::Annotations).await,
        Command::ApiResources(args) => resources::run(&scope, &args).await,
        Command::Get(args) => get::run(&scope, args).await,
        Command::Describe(args) => describe::run(&scope, args).await,
        Command::Delete(args) => delete::run(&scope, args).await,
        Command::Scale(args) => objects::scale(&scope, &args).await,
        Command::Console(args) => console::run(&scope, args).await,
        Command::Logs(args) => logs::run(&scope, args).await,
        Command::Ssh(args) => ssh::ssh(&scope, &args).await,
        Command::Scp(args) => ssh::scp(&scope, &args).await,
        Command::PortForward(args) => port_forward::run(&scope, args).await,
        Command::Top(args) => top::run(&scope, args).await,
        Command::Wait(args) => wait::run(&scope, args).await,
        Command::Events(args) => events::run(&scope, args).await,
        Command::Why(args) => why::run(&scope, args).await,
        Command::Pause(args) => verbs::run(&scope, Verb::Pause, args).await,
        Command::Unpause(args) => verbs::run(&scope, Verb::Unpause, args).await,
        Command::SoftReboot(args) => verbs::run(&scope, Verb::SoftReboot, args).await,
        Command::Reset(args) => verbs::run(&scope, Verb::Reset, args).await,
        Command::Start(args) => machines::start(&scope, &args).await,
        Command::Restart(args) => machines::restart(&scope, &args).await,
        Command::Stop(args) => verbs::stop(&scope, args).await,
        Command::Expand(args) => expand::run(&scope, &args).await,
        Command::Credentials(args) => credentials::run(&scope, &args.command).await,
        Command::GuestOsInfo(args) => guest_info::run(&scope, &args, Part::All).await,
        Command::UserList(args) => guest_info::run(&scope, &args, Part::Users).await,
        Command::FsList(args) => guest_info::run(&scope, &args, Part::FileSystems).await,
        Command::Image(args) => image::run(&scope, &args).await,
        Command::Cordon(args) => maintenance::cordon(&scope, &args).await,
        Command::Uncordon(args) => maintenance::uncordon(&scope, &args).await,
        Command::Drain(args) => drain::run(&scope, &args).await,
        Command::Version(args) => version::run(&scope, args).await,
        Command::Explain(args) => explain_field::run(scope, &args).await,
        Command::ExplainSupport(args) => explain::run(&args),
        Command::Validate(args) => validate::run(&args),
        Command::Config(args) => contexts::run(&scope, &args.command),
        Command::Completion(args) => generate::completion(&args),
        Command::ManualPages(args) => generate::manual_pages(&args),
        Command::Later(verb) => Err(later::refuse(&verb)),
    }
}

/// What answers by itself does not fail for settings of a connection.
fn needs_agent(command: &Command) -> bool {
    if let Command::Create(args) = command {
        return args.manifest.is_none();
    }
    !matches!(
        command,
        Command::Explain(_)
            | Command::ExplainSupport(_)
            | Command::Validate(_)
            | Command::Config(_)
            | Command::Completion(_)
            | Command::ManualPages(_)
            | Command::Later(_)
    )
}
