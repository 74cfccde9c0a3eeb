//! The command line.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use crate::arguments::Arguments;
use crate::firmware::FirmwareFlags;
use crate::options::{CpusFlag, DiskFlag, EntryFlag, NetFlag, SizeFlag};
use crate::peripherals::Peripherals;
use crate::tuning::Tuning;

/// What `--help` prints first.
pub const HELP: &str = "\
A machine without an agent.

vmm-front run FLAGS      runs a machine; its serial console is on standard input and output
  --vmm PROGRAM          [default: /usr/local/bin/kvmlet-vmm]
  --socket SOCKET        the control socket: a path, or @NAME for one without a file [default: a new name]
  --kernel FILE          ELF or bzImage
  --initrd FILE
  --cmdline TEXT
  --entry PROTOCOL       pvh or linux64 [default: as suits the kernel]
  --memory-mapped-pci    Linux uses memory, not ports, for all of PCI's configuration space
  --cpus CPUS            COUNT, or SOCKETSxCORESxTHREADS; then ,model=NAME [default: 1]
  --memory SIZE          with a suffix K, M or G [default: 256M]
  --disk DISK            PATH, then any of: ,ro ,serial=S ,queues=N ,cache=none ,cache=writethrough ,io=threads
                         ,discard ,logical=BYTES ,physical=BYTES ,granularity=BYTES ,thread=NAME
                         ,base=IMAGE: PATH, a sparse file, has what the guest writes over this image
  --net CARD             TAP, then any of: ,mac=AA:BB:CC:DD:EE:FF ,mtu=N ,vhost
  --spare-ports          empty hot-plug slots, by the rule of agents
  --no-reboot            ends at a reset of the guest
  --restore FILE         goes on with this snapshot
boot by firmware:
  --firmware FILE        image of firmware that boots the machine
  --variables FILE       its variable store, which it writes to
  --boot-disk N          number of a disk to boot from, first choice first; disks count from 0
  --firmware-serial      it uses the serial console
  --firmware-log FILE    a new file for what it says to people who debug it
CPUs and memory:
  --max-sockets N        sockets that there may ever be
  --cpu-feature F        NAME=POLICY, one of force, require, optional, disable and forbid
  --hyperv H             any of KubeVirt's names after commas, as relaxed,vpindex,spinlocks=8191,vendorid=NAME
  --kvm K                any of: hidden ,clock=on ,clock=off ,spinlocks=on ,spinlocks=off ,eoi=on ,eoi=off
  --max-memory SIZE      what memory may grow to
  --hugepages SIZE       memory from a pool of the host: 2M or 1G
  --small-pages          the host is not advised to make huge pages
  --prefault             all memory is there before the guest starts
  --numa NODE            SIZE,vcpus=0-1:3, then any of: ,bind=NODES ,preferred=NODE ,interleave=NODES ,distances=10:20
  --pin WHO=CPUS         WHO is the number of a vCPU, emulator, or the name of a disk's thread
";

/// What it prints after the flags of [`peripherals`](crate::peripherals).
pub const ASK_HELP: &str = "
vmm-front ask SOCKET QUESTION    asks a VMM that runs
  status                 prints the machine's status
  timeline               prints when it came how far on its start, in nanoseconds after the process began
  balloon SIZE           asks the guest to do without this much memory
  balloon-stats          prints what the guest last said of its memory, and asks it anew
  port [NAME]            connects standard input and output to a port of the virtio console, until either ends
  pause, resume, reset, power-button, stop
  save FILE              writes a snapshot of the paused machine to a new file
";

#[derive(Debug)]
pub enum Command {
    Run(Box<Run>),
    Ask(Ask),
    Help,
}

/// A machine.
#[derive(Debug)]
pub struct Run {
    pub vmm: PathBuf,
    pub socket: Option<String>,
    pub kernel: Option<PathBuf>,
    pub firmware: FirmwareFlags,
    pub initrd: Option<PathBuf>,
    pub cmdline: String,
    pub entry: EntryFlag,
    pub memory_mapped_pci: bool,
    pub cpus: CpusFlag,
    pub memory: SizeFlag,
    pub tuning: Tuning,
    pub disk: Vec<DiskFlag>,
    pub net: Vec<NetFlag>,
    pub peripherals: Peripherals,
    pub spare_ports: bool,
    pub no_reboot: bool,
    pub restore: Option<PathBuf>,
}

