//! Why a kernel cannot be booted.

use vmm_memory::LoadError;

/// Longest command line that every kernel takes (`COMMAND_LINE_SIZE` on x86), without its NUL.
pub const MAX_CMDLINE_BYTES: usize = 2047;

/// Why a kernel cannot be booted.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Neither ELF nor bzImage.
    #[error("the kernel is neither an ELF file nor a bzImage")]
    UnknownFormat,
    /// The file contradicts itself or uses what we do not support.
    #[error("the kernel cannot be booted: {0}")]
    Malformed(&'static str),
    /// The file's tables are wrong, or a part of it is not there or does not fit.
    #[error("the kernel cannot be loaded")]
    Loader(#[source] linux_loader::loader::Error),
    /// Entered by PVH but without the note.
    #[error("the kernel has no PVH entry (ELF note Xen, type 18)")]
    NoPvhEntry,
    /// Kernel or initrd do not fit.
    #[error("{what} of {bytes} bytes does not fit into guest memory")]
    TooLarge {
        /// Kernel, initrd.
        what: &'static str,
        /// Its size in memory.
        bytes: u64,
    },
    /// The command line is too long or has a NUL.
    #[error("the kernel command line of {0} bytes is longer than {MAX_CMDLINE_BYTES} or has a NUL")]
    Cmdline(usize),
    /// A file could not be read.
    #[error("{what} could not be loaded")]
    Load {
        /// Kernel, initrd.
        what: &'static str,
        /// The underlying error.
        #[source]
        source: LoadError,
    },
    /// A file cannot be examined.
    #[error("the size of {0} cannot be learned")]
    Stat(&'static str, #[source] std::io::Error),
    /// Boot structures do not fit: guest memory is too small.
    #[error("guest memory is too small for the boot structures")]
    Memory(#[source] vm_memory::GuestMemoryError),
}
