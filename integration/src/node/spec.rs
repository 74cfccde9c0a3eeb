//! What a node is made of.

use std::path::PathBuf;

use crate::artifacts;

/// Which user space a node runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// busybox in memory; `/var/lib/kvmlet` is on disk. Ready within seconds.
    Busybox,
    /// Debian with systemd, wholly on disk.
    Systemd,
}

/// Where the node's serial port goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Console {
    /// Into the node's log.
    Log,
    /// To this process's terminal, with a shell; Ctrl+a x ends the node.
    Terminal,
}

/// How a node's processors are emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emulation {
    /// Each by a thread of its own; the node's time is this machine's.
    Parallel,
    /// One processor whose time is the number of its instructions, a nanosecond each: the same work
    /// takes the same time, whatever else this machine does. Waiting for a timer takes no time of this
    /// machine.
    Counted {
        /// Of the node's random numbers.
        seed: u32,
    },
}

/// A node that is to be booted.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Its user space.
    pub flavour: Flavour,
    /// Its memory in MiB.
    pub memory_mib: u32,
    /// Its processors.
    pub cpus: u32,
    /// How they are emulated; counted ones must be one.
    pub emulation: Emulation,
    /// Files and trees brought along on a read-only disk: from the host's path to a path below
    /// `/opt/payload`. What lands in `bin/` is also in the node's search path.
    pub payload: Vec<(PathBuf, String)>,
    /// Where its serial port goes.
    pub console: Console,
    /// The QEMU of [`crate::image::qemu`] runs it, in which nested guests do not fail. Debian's ends when they
    /// write CR8 while an interrupt waits for them, as OVMF does, and now and then gives them an interrupt
    /// twice; it is there at once, the other takes five minutes to build.
    pub is_mended: bool,
    /// Its processors have AES instructions.
    pub has_aes: bool,
    /// More arguments for QEMU, for example a `-netdev socket` that joins nodes.
    pub qemu_arguments: Vec<String>,
}

impl NodeSpec {
    /// A node without any of the project's programs but the channel's own.
    #[must_use]
    pub fn bare(flavour: Flavour) -> Self {
        Self {
            flavour,
            memory_mib: 2048,
            cpus: 1,
            emulation: Emulation::Parallel,
            payload: Vec::new(),
            console: Console::Log,
            is_mended: true,
            has_aes: true,
            qemu_arguments: Vec::new(),
        }
    }

    /// Takes AES instructions away, for guests that load the drivers of what their CPU has: with them and without XSAVE the
    /// driver's tests of itself end in an invalid opcode, and whoever loads it waits for good.
    #[must_use]
    pub fn without_aes(mut self) -> Self {
        self.has_aes = false;
        self
    }

    /// Brings the file or tree `from` along as `/opt/payload/TO`.
    #[must_use]
    pub fn with(mut self, from: impl Into<PathBuf>, to: &str) -> Self {
        self.payload.push((from.into(), to.to_owned()));
        self
    }

    /// Brings files of this machine along as they are: `cp -a /opt/payload/system/. /` puts them where they are
    /// here.
    #[must_use]
    pub fn with_system_files(self, files: impl IntoIterator<Item = String>) -> Self {
        files.into_iter().fold(self, |spec, file| {
            let to = format!("system{file}");
            spec.with(file, &to)
        })
    }

    /// Brings the project's programs along. The agent comes with its server of addresses.
    ///
    /// # Errors
    /// When they were not built yet.
    pub fn with_programs(mut self, names: &[&str]) -> anyhow::Result<Self> {
        let lacks_server = names.contains(&"kvmlet") && !names.contains(&"kvmlet-dhcp");
        for name in names.iter().chain(lacks_server.then_some(&"kvmlet-dhcp")) {
            self.payload
                .push((artifacts::program(name)?, format!("bin/{name}")));
        }
        Ok(self)
    }
}
