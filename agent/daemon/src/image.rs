//! `kvmlet image`: disk images of any format become the raw disks that guests have.

mod convert;
mod format;
mod info;
mod size;

use std::process::ExitCode;

use agent_images::disk::DiskFormat;
use clap::Subcommand;

use self::format::Format;

/// What is done with an image.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Write the raw disk that an image is
    #[command(after_help = convert::AFTER_HELP)]
    Convert(convert::ConvertArguments),
    /// Say what an image is, by its header
    #[command(after_help = info::AFTER_HELP)]
    Info(info::InfoArguments),
}

impl From<Format> for DiskFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Raw => Self::Raw,
            Format::Qcow2 => Self::Qcow2,
        }
    }
}

/// Carries out the command.
pub(crate) fn run(command: &ImageCommand) -> anyhow::Result<ExitCode> {
    match command {
        ImageCommand::Convert(arguments) => convert::run(arguments)?,
        ImageCommand::Info(arguments) => info::run(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
