//! A machine with `testguest` in it, as tests want it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use integration::testguest::{self, Results};
use vmm_devices::serial::{ConsoleOutput, SerialPort};
use vmm_machine::{
    BootSource, BuildError, Change, ClockConfig, CpuConfig, CpuTopology, DebugIoPorts,
    DeviceConfig, FixedDevices, GuestRam, KernelConfig, KernelEntry, LifeConfig, MachineConfig,
    MachineHandle, MachineState, MachineThread, MemoryConfig, Observer, PciAddress, Placement,
    RebootPolicy, Request, RequestError, Restore, SerialConfig, Snapshot, Status, load_ram,
    save_ram,
};
use vmm_sys::threads::Threads;
use vmm_sys_util::eventfd::EventFd;

pub(super) const RAM_BYTES: u64 = 16 << 20;
/// A run takes a fifth of a second; a crowded machine may need more.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Console(Mutex<Vec<u8>>);

impl Console {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("never poisoned")).into_owned()
    }
}

impl ConsoleOutput for Console {
    fn write(&self, bytes: &[u8]) {
        self.0.lock().expect("never poisoned").extend(bytes);
    }
}

pub(super) struct Watch(pub(super) Sender<Change>);

impl Observer for Watch {
    fn built(&mut self, result: Result<(), BuildError>) {
        result.expect("the machine is built");
    }

    fn answered(&mut self, _: u64, result: Result<(), RequestError>) {
        match result {
            // A guest may end before it is asked.
            Ok(()) | Err(RequestError::WrongState { .. }) => {}
            Err(error) => panic!("a request failed: {error:?}"),
        }
    }

    fn changed(&mut self, change: Change, _: &Status) {
        // The test may have ended.
        self.0.send(change).ok();
    }
}

pub(super) struct Machine {
    pub(super) handle: MachineHandle,
    pub(super) console: Arc<Console>,
    pub(super) changes: Receiver<Change>,
}

/// What a machine is made of.
pub(super) struct Plan<'a> {
    pub(super) command_line: &'a str,
    pub(super) entry: KernelEntry,
    pub(super) devices: Vec<(PciAddress, DeviceConfig)>,
    pub(super) io_threads: BTreeMap<PciAddress, String>,
    pub(super) reboot_policy: RebootPolicy,
    pub(super) life: LifeConfig,
    pub(super) fixed: FixedDevices,
}

/// A guest that ends when it resets itself, with all devices on bus 0.
pub(super) fn plan(command_line: &str, devices: Vec<DeviceConfig>) -> Plan<'_> {
    Plan {
        command_line,
        entry: KernelEntry::Default,
        devices: on_bus_0(devices),
        io_threads: BTreeMap::new(),
        reboot_policy: RebootPolicy::End,
        life: LifeConfig::default(),
        fixed: FixedDevices::default(),
    }
}

/// All devices on bus 0, in order.
pub(super) fn on_bus_0(devices: Vec<DeviceConfig>) -> Vec<(PciAddress, DeviceConfig)> {
    let place = |number| PciAddress::new(0, number).expect("a slot");
    (1..).map(place).zip(devices).collect()
}

impl Machine {
    /// With all devices on bus 0.
    pub(super) fn boot(command_line: &str, entry: KernelEntry, devices: Vec<DeviceConfig>) -> Self {
        Self::boot_with_threads(command_line, entry, devices, BTreeMap::new())
    }

    pub(super) fn boot_with_threads(
        command_line: &str,
        entry: KernelEntry,
        devices: Vec<DeviceConfig>,
        io_threads: BTreeMap<PciAddress, String>,
    ) -> Self {
        Self::boot_with(command_line, entry, on_bus_0(devices), io_threads)
    }

    pub(super) fn boot_with(
        command_line: &str,
        entry: KernelEntry,
        devices: Vec<(PciAddress, DeviceConfig)>,
        io_threads: BTreeMap<PciAddress, String>,
    ) -> Self {
        let plan = Plan {
            entry,
            devices,
            io_threads,
            ..plan(command_line, Vec::new())
        };
        let machine = Self::build(plan, Arc::default(), None);
        machine.handle.request(1, Request::Boot);
        machine
    }

    /// A machine that goes on where this one is, once it is resumed; none when the guest ended first.
    pub(super) fn moved(
        self,
        command_line: &str,
        devices: Vec<DeviceConfig>,
    ) -> Result<Self, Self> {
        self.moved_into(plan(command_line, devices))
    }

