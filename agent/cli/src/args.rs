//! What can be typed.

mod config;
mod create;
mod credentials;
mod dry_run;
mod expand;
mod image;
mod machines;
mod maintenance;
mod objects;
mod port_forward;
mod ssh;
mod top;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use self::config::{Config, ConfigCommand, ContextName};
pub use self::create::{
    CreateInstancetype, CreatePreference, CreateVm, Login, Manifest, Size, Volumes,
};
pub use self::credentials::{
    AddSshKey, Credentials, CredentialsCommand, OfUser, PublicKey, RemoveSshKey, SetPassword,
};
pub use self::dry_run::{DeleteDryRun, DeleteMode, DryRun};
pub use self::expand::Expand;
pub use self::image::{
    Image, ImageCommand, ImageOutput, ImageUsage, ListImages, PruneImages, PullImage, RemoveImages,
};
pub use self::machines::{Restart, Start};
pub use self::maintenance::{Cordon, Drain};
pub use self::objects::{ApiResources, ChangeOptions, Create, Edit, Mark, Patch, Replace};
pub use self::port_forward::PortForward;
pub use self::ssh::{Scp, Ssh, SshOptions};
pub use self::top::{Sort, Top};
use crate::later::Later;
use crate::output::OutputFormat;
use crate::output::gotemplate::GoTemplate;
use crate::scope::Scope;
use crate::time::{parse_duration, parse_minutes};
use crate::wait_goal::Goal;

/// Virtual machines on this node.
#[derive(Parser)]
#[command(
    name = "kvmctl",
    version,
    about = "Virtual machines on this node, as kubectl has them",
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub scope: Scope,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Create or change objects from manifests
    Apply(Apply),
    /// Create objects, which must not be there yet, or write manifests of flags
    Create(Create),
    /// Replace objects by those of manifests
    Replace(Replace),
    /// Change objects by a patch
    Patch(Patch),
    /// Change objects in an editor
    Edit(Edit),
    /// Set and remove labels of objects
    Label(Mark),
    /// Set and remove annotations of objects
    Annotate(Mark),
    /// Show objects
    Get(Get),
    /// Show everything about objects, with their events
    Describe(Describe),
    /// Delete objects
    Delete(Delete),
    /// Change the number of guests of sets
    Scale(Scale),
    /// Attach to the serial console of a guest; Ctrl+] leaves
    Console(Console),
    /// Print the output of a guest's serial console, without attaching to it
    Logs(Logs),
    /// Log in to a guest with the local ssh, through the agent
    Ssh(Ssh),
    /// Copy files to or from a guest with the local scp, through the agent
    Scp(Scp),
    /// Forward ports of this machine to ports of a guest
    #[command(name = "port-forward")]
    PortForward(PortForward),
    /// Show what guests use, as a live view or once
    Top(Top),
    /// Wait for a condition, a value or the deletion of objects
    Wait(Wait),
    /// Show events, the oldest first
    Events(Events),
    /// Explain the state of a VMI on one page, and what to do
    Why(Why),
    /// Pause guests: no vCPU runs until they are unpaused
    #[command(
        after_help = "Examples:\n  kvmctl pause vmi web\n  kvmctl pause vmi web && kvmctl wait --for=condition=Paused vmi/web"
    )]
    Pause(GuestVerb),
    /// Resume paused guests, regardless of why they were paused; disks try again what failed
    #[command(after_help = "Example:\n  kvmctl unpause vmi web")]
    Unpause(GuestVerb),
    /// Have guests shut down and start over: by the agent in them, else by their power button
    #[command(
        name = "soft-reboot",
        after_help = "Example:\n  kvmctl soft-reboot web"
    )]
    SoftReboot(GuestVerb),
    /// Press the reset button of guests: what they have not written is lost
    #[command(after_help = "Example:\n  kvmctl reset web")]
    Reset(GuestVerb),
    /// Start VirtualMachines
    Start(Start),
    /// Stop VirtualMachines and start them again
    Restart(Restart),
    /// Stop VirtualMachines; of VMIs, shut the guests down and keep the VMIs
    #[command(
        after_help = "Examples:\n  kvmctl stop vm web\n  kvmctl stop vmi web\n  kvmctl stop vmi web --grace-period 120\n  kvmctl wait vmi/web --for=jsonpath='{.status.phase}'=Succeeded --timeout 3m"
    )]
    Stop(Stop),
    /// Show a VirtualMachine with the fields that its instance type and preference set
    Expand(Expand),
    /// SSH keys and passwords of users of VirtualMachines
    Credentials(Credentials),
    /// Show what the agent in a guest (qemu-guest-agent) reports, as JSON
    #[command(
        name = "guestosinfo",
        after_help = "Example:\n  kvmctl guestosinfo web"
    )]
    GuestOsInfo(GuestName),
    /// Show who is logged in to a guest, as JSON
    #[command(name = "userlist", after_help = "Example:\n  kvmctl userlist web")]
    UserList(GuestName),
    /// Show the file systems that are mounted in a guest, as JSON
    #[command(name = "fslist", after_help = "Example:\n  kvmctl fslist web")]
    FsList(GuestName),
    /// Show, pull and remove what the node keeps of images
    Image(Image),
    /// Have the node start no guests; those that run go on
    #[command(after_help = "Example:\n  kvmctl cordon && kvmctl get node")]
    Cordon(Cordon),
    /// Have the node start guests again; ends a drain
    #[command(after_help = "Example:\n  kvmctl uncordon")]
    Uncordon(Cordon),
    /// Cordon the node and shut its guests down, each by its evictionStrategy
    Drain(Drain),
    /// Show versions of client, agent and running VMMs
    Version(Version),
    /// Validate manifests as a node would, without asking one
    Validate(Validate),
    /// Show the types of objects that the node serves
    #[command(name = "api-resources")]
    ApiResources(ApiResources),
    /// Explain a field: its type, its meaning and its level of support
    Explain(Explain),
    /// List every API field with its level of support
    #[command(name = "explain-support")]
    ExplainSupport(ExplainSupport),
    /// Manage contexts, which choose one of several nodes
    Config(Config),
    /// Print the completion script of a shell
    Completion(Completion),
    /// Write the manual pages to a directory, for packages
    #[command(name = "manual-pages", hide = true)]
    ManualPages(ManualPages),
    #[command(flatten)]
    Later(Later),
}

