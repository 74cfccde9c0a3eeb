//! Programs of the operator that are asked about machines: text in, text out.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::child::RUN_HOOK;
use crate::helpers::{self, Helper, Need, end};
use crate::work::on_thread;

/// The largest answer.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// The longest part of its standard error in an error message.
const MAX_COMPLAINT_BYTES: u64 = 1024;

/// Programs of one directory.
const MAX_PROGRAMS: usize = 64;

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    /// Before a machine is made of a VMI.
    OnDefineDomain,
    /// Before a volume for cloud-init is made.
    PreCloudInitIso,
    /// Before a guest is asked to shut down.
    Shutdown,
}

impl HookPoint {
    /// The argument of a program.
    const fn argument(self) -> &'static str {
        match self {
            Self::OnDefineDomain => "on-define-domain",
            Self::PreCloudInitIso => "pre-cloud-init-iso",
            Self::Shutdown => "shutdown",
        }
    }

    /// A guest that is to stop waits for no hook of one that starts: its grace period counts.
    const fn need(self) -> Need {
        match self {
            Self::OnDefineDomain | Self::PreCloudInitIso => helpers::RUN_HOOK,
            Self::Shutdown => helpers::RUN_STOP_HOOK,
        }
    }
}

/// Why a hook gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum HookProgramError {
    /// The directory or the program cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Others than root could change what the agent starts.
    #[error("{} may be changed by others than its owner, or its owner is neither root nor the agent: chown root, chmod go-w", path.display())]
    Unsafe {
        /// Path of the file.
        path: PathBuf,
    },
    /// There are too many.
    #[error("{} holds more than {MAX_PROGRAMS} programs", path.display())]
    TooMany {
        /// The directory.
        path: PathBuf,
    },
    /// It cannot be started or talked to.
    #[error("it cannot be run")]
    Io(#[from] io::Error),
    /// It took too long, and was killed.
    #[error("it did not answer within {0:?} and was killed")]
    TimedOut(Duration),
    /// It failed.
    #[error("it ended with {status}: {complaint}")]
    Failed {
        /// Exit code or signal.
        status: ExitStatus,
        /// What it wrote to standard error, cut.
        complaint: String,
    },
    /// It says more than anybody reads.
    #[error("it wrote more than {MAX_OUTPUT_BYTES} bytes and was killed")]
    TooLong,
}

/// The programs of a directory, by name. Without the directory there are none. Hidden files, editors' backups and
/// what is not executable are left out.
///
/// # Errors
/// When the directory cannot be read, and for programs that others than root may change.
pub async fn hook_programs(directory: &Path) -> Result<Vec<PathBuf>, HookProgramError> {
    let directory = directory.to_owned();
    on_thread(move || list(&directory)).await?
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, HookProgramError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| HookProgramError::Unreadable { path, source }
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(directory)(error)),
    };
    let mut programs = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable(directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_none_or(|name| name.starts_with('.') || name.ends_with('~')) {
            continue;
        }
        let metadata = std::fs::metadata(&path).map_err(unreadable(&path))?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            continue;
        }
        if programs.len() == MAX_PROGRAMS {
            let path = directory.to_owned();
            return Err(HookProgramError::TooMany { path });
        }
        check(&path, &metadata)?;
        programs.push(path);
    }
    if !programs.is_empty() {
        let metadata = std::fs::metadata(directory).map_err(unreadable(directory))?;
        check(directory, &metadata)?;
    }
    programs.sort();
    Ok(programs)
}

/// Whoever can change a program that the agent starts can change every guest's machine.
fn check(path: &Path, metadata: &std::fs::Metadata) -> Result<(), HookProgramError> {
    let own = nix::unistd::geteuid().as_raw();
    let is_trusted = metadata.uid() == 0 || metadata.uid() == own;
    if !is_trusted || metadata.permissions().mode() & 0o022 != 0 {
        let path = path.to_owned();
        return Err(HookProgramError::Unsafe { path });
    }
    Ok(())
}

/// Starts a program, unprivileged, with the hook point as its argument and `input` as its standard input, and gives its
/// standard output. `helper` is the agent's own program.
///
/// # Errors
/// See [`HookProgramError`].
pub async fn run_hook_program(
    helper: &Path,
    program: &Path,
    point: HookPoint,
    input: &[u8],
    limit: Duration,
) -> Result<Vec<u8>, HookProgramError> {
    let memory = point.need().granted(None).await?;
    let mut command = Command::new(helper);
    command
        .arg(RUN_HOOK)
        .arg(program)
        .arg(point.argument())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut helper = Helper::spawn(&mut command, memory)?;
    let child = helper.child();
    let answer = timeout(limit, async {
        let said = converse(child, input).await?;
        Ok((child.wait().await?, said))
    });
    match answer.await {
        Ok(Ok((status, (output, _)))) if status.success() => Ok(output),
        Ok(Ok((status, (_, complaint)))) => {
            let complaint = String::from_utf8_lossy(&complaint).trim().to_owned();
            Err(HookProgramError::Failed { status, complaint })
        }
        Ok(Err(error)) => {
            end(child).await;
            Err(error)
        }
        Err(_) => {
            end(child).await;
            Err(HookProgramError::TimedOut(limit))
        }
    }
}

/// Writes all and reads all, at the same time: either side may be slow.
async fn converse(child: &mut Child, input: &[u8]) -> Result<(Vec<u8>, Vec<u8>), HookProgramError> {
    const PIPED: &str = "it was started with pipes, and nobody has taken them";
    let mut to = child.stdin.take().expect(PIPED);
    let from = child.stdout.take().expect(PIPED);
    let complaints = child.stderr.take().expect(PIPED);
    let write = async move {
        match to.write_all(input).await {
            // Nobody has to read what it does not need.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    };
    let (written, output, complaint) = tokio::join!(
        write,
        read(from, MAX_OUTPUT_BYTES + 1),
        read_and_drop_rest(complaints)
    );
    written?;
    let output = output?;
    if output.len() as u64 > MAX_OUTPUT_BYTES {
        return Err(HookProgramError::TooLong);
    }
    Ok((output, complaint?))
}

async fn read(from: impl AsyncRead + Unpin, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Reads to the end, so that a program that writes much to standard error does not block.
async fn read_and_drop_rest(mut from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let bytes = read(&mut from, MAX_COMPLAINT_BYTES).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(bytes)
}
