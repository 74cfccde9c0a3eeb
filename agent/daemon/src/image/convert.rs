//! `kvmlet image convert`.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_host::disk_images::{ConvertBounds, DiskImage, Draft, convert_images};
use agent_images::disk::ConvertLimits;
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};

use super::format::Format;
use super::size;

pub(super) const AFTER_HELP: &str = "\
A file that an image names is never opened: give the images below it, the nearest first, with --backing.

Examples:
  kvmlet image convert debian-12.qcow2 /var/lib/kvmlet/disks/default/web.raw
  kvmlet image convert -p web.qcow2 web.raw --backing snap1.qcow2 --backing base.qcow2

Exit codes: 0 converted, 1 not (DST is then as it was)";

/// What guests' disks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// The disk's bytes as they are
    Raw,
}

/// From which files to which.
#[derive(Debug, Args)]
pub(crate) struct ConvertArguments {
    /// The image
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// The new raw disk, sparse
    #[arg(value_name = "DST")]
    destination: PathBuf,
    /// Format of SRC; without it, what its first bytes say
    #[arg(short = 'f', long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Format of DST
    #[arg(short = 'O', long, value_name = "FORMAT", default_value = "raw")]
    output_format: OutputFormat,
    /// The image below SRC; again for the one below that, and so on
    #[arg(long, value_name = "FILE")]
    backing: Vec<PathBuf>,
    /// Show progress
    #[arg(short, long)]
    progress: bool,
    /// Replace DST if it is there, in one step, when the new disk is whole
    #[arg(long)]
    force: bool,
    /// Largest disk that is written (units K, M, G, T, P)
    #[arg(long, value_name = "SIZE", default_value = "1T", value_parser = size::parse)]
    max_size: u64,
    /// Longest that it may take
    #[arg(long, value_name = "SECONDS", default_value_t = 4 * 3600)]
    timeout: u64,
}

/// Writes the disk, or leaves everything as it was.
pub(super) fn run(arguments: &ConvertArguments) -> anyhow::Result<()> {
    let OutputFormat::Raw = arguments.output_format;
    let mut images = vec![DiskImage::open(
        &arguments.source,
        arguments.format.map(Into::into),
    )?];
    for path in &arguments.backing {
        images.push(DiskImage::open(path, None)?);
    }
    let place = &arguments.destination;
    check_place(place, arguments.force, &images)?;
    let draft = Draft::new(place).with_context(|| format!("{} cannot be made", place.display()))?;
    let limits = ConvertLimits {
        output_bytes: arguments.max_size,
        ..ConvertLimits::default()
    };
    let bounds = ConvertBounds {
        limits,
        longest: Duration::from_secs(arguments.timeout),
        reserve_bytes: 0,
    };
    let mut show = |done, total| {
        if arguments.progress {
            show_progress(done, total);
        }
    };
    let result = convert_images(&images, draft.file(), bounds, &mut show);
    if arguments.progress {
        if let Ok(converted) = &result {
            show_progress(converted.virtual_bytes, converted.virtual_bytes);
        }
        print("\n");
    }
    let failed = || format!("{} is not converted", arguments.source.display());
    result.with_context(failed)?;
    let placed = draft.finish(arguments.force);
    placed.with_context(|| format!("{} cannot be put in place", place.display()))
}

/// Refuses early what would be refused, or be a mistake, after all the work.
fn check_place(place: &Path, force: bool, images: &[DiskImage]) -> anyhow::Result<()> {
    let Ok(there) = std::fs::metadata(place) else {
        return Ok(());
    };
    let name = place.display();
    ensure!(
        there.is_file(),
        "{name} is there and no regular file; disks are written to new files"
    );
    for image in images {
        let meta = image.file().metadata()?;
        if (meta.dev(), meta.ino()) == (there.dev(), there.ino()) {
            bail!("{name} is one of the images that are converted; name another file");
        }
    }
    ensure!(
        force,
        "{name} is there already; --force replaces it (a guest that has it open keeps the old one)"
    );
    Ok(())
}

/// As `qemu-img` shows it.
fn show_progress(done: u64, total: u64) {
    let hundredths = u128::from(done) * 10_000 / u128::from(total.max(1));
    let (whole, part) = (hundredths / 100, hundredths % 100);
    let end = if std::io::stdout().is_terminal() {
        '\r'
    } else {
        '\n'
    };
    print(&format!("    ({whole}.{part:02}/100%){end}"));
}

/// Prints progress; an error of standard output is ignored.
fn print(text: &str) {
    let mut out = std::io::stdout();
    // Progress is for people; the outcome is printed after it.
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