/// A guest.
#[derive(Args)]
pub struct GuestName {
    /// Name of the VMI, which is that of its VirtualMachine; vm/NAME and vmi/NAME work too
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Args)]
#[command(after_help = "Example:\n  kvmctl apply -f web.yaml --wait")]
pub struct Apply {
    /// Manifest, directory of manifests, or - for standard input; may be repeated
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    #[command(flatten)]
    pub dry_run: DryRun,
    /// Wait until the VMs and VMIs are ready
    #[arg(long)]
    pub wait: bool,
    /// Give up waiting after this long
    #[arg(long, value_parser = parse_duration, default_value = "5m", value_name = "DURATION")]
    pub timeout: Duration,
    /// What to print: name, json or yaml instead of one line
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
    /// Field manager, for metadata.managedFields
    #[arg(long, default_value = "kvmctl-apply", value_name = "NAME")]
    pub field_manager: String,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl get vmi -o wide\n  kvmctl get vmi web -o jsonpath='{.status.phase}'\n  kvmctl get events --field-selector reason=Started"
)]
pub struct Get {
    /// Type and name: `vmi`, `vmi web`, `vmi/web`, `events`; several types: `vmi,vm`, `all`
    #[arg(required = true, value_name = "TYPE [NAME]")]
    pub what: Vec<String>,
    /// wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE or custom-columns=NAME:PATH,...
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// With json and yaml, show metadata.managedFields, too
    #[arg(long)]
    pub show_managed_fields: bool,
    /// After the objects, show their changes
    #[arg(short, long)]
    pub watch: bool,
    /// Labels, such as app=web,tier!=test
    #[arg(short = 'l', long, default_value = "", value_name = "SELECTOR")]
    pub selector: String,
    /// Fields, such as status.phase=Running
    #[arg(long, default_value = "", value_name = "SELECTOR")]
    pub field_selector: String,
    /// Leave out the line of column names
    #[arg(long)]
    pub no_headers: bool,
    /// Go template to print, as -o go-template=TEMPLATE does
    #[arg(long, value_parser = GoTemplate::parse, conflicts_with = "output", value_name = "TEMPLATE")]
    pub template: Option<GoTemplate>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl validate -f web.yaml\n  kvmctl validate -f manifests -R -o json\n  kvmctl validate -f web.yaml --defaulted -o yaml\n\nVerdicts:\n  accepted     a node would take it\n  unsupported  legal in KubeVirt's API, and beyond this release or the node\n  refused      KubeVirt refuses it too\n\nExit codes: 0 all accepted, 1 not all, 2 something cannot be read"
)]
pub struct Validate {
    /// Manifest, directory of manifests, or - for standard input; may be repeated
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    /// Manifests below directories too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Validate for the node that printed this by `kvmlet doctor -o json`, not for one that has everything
    #[arg(long, value_name = "FILE")]
    pub node: Option<PathBuf>,
    /// Print accepted objects with all defaults instead of verdicts
    #[arg(long)]
    pub defaulted: bool,
    /// json: one line for each object; with --defaulted yaml or json
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  kvmctl describe vmi web\n  kvmctl describe node")]
pub struct Describe {
    /// Type and names: `vmi web`, `vmi/web`, `node`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl delete vmi web --grace-period 0\n  kvmctl delete -f web.yaml"
)]
pub struct Delete {
    /// Type and names: `vmi web`, `vmi/web`
    #[arg(
        required_unless_present = "filenames",
        conflicts_with = "filenames",
        value_name = "TYPE NAME"
    )]
    pub what: Vec<String>,
    /// Delete what a manifest names
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    /// Seconds for the guest to shut down; 0 ends it at once
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub grace_period: Option<i64>,
    /// Whether what the objects own, such as the guests of a set, is deleted after them or left alone
    #[arg(long, value_enum, default_value_t = Cascade::Background, value_name = "MODE")]
    pub cascade: Cascade,
    /// Wait until the objects are gone
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub wait: bool,
    /// Give up waiting after this long
    #[arg(long, value_parser = parse_duration, default_value = "5m", value_name = "DURATION")]
    pub timeout: Duration,
    /// Objects that are not there are no error
    #[arg(long)]
    pub ignore_not_found: bool,
    #[command(flatten)]
    pub dry_run: DeleteDryRun,
}

