//! What can be typed after `credentials`: the flags of `virtctl`.

use clap::{Args, Subcommand, ValueHint};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  kvmctl credentials add-ssh-key --user debian --file k.pub dev\n  kvmctl credentials set-password --user debian --password changed dev"
)]
pub struct Credentials {
    #[command(subcommand)]
    pub command: CredentialsCommand,
}

#[derive(Subcommand)]
pub enum CredentialsCommand {
    /// Add an SSH key for a user of a VirtualMachine
    #[command(
        name = "add-ssh-key",
        after_help = "Examples:\n  kvmctl credentials add-ssh-key --user debian --file k.pub dev\n  kvmctl credentials add-ssh-key --create-secret --force -u debian -f k.pub dev"
    )]
    AddSshKey(AddSshKey),
    /// Remove an SSH key
    #[command(
        name = "remove-ssh-key",
        after_help = "Example:\n  kvmctl credentials remove-ssh-key --user debian --file k.pub dev"
    )]
    RemoveSshKey(RemoveSshKey),
    /// Set the password of a user, in the Secret that the VirtualMachine takes passwords from
    #[command(
        name = "set-password",
        after_help = "Example:\n  kvmctl credentials set-password --user debian --password changed dev"
    )]
    SetPassword(SetPassword),
}

/// The VirtualMachine, the user and the Secret whose credentials change.
#[derive(Args)]
pub struct OfUser {
    /// Name of the VirtualMachine
    #[arg(value_name = "VM")]
    pub vm: String,
    /// Name of the user in the guest
    #[arg(short, long, value_name = "NAME")]
    pub user: String,
    /// Name of the Secret, where the VirtualMachine has several
    #[arg(long, value_name = "NAME")]
    pub secret: Option<String>,
    /// Change a Secret that the VirtualMachine does not own, or add one to a machine that runs
    #[arg(long)]
    pub force: bool,
}

impl OfUser {
    /// The Secret that was named.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref().filter(|name| !name.is_empty())
    }
}

/// A public key. That it is one of both is checked in the words of `virtctl`.
#[derive(Args)]
pub struct PublicKey {
    /// File with the public key
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<String>,
    /// The public key itself
    #[arg(long, value_name = "KEY")]
    pub value: Option<String>,
}

#[derive(Args)]
pub struct AddSshKey {
    #[command(flatten)]
    pub whose: OfUser,
    #[command(flatten)]
    pub key: PublicKey,
    /// Create a new Secret, which takes effect at the next start
    #[arg(long)]
    pub create_secret: bool,
    /// Add to the existing Secret
    #[arg(long)]
    pub update_secret: bool,
}

#[derive(Args)]
pub struct RemoveSshKey {
    #[command(flatten)]
    pub whose: OfUser,
    #[command(flatten)]
    pub key: PublicKey,
}

#[derive(Args)]
pub struct SetPassword {
    #[command(flatten)]
    pub whose: OfUser,
    /// The password
    #[arg(short, long, value_name = "PASSWORD")]
    pub password: String,
}