    pub(super) fn moved_into(self, plan: Plan<'_>) -> Result<Self, Self> {
        let Some((snapshot, file)) = self.snapshot() else {
            return Err(self);
        };
        self.stop();
        let restore = Restore {
            snapshot,
            fill_ram: Box::new(move |ram| load_ram(ram, &file, 0, None)),
        };
        let console = Arc::clone(&self.console);
        self.ended();
        let machine = Self::build(plan, console, Some(restore));
        machine.handle.request(1, Request::Resume);
        Ok(machine)
    }

    /// Pauses the machine and saves all of it, its RAM to a file; nothing when the guest ended first.
    pub(super) fn snapshot(&self) -> Option<(Snapshot, File)> {
        let (sender, saved) = channel();
        self.handle.request(2, Request::Pause);
        let saver = move |snapshot: &Snapshot, ram: &GuestRam| {
            let file = tempfile::tempfile()?;
            save_ram(ram, &file, 0)?;
            sender
                .send((snapshot.clone(), file))
                .map_err(std::io::Error::other)
        };
        self.handle.save(3, Box::new(saver));
        saved.recv_timeout(PATIENCE).ok()
    }

    /// Has the machine end.
    pub(super) fn stop(&self) {
        let reason = "by the test".to_owned();
        self.handle.request(4, Request::Stop { reason });
    }

    pub(super) fn build(plan: Plan<'_>, console: Arc<Console>, restore: Option<Restore>) -> Self {
        Self::start(Self::config(plan, &console), console, restore)
    }

    pub(super) fn start(
        config: MachineConfig,
        console: Arc<Console>,
        restore: Option<Restore>,
    ) -> Self {
        let (sender, changes) = channel();
        Self::watched(config, console, restore, (Box::new(Watch(sender)), changes))
    }

    /// As [`start`](Self::start), with another receiver of changes, and what that returns for each.
    pub(super) fn watched(
        config: MachineConfig,
        console: Arc<Console>,
        restore: Option<Restore>,
        (observer, changes): (Box<dyn Observer>, Receiver<Change>),
    ) -> Self {
        let thread = MachineThread::start(Threads::unconfined()).expect("a thread");
        let handle = thread
            .build(config, restore, observer)
            .expect("it waits for this");
        Self {
            handle,
            console,
            changes,
        }
    }

    pub(super) fn config(plan: Plan<'_>, console: &Arc<Console>) -> MachineConfig {
        let Plan {
            command_line,
            entry,
            devices,
            io_threads,
            reboot_policy,
            life,
            fixed,
        } = plan;
        let interrupt = Arc::new(EventFd::new(0).expect("an eventfd"));
        let output: Arc<dyn ConsoleOutput> = Arc::clone(console) as _;
        let port = SerialPort::new(Arc::clone(&interrupt), output).expect("a port");
        let dev_kvm = File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .expect("/dev/kvm");
        let elf = testguest::elf().expect("checked before");
        MachineConfig {
            dev_kvm: dev_kvm.into(),
            cpus: CpuConfig::passthrough(CpuTopology::new(1, 1, 1).expect("one CPU")),
            clock: ClockConfig::default(),
            memory: MemoryConfig::new(RAM_BYTES),
            numa_nodes: Vec::new(),
            placement: Placement::default(),
            boot: BootSource::Kernel(KernelConfig {
                kernel: File::open(elf).expect("the guest"),
                initrd: None,
                cmdline: command_line.as_bytes().to_vec(),
                entry,
                maps_pci: false,
            }),
            reboot_policy,
            serial: SerialConfig {
                port: Arc::new(Mutex::new(port)),
                interrupt,
            },
            devices,
            io_threads,
            debug: DebugIoPorts {
                timestamp: true,
                exit: false,
            },
            smbios: None,
            life,
            fixed,
        }
    }

    pub(super) fn wait_until_it_runs(&self) {
        let begins = [
            MachineState::Building,
            MachineState::Configured,
            MachineState::Paused,
        ];
        self.wait_until("running", |machine| {
            !begins.contains(&machine.handle.status().state)
        });
    }

    /// Waits until the console has `text`.
    pub(super) fn wait_for(&self, text: &str) {
        self.wait_until(text, |machine| machine.text().contains(text));
    }

    /// Looks at the machine again and again.
    pub(super) fn wait_until(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            let late = Instant::now() > deadline;
            assert!(!late, "not {what}; the console:\n{}", self.text());
            // For what the machine reports to nobody, such as text of the console.
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits for the end of the guest.
    pub(super) fn ended(self) -> (Status, Results) {
        loop {
            match self.changes.recv_timeout(PATIENCE) {
                Ok(Change::Ended) => break,
                Ok(_) => {}
                Err(error) => panic!("no end: {error}; the console:\n{}", self.text()),
            }
        }
        (self.handle.status(), Results::of_console(&self.text()))
    }

    pub(super) fn text(&self) -> String {
        self.console.text()
    }
}
