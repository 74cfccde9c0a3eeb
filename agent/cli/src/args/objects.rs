//! What can be typed after the verbs that change objects of any kind.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::create::Manifest;
use super::dry_run::DryRun;
use crate::output::OutputFormat;

/// What is printed of an object that was changed.
#[derive(Args)]
pub struct ChangeOptions {
    /// What to print instead of one line: name, json, yaml, jsonpath=TEMPLATE or go-template=TEMPLATE
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
    #[command(flatten)]
    pub dry_run: DryRun,
    /// Field manager, for metadata.managedFields [default: kvmctl-VERB]
    #[arg(long, value_name = "NAME")]
    pub field_manager: Option<String>,
}

impl ChangeOptions {
    /// Who changes the object: as typed, or `default`.
    pub fn manager(&self, default: &str) -> String {
        self.field_manager
            .clone()
            .unwrap_or_else(|| default.to_owned())
    }
}

#[derive(Args)]
#[command(
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  kvmctl create -f secret.yaml\n  kvmctl create vm --name web --volume-pvc src:root | kvmctl create -f -"
)]
pub struct Create {
    /// Manifest, directory of manifests, or - for standard input; may be repeated
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    #[command(subcommand)]
    pub manifest: Option<Manifest>,
    #[command(flatten)]
    pub options: ChangeOptions,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  kvmctl get secret web -o yaml | sed s/old/new/ | kvmctl replace -f -"
)]
pub struct Replace {
    /// Manifest, directory of manifests, or - for standard input; may be repeated
    #[arg(short, long = "filename", required = true, value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
    #[command(flatten)]
    pub options: ChangeOptions,
}

/// The forms of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PatchType {
    /// JSON merge patch: members replace those of the object, null removes them
    Merge,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl patch vmirs web --type merge -p '{\"spec\":{\"paused\":true}}'\n  kvmctl patch configmap web -p 'data: {mode: fast}'"
)]
pub struct Patch {
    /// Type and names: `vmirs web`, `secret/web`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
    /// The patch, as JSON or YAML
    #[arg(
        short,
        long,
        required_unless_present = "patch_file",
        conflicts_with = "patch_file"
    )]
    pub patch: Option<String>,
    /// File that holds the patch
    #[arg(long, value_name = "FILE")]
    pub patch_file: Option<PathBuf>,
    /// Form of the patch
    #[arg(long = "type", value_enum, default_value_t = PatchType::Merge)]
    pub form: PatchType,
    /// The part of the object that is patched: status, or the object itself when left out
    #[arg(long, default_value = "", value_name = "PART")]
    pub subresource: String,
    #[command(flatten)]
    pub options: ChangeOptions,
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  KUBE_EDITOR=nano kvmctl edit vmirs web\n\nThe editor is KUBE_EDITOR, else EDITOR, else vi."
)]
pub struct Edit {
    /// Type and name: `vmirs web`, `secret/web`
    #[arg(required = true, value_name = "TYPE NAME")]
    pub what: Vec<String>,
    #[command(flatten)]
    pub options: ChangeOptions,
}

/// Changes of labels or annotations.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl label vmi web tier=front\n  kvmctl label vmi --all tier-\n  kvmctl annotate secret web owner=alice --overwrite"
)]
pub struct Mark {
    /// Type, names, and KEY=VALUE to set or KEY- to remove
    #[arg(required = true, value_name = "TYPE NAME KEY=VALUE")]
    pub what: Vec<String>,
    /// Replace other values of the same keys
    #[arg(long)]
    pub overwrite: bool,
    /// All objects of the namespace
    #[arg(long, conflicts_with = "selector")]
    pub all: bool,
    /// Objects with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    #[command(flatten)]
    pub options: ChangeOptions,
}

#[derive(Args)]
#[command(after_help = "Example:\n  kvmctl api-resources -o wide")]
pub struct ApiResources {
    /// wide or name
    #[arg(short, long)]
    pub output: Option<OutputFormat>,
    /// Leave out the line of column names
    #[arg(long)]
    pub no_headers: bool,
    /// Only those of an API group; "" is that of Secrets
    #[arg(long, value_name = "GROUP")]
    pub api_group: Option<String>,
    /// Only those whose objects live in namespaces, or with =false in none
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub namespaced: Option<bool>,
}
