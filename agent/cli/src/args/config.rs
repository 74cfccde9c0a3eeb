//! What can be typed after `config`.

use clap::{Args, Subcommand};

/// Contexts of the file of settings.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl config set-context rack1 --server https://rack1:9774 --cert me.crt \\\n    --key me.key --cacert ca.crt\n  kvmctl config use-context rack1\n  kvmctl --context rack2 get vmi"
)]
pub struct Config {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// List contexts; the current one has a star
    #[command(name = "get-contexts")]
    GetContexts,
    /// Print the name of the current context
    #[command(name = "current-context")]
    CurrentContext,
    /// Use a context from now on
    #[command(name = "use-context")]
    UseContext(ContextName),
    /// Create or change a context from --server, --cert, --key, --cacert, --socket and --namespace
    #[command(name = "set-context")]
    SetContext(ContextName),
    /// Delete a context
    #[command(name = "delete-context")]
    DeleteContext(ContextName),
}

#[derive(Args)]
pub struct ContextName {
    /// Name of the context
    #[arg(value_name = "NAME")]
    pub name: String,
}
