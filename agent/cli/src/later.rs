//! Verbs of `virtctl` that are not there yet: refused by name, with what there is instead.

use clap::{Args, Subcommand};

use crate::failure::Failure;

/// The verbs. They are in no list and no completion.
#[derive(Subcommand)]
pub enum Later {
    #[command(hide = true)]
    Migrate(Rest),
    #[command(hide = true)]
    MigrateCancel(Rest),
    #[command(hide = true)]
    Vnc(Rest),
    #[command(hide = true, name = "addvolume")]
    AddVolume(Rest),
    #[command(hide = true, name = "removevolume")]
    RemoveVolume(Rest),
    #[command(hide = true)]
    MemoryDump(Rest),
    #[command(hide = true, name = "guestfs")]
    GuestFs(Rest),
    #[command(hide = true)]
    Expose(Rest),
    #[command(hide = true)]
    ImageUpload(Rest),
    #[command(hide = true, name = "vmexport")]
    VmExport(Rest),
    #[command(hide = true, name = "usbredir")]
    UsbRedir(Rest),
}

/// What follows them, which nobody reads.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

const NO_MOVES: &str =
    "guests do not move to other nodes: `kvmctl drain` shuts those of this node down in order";
const NO_PLUGS: &str = "disks are not plugged while a guest runs: `kvmctl edit vm NAME` changes its volumes, and \
                        `kvmctl restart NAME` gives it the new ones";

/// Refuses a verb.
pub fn refuse(verb: &Later) -> Failure {
    let (name, instead) = match verb {
        Later::Migrate(_) => ("migrate", NO_MOVES),
        Later::MigrateCancel(_) => ("migrate-cancel", NO_MOVES),
        Later::Vnc(_) => (
            "vnc",
            "guests have no screen: `kvmctl console NAME` is their serial console",
        ),
        Later::AddVolume(_) => ("addvolume", NO_PLUGS),
        Later::RemoveVolume(_) => ("removevolume", NO_PLUGS),
        Later::MemoryDump(_) => (
            "memory-dump",
            "the node has no PersistentVolumeClaims to dump memory into yet",
        ),
        Later::GuestFs(_) => (
            "guestfs",
            "the node has no PersistentVolumeClaims yet: attach the disk to another guest as its second one to look into it",
        ),
        Later::Expose(_) => (
            "expose",
            "the node has no Services: `kvmctl port-forward vm/NAME` leads to a port of a guest",
        ),
        Later::ImageUpload(_) => (
            "image-upload",
            "the node has no PersistentVolumeClaims yet: disks come in images of a registry, by `containerDisk`",
        ),
        Later::VmExport(_) => (
            "vmexport",
            "the node has no PersistentVolumeClaims yet: `kvmctl get vm NAME -o yaml` is the machine without its disks",
        ),
        Later::UsbRedir(_) => ("usbredir", "guests have no USB"),
    };
    Failure::refused(format!("{name} is not there yet: {instead}"))
}