/// A question.
#[derive(Debug)]
pub struct Ask {
    /// The VMM's control socket: a path or @NAME.
    pub socket: String,
    pub question: Question,
}

#[derive(Debug)]
pub enum Question {
    Status,
    Timeline,
    Balloon {
        target: SizeFlag,
    },
    BalloonStats,
    Port {
        /// Empty: the console.
        name: String,
    },
    Pause,
    Resume,
    Reset,
    PowerButton,
    Stop,
    Save {
        file: PathBuf,
    },
}

impl Command {
    /// What the arguments say.
    pub fn parse(mut arguments: Arguments) -> anyhow::Result<Self> {
        match arguments.word()?.as_deref() {
            Some("run") => Run::parse(&mut arguments),
            Some("ask") => Ok(Self::Ask(Ask::parse(&mut arguments)?)),
            Some("help") => Ok(Self::Help),
            _ => bail!("the first word is run, ask or help"),
        }
    }
}

impl Run {
    fn parse(arguments: &mut Arguments) -> anyhow::Result<Command> {
        let mut run = Self::default();
        while let Some(name) = arguments.flag()? {
            if name == "help" {
                return Ok(Command::Help);
            }
            let is_known = run.take(&name, arguments)?
                || run.firmware.take(&name, arguments)?
                || run.tuning.take(&name, arguments)?
                || run.peripherals.take(&name, arguments)?;
            ensure!(is_known, "--{name} is not known; see --help");
        }
        let boots_by_firmware = run.firmware.firmware.is_some();
        ensure!(
            run.kernel.is_some() != boots_by_firmware,
            "one of --kernel and --firmware says what boots"
        );
        ensure!(
            boots_by_firmware || run.firmware.is_empty(),
            "without --firmware there is none to configure"
        );
        Ok(Command::Run(Box::new(run)))
    }

    fn take(&mut self, name: &str, arguments: &mut Arguments) -> anyhow::Result<bool> {
        match name {
            "vmm" => self.vmm = arguments.value(name)?,
            "socket" => self.socket = Some(arguments.value(name)?),
            "kernel" => self.kernel = Some(arguments.value(name)?),
            "initrd" => self.initrd = Some(arguments.value(name)?),
            "cmdline" => self.cmdline = arguments.value(name)?,
            "entry" => self.entry = arguments.value(name)?,
            "memory-mapped-pci" => self.memory_mapped_pci = true,
            "cpus" => self.cpus = arguments.value(name)?,
            "memory" => self.memory = arguments.value(name)?,
            "disk" => self.disk.push(arguments.value(name)?),
            "net" => self.net.push(arguments.value(name)?),
            "spare-ports" => self.spare_ports = true,
            "no-reboot" => self.no_reboot = true,
            "restore" => self.restore = Some(arguments.value(name)?),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Default for Run {
    fn default() -> Self {
        Self {
            vmm: "/usr/local/bin/kvmlet-vmm".into(),
            socket: None,
            kernel: None,
            firmware: FirmwareFlags::default(),
            initrd: None,
            cmdline: String::new(),
            entry: EntryFlag::default(),
            memory_mapped_pci: false,
            cpus: CpusFlag::default(),
            memory: SizeFlag(256 << 20),
            tuning: Tuning::default(),
            disk: Vec::new(),
            net: Vec::new(),
            peripherals: Peripherals::default(),
            spare_ports: false,
            no_reboot: false,
            restore: None,
        }
    }
}

impl Ask {
    fn parse(arguments: &mut Arguments) -> anyhow::Result<Self> {
        let socket = arguments.word()?.context("whom to ask: a socket")?;
        let word = arguments.word()?.context("what to ask: see --help")?;
        let question = match word.as_str() {
            "status" => Question::Status,
            "timeline" => Question::Timeline,
            "balloon" => Question::Balloon {
                target: arguments.word()?.context("how much memory")?.parse()?,
            },
            "balloon-stats" => Question::BalloonStats,
            "port" => Question::Port {
                name: arguments.word()?.unwrap_or_default(),
            },
            "pause" => Question::Pause,
            "resume" => Question::Resume,
            "reset" => Question::Reset,
            "power-button" => Question::PowerButton,
            "stop" => Question::Stop,
            "save" => Question::Save {
                file: arguments.word()?.context("a new file")?.into(),
            },
            other => bail!("{other} is no question; see --help"),
        };
        match arguments.word()? {
            None => Ok(Self { socket, question }),
            Some(more) => bail!("{more} is one word too many"),
        }
    }
}
