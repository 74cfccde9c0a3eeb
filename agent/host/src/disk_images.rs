//! Disk images of any format to raw disks, read by a child without rights.
//!
//! What an image names is never opened: the child has the descriptors of the files that the caller
//! named, and can open nothing. See `docs/images.md`.

mod draft;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use agent_confined::send;
use agent_images::disk::{ConvertLimits, Converted, DiskFormat, DiskInfo, MAX_CHAIN};
use nix::libc;

use crate::child::{CONVERT_IMAGE, Reply, Request, Task};
pub use draft::Draft;

/// Longest line that the child is heard out for.
const MAX_LINE_BYTES: u64 = 256 << 10;

/// Why an image is not converted or looked at.
#[derive(Debug, thiserror::Error)]
pub enum DiskImageError {
    /// The file is no disk image.
    #[error("{0} is neither a regular file nor a block device")]
    NoFile(String),
    /// A file cannot be opened or made.
    #[error("{0} cannot be opened")]
    Open(String, #[source] io::Error),
    /// The image is not converted. The text names it, what is wrong, and where.
    #[error("{0}")]
    Refused(String),
    /// The disk does not fit.
    #[error("no space left for the disk: {0}; free some, or write it to another file system")]
    NoSpace(String),
    /// More images than a chain may have.
    #[error("a chain has at most {MAX_CHAIN} images; {0} were given")]
    TooMany(usize),
    /// It took longer than it may.
    #[error("it took more than {0:?}; --timeout allows more")]
    TooLong(Duration),
    /// The child ended without an answer.
    #[error("the process that reads the image ended without an answer ({0})")]
    Died(ExitStatus),
    /// The child cannot be started or talked to.
    #[error("the process that reads the image cannot be used")]
    Child(#[from] io::Error),
}

/// An image that was opened for reading.
#[derive(Debug)]
pub struct DiskImage {
    name: String,
    file: File,
    format: Option<DiskFormat>,
}

impl DiskImage {
    /// Opens the file that a user named. `format` is the user's word; without it, what the image above
    /// says counts, and else the first bytes.
    ///
    /// # Errors
    /// When it is not there, is not readable, or is no file that can hold a disk.
    pub fn open(path: &Path, format: Option<DiskFormat>) -> Result<Self, DiskImageError> {
        let name = path.display().to_string();
        let opened = File::options()
            .read(true)
            // A FIFO without a writer does not hold this process up.
            .custom_flags(libc::O_NONBLOCK)
            .open(path);
        let file = opened.map_err(|error| DiskImageError::Open(name.clone(), error))?;
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(DiskImageError::NoFile(name));
        }
        Ok(Self { name, file, format })
    }

    /// An image that is open already; its first bytes say what it is.
    pub(crate) fn of_file(name: &str, file: File) -> Self {
        Self {
            name: name.to_owned(),
            file,
            format: None,
        }
    }

    /// The file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// Bounds of one conversion.
#[derive(Debug, Clone, Copy)]
pub struct ConvertBounds {
    /// Those of the images.
    pub limits: ConvertLimits,
    /// Longest that it may take.
    pub longest: Duration,
    /// What has to stay free of the disk's file system.
    pub reserve_bytes: u64,
}

/// Converts a chain of images, the one on top first, to a raw disk in `output`, which is new and empty.
///
/// `progress` is called now and then with the bytes that are done and those of the disk. It blocks.
///
/// # Errors
/// See [`DiskImageError`]. `output` may have been written to in part.
pub fn convert_images(
    images: &[DiskImage],
    output: &File,
    bounds: ConvertBounds,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted, DiskImageError> {
    convert_images_elsewhere(images, output, bounds, progress, &mut |_| Ok(()))
}

/// As [`convert_images`]. `move_to` moves the child, whose number it gets, before it gets its orders.
pub(crate) fn convert_images_elsewhere(
    images: &[DiskImage],
    output: &File,
    bounds: ConvertBounds,
    progress: &mut dyn FnMut(u64, u64),
    move_to: &mut dyn FnMut(u32) -> io::Result<()>,
) -> Result<Converted, DiskImageError> {
    let mut descriptors = vec![output.as_fd()];
    descriptors.extend(images.iter().map(|image| image.file.as_fd()));
    let request = request(Task::Convert, images, bounds)?;
    let mut reader = Reader::start(bounds.longest)?;
    move_to(reader.child.id())?;
    match reader.ask(&request, &descriptors, progress)? {
        Reply::Converted(converted) => Ok(converted),
        _ => Err(DiskImageError::Child(io::ErrorKind::InvalidData.into())),
    }
}

/// What an image says of itself.
///
/// # Errors
/// See [`DiskImageError`].
pub fn image_info(image: DiskImage) -> Result<DiskInfo, DiskImageError> {
    let bounds = ConvertBounds {
        limits: ConvertLimits::default(),
        longest: Duration::from_secs(60),
        reserve_bytes: 0,
    };
    let images = [image];
    let request = request(Task::Info, &images, bounds)?;
    let descriptors = images.each_ref().map(|image| image.file.as_fd());
    let mut reader = Reader::start(bounds.longest)?;
    match reader.ask(&request, &descriptors, &mut |_, _| {})? {
        Reply::Info(info) => Ok(info),
        _ => Err(DiskImageError::Child(io::ErrorKind::InvalidData.into())),
    }
}

fn request(
    task: Task,
    images: &[DiskImage],
    bounds: ConvertBounds,
) -> Result<Request, DiskImageError> {
    if images.len() > MAX_CHAIN {
        return Err(DiskImageError::TooMany(images.len()));
    }
    Ok(Request {
        task,
        images: images
            .iter()
            .map(|image| (image.name.clone(), image.format))
            .collect(),
        limits: bounds.limits,
        reserve_bytes: bounds.reserve_bytes,
        cpu_seconds: bounds.longest.as_secs().saturating_add(1),
    })
}

/// A child that does not outlive the question.
struct Reader {
    child: Child,
    socket: UnixStream,
    until: Instant,
    longest: Duration,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // One that has ended already can be neither killed nor waited for again.
        drop(self.child.kill());
        // Nor has it a status that anybody asks for.
        drop(self.child.wait());
    }
}

impl Reader {
    /// Starts it. It has so long.
    fn start(longest: Duration) -> io::Result<Self> {
        let until = Instant::now() + longest;
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg(CONVERT_IMAGE)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self {
            child,
            socket,
            until,
            longest,
        })
    }

    /// Hands the request over and waits for the last word.
    fn ask(
        &mut self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Reply, DiskImageError> {
        send(&self.socket, descriptors)?;
        let request = serde_json::to_vec(request).map_err(io::Error::other)?;
        (&self.socket).write_all(&request)?;
        self.socket.shutdown(Shutdown::Write)?;
        let mut lines = BufReader::new(&self.socket);
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(DiskImageError::TooLong(self.longest));
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut line = Vec::new();
            match lines
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)
            {
                Ok(0) => return Err(DiskImageError::Died(self.child.wait()?)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            match serde_json::from_slice(&line).map_err(io::Error::other)? {
                Reply::Progress(done, total) => progress(done, total),
                Reply::Refused {
                    message,
                    is_full: true,
                } => return Err(DiskImageError::NoSpace(message)),
                Reply::Refused { message, .. } => return Err(DiskImageError::Refused(message)),
                reply => return Ok(reply),
            }
        }
    }
}