/// `--cascade`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cascade {
    /// Deleted after them
    Background,
    /// Left alone
    Orphan,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl scale vmirs web --replicas 5\n  kvmctl scale vmirs/web vmirs/db --replicas 0"
)]
pub struct Scale {
    /// Type and names: `vmirs web`, `vmirs/web`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
    /// Number of guests
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    pub replicas: i32,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl events --for vmi/web\n  kvmctl events --types Warning --watch"
)]
pub struct Events {
    /// Only those about one object, as TYPE/NAME
    #[arg(long = "for", value_name = "TYPE/NAME")]
    pub object: Option<String>,
    /// Only those of these types: Normal, Warning
    #[arg(long, value_delimiter = ',', value_name = "TYPES")]
    pub types: Vec<String>,
    /// In all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// After the events, show new ones
    #[arg(short, long)]
    pub watch: bool,
    /// wide, json, yaml, name, jsonpath=TEMPLATE, go-template=TEMPLATE or custom-columns=NAME:PATH,...
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
    /// Leave out the line of column names
    #[arg(long)]
    pub no_headers: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  kvmctl why web")]
pub struct Why {
    /// Names of VMIs and VirtualMachines, with their type or without: `web db`, `vmi web db`, `vm/web vm/db`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
}

/// The guests that a verb such as `pause` is for.
#[derive(Args)]
pub struct GuestVerb {
    /// Names of VMIs or of their VirtualMachines, with their type or without: `web db`, `vmi web db`, `vm/web vm/db`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub dry_run: DryRun,
}

#[derive(Args)]
pub struct Stop {
    /// Names of VirtualMachines, with their type or without, or of VMIs: `web`, `vm web db`, `vm/web vm/db`, `vmi/web`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub dry_run: DryRun,
    /// Seconds for the guest to shut down; 0 ends it at once. Its own when left out
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i64).range(0..))]
    pub grace_period: Option<i64>,
    /// End it at once, as --grace-period 0 does
    #[arg(long)]
    pub force: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl console web\n  echo uptime | kvmctl console web --idle 2s"
)]
pub struct Console {
    /// Name of the VMI; vm/NAME and vmi/NAME work too
    pub name: String,
    /// Take the console over from its present client
    #[arg(long)]
    pub force: bool,
    /// First print the kept output of the guest
    #[arg(long)]
    pub replay: bool,
    /// How long to wait for the guest to run; a bare number counts minutes
    #[arg(long, value_parser = parse_minutes, default_value = "5m", value_name = "DURATION")]
    pub timeout: Duration,
    /// When standard input is no terminal and has ended: leave once the guest printed nothing for so long
    #[arg(long, value_parser = parse_duration, default_value = "1s", value_name = "DURATION")]
    pub idle: Duration,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl logs web\n  kvmctl logs -f web\n  kvmctl logs --previous web\n\nWhat is printed is what the node kept: the end of the output, as much as console.log_bytes allows."
)]
pub struct Logs {
    /// Name of a VMI; TYPE NAME and TYPE/NAME work too
    #[arg(required = true, value_name = "NAME")]
    pub what: Vec<String>,
    /// Keep printing new output until the guest ends
    #[arg(short, long)]
    pub follow: bool,
    /// Print the output of the previous run: of an earlier VMM, or of the last deleted VMI of this name
    #[arg(short, long)]
    pub previous: bool,
    /// Show only the last BYTES of the kept output
    #[arg(long, value_name = "BYTES")]
    pub tail_bytes: Option<u64>,
    /// At a terminal, print control sequences of the guest as they are
    #[arg(long)]
    pub raw: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl completion bash > /etc/bash_completion.d/kvmctl\n  source <(kvmctl completion zsh)\n\nThe Debian package has those of bash, zsh and fish."
)]
pub struct Completion {
    /// Name of the shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct ManualPages {
    /// Where the pages go
    pub directory: PathBuf,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl wait --for=condition=Ready vmi/web --timeout 60s\n  kvmctl wait --for=delete vmi/web\n  kvmctl wait --for=condition=Ready vmi -l app=web\n  kvmctl wait --for=jsonpath='{.status.phase}'=Succeeded vmi/web"
)]
pub struct Wait {
    /// Type and names: `vmi web`, `vmi/web`
    #[arg(required = true, value_name = "TYPE/NAME")]
    pub what: Vec<String>,
    /// All objects of the type in the namespace
    #[arg(long, conflicts_with = "selector")]
    pub all: bool,
    /// Objects with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// condition=NAME[=STATUS], delete or jsonpath='{PATH}'=VALUE
    #[arg(long = "for", value_name = "GOAL")]
    pub goal: Goal,
    /// Give up after this long
    #[arg(long, value_parser = parse_duration, default_value = "30s", value_name = "DURATION")]
    pub timeout: Duration,
}

#[derive(Args)]
#[command(after_help = "Example:\n  kvmctl version -o yaml")]
pub struct Version {
    /// Only the client's
    #[arg(short, long)]
    pub client: bool,
    /// json or yaml
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl explain vmi\n  kvmctl explain vmi.spec.domain.cpu\n  kvmctl explain vmi.spec.domain.devices --recursive"
)]
pub struct Explain {
    /// Type and field, such as vmi.spec.domain.cpu
    #[arg(value_name = "TYPE.FIELD")]
    pub path: String,
    /// Names and types of all that is below, without words
    #[arg(long)]
    pub recursive: bool,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl explain-support\n  kvmctl explain-support spec.domain.devices.disks"
)]
pub struct ExplainSupport {
    /// Explain only this field and those below it
    pub path: Option<String>,
    /// wide (with meanings), json or yaml
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
}
