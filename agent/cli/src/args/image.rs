//! `kvmctl image`.

use clap::{Args, Subcommand, ValueEnum};

use super::dry_run::DryRun;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl image ls\n  kvmctl image pull registry.example/debian:12 --pull-secret registry\n  kvmctl image prune --dry-run"
)]
pub struct Image {
    #[command(subcommand)]
    pub command: ImageCommand,
}

#[derive(Subcommand)]
pub enum ImageCommand {
    /// Show the disks of images that the node keeps, the one used last first
    #[command(
        visible_alias = "list",
        after_help = "Example:\n  kvmctl image ls -o json"
    )]
    Ls(ListImages),
    /// Pull an image before a guest needs it
    #[command(
        after_help = "Examples:\n  kvmctl image pull registry.example/debian:12\n  kvmctl -n team-a image pull registry.example/private/web:3 --pull-secret registry"
    )]
    Pull(PullImage),
    /// Remove disks of images; one that a guest has stays
    #[command(
        visible_alias = "remove",
        after_help = "Examples:\n  kvmctl image rm registry.example/debian:12\n  kvmctl image rm 4f0a2b7c9d10"
    )]
    Rm(RemoveImages),
    /// Show the disk usage of images, and when the node removes some by itself
    #[command(after_help = "Example:\n  kvmctl image df")]
    Df(ImageUsage),
    /// Remove every disk of an image that no guest has
    #[command(after_help = "Example:\n  kvmctl image prune --dry-run")]
    Prune(PruneImages),
}

/// How images are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImageOutput {
    /// One JSON object
    Json,
    /// The same as YAML
    Yaml,
    /// Digests, one a line
    Name,
}

#[derive(Args)]
pub struct ListImages {
    /// How they are printed, instead of as a table
    #[arg(short, long, value_enum)]
    pub output: Option<ImageOutput>,
    /// Leave out the line of column names
    #[arg(long)]
    pub no_headers: bool,
}

#[derive(Args)]
pub struct PullImage {
    /// The image, as `containerDisk.image` names it
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// Secret of the namespace with credentials for the registry (type kubernetes.io/dockerconfigjson)
    #[arg(long, value_name = "NAME", default_value = "")]
    pub pull_secret: String,
    /// Path of the disk in the image; without it, the one file in /disk
    #[arg(long, value_name = "PATH", default_value = "")]
    pub path: String,
    /// When the registry is asked: Always, IfNotPresent or Never
    #[arg(long, value_name = "POLICY", default_value = "")]
    pub pull_policy: String,
}

#[derive(Args)]
pub struct RemoveImages {
    /// Digests, 12 digits of them at least, or names by which they were pulled
    #[arg(required = true, value_name = "IMAGE")]
    pub images: Vec<String>,
}

#[derive(Args)]
pub struct ImageUsage {
    /// How it is printed, instead of in lines for people
    #[arg(short, long, value_enum)]
    pub output: Option<ImageOutput>,
}

#[derive(Args)]
pub struct PruneImages {
    #[command(flatten)]
    pub dry_run: DryRun,
}
