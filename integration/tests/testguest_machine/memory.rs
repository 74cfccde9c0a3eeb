//! Memory of several nodes, that may grow, of huge pages, allocated beforehand; threads in their
//! places.

use std::os::unix::fs::MetadataExt;

use integration::huge_pages::HugePages;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};
use vmm_machine::{AffinityMask, HostPlacement, HostPolicy, NumaNode, Pages};
use vmm_memory::{Layout, Window, create_ram_of, release};

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A machine with such memory, not yet started.
fn config(command_line: &str, memory: MemoryConfig, console: &Arc<Console>) -> MachineConfig {
    let (_, disk) = disk();
    let plan = plan(command_line, vec![disk, DeviceConfig::Rng]);
    MachineConfig {
        memory,
        ..Machine::config(plan, console)
    }
}

fn boot(config: MachineConfig, console: Arc<Console>) -> Machine {
    let machine = Machine::start(config, console, None);
    machine.handle.request(1, Request::Boot);
    machine
}

fn node(memory_bytes: u64, vcpus: &[u32], policy: HostPolicy) -> NumaNode {
    NumaNode {
        vcpus: vcpus.to_vec(),
        memory_bytes,
        distances: Vec::new(),
        host: Some(HostPlacement {
            policy,
            nodes: [0].into(),
        }),
    }
}

fn assert_all_passed(machine: Machine) {
    let (status, results) = machine.ended();
    assert_eq!(
        results.one("done"),
        "passed=5 failed=0 skipped=0",
        "{results:#?}"
    );
    assert_powered_off(&status, &results);
}

/// What the host has of a guest's memory.
struct Backing {
    inode: u64,
    /// Allocated in the memfd.
    allocated: u64,
    /// Guest-physical base and length of each region.
    regions: Vec<(u64, u64)>,
}

impl Machine {
    /// Pauses the guest and looks at its memory.
    fn backing(&self) -> Backing {
        let (sender, seen) = channel();
        self.handle.request(2, Request::Pause);
        let visit = move |_: &Snapshot, ram: &GuestRam| {
            let region = ram.iter().next().expect("RAM");
            let memfd = region.file_offset().expect("a memfd").file();
            let metadata = memfd.metadata()?;
            let backing = Backing {
                inode: metadata.ino(),
                allocated: metadata.blocks() * 512,
                regions: ram
                    .iter()
                    .map(|region| (region.start_addr().0, region.len()))
                    .collect(),
            };
            sender.send(backing).map_err(std::io::Error::other)
        };
        self.handle.save(3, Box::new(visit));
        seen.recv_timeout(PATIENCE).expect("a guest that is paused")
    }
}

impl Backing {
    /// Resident bytes of all mappings of this memory.
    fn resident(&self) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut is_ours = false;
        let mut kib = 0;
        for line in smaps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            if first.contains('-') {
                is_ours = words.nth(3) == Some(&self.inode.to_string());
            } else if is_ours && first == "Rss:" {
                let text = words.next().unwrap_or_default();
                kib += text.parse::<u64>().expect("a number");
            }
        }
        kib * 1024
    }
}

/// Where the threads of this process with such a name may run.
fn places(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let path = task.expect("a thread").path();
        // Threads of other tests come and go.
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(value.trim().to_owned())
        };
        (field("Name:")? == name).then(|| field("Cpus_allowed_list:"))?
    };
    tasks.filter_map(of).collect()
}

/// A thread takes its name and its place by itself, a moment after the guest runs.
fn expect_place(name: &str, cpu: &str) {
    let begun = std::time::Instant::now();
    while places(name) != [cpu] && begun.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    assert_eq!(places(name), [cpu], "{name}");
}

#[test]
fn two_nodes_across_the_hole_and_room_to_grow() {
    skip_if!(without_machine());
    let console = Arc::default();
    let memory = MemoryConfig {
        max_bytes: 5 * GIB,
        pages: Pages::Transparent,
        ..MemoryConfig::new(3 * GIB)
    };
    let mut config = config("tests=blk,rng", memory, &console);
    config.cpus = CpuConfig::passthrough(CpuTopology::new(1, 2, 1).expect("CPUs"));
    config.numa_nodes = vec![
        node(GIB, &[0], HostPolicy::Bind),
        node(2 * GIB, &[1], HostPolicy::Preferred),
    ];
    assert_all_passed(boot(config, console));
}

#[test]
fn memory_is_allocated_beforehand_when_asked_and_stays_through_a_reset() {
    skip_if!(without_machine());
    for prefault in [false, true] {
        let console = Arc::default();
        let bytes = 48 * MIB;
        let memory = MemoryConfig {
            prefault,
            ..MemoryConfig::new(bytes)
        };
        let mut config = config("tests=none then=idle", memory, &console);
        config.numa_nodes = vec![
            node(32 * MIB, &[], HostPolicy::Interleave),
            node(16 * MIB, &[0], HostPolicy::Bind),
        ];
        let machine = boot(config, console);
        let before = machine.backing();
        machine.handle.request(4, Request::Resume);
        machine.handle.request(5, Request::Reset);
        let after = machine.backing();
        for backing in [before, after] {
            let (resident, allocated) = (backing.resident(), backing.allocated);
            println!("prefault {prefault}: {resident} resident, {allocated} allocated");
            assert_eq!(backing.regions, [(0, bytes)]);
            assert_eq!(resident == bytes, prefault);
            assert_eq!(allocated == bytes, prefault);
        }
        let reason = "seen".to_owned();
        machine.handle.request(6, Request::Stop { reason });
        machine.ended();
    }
}

#[test]
fn huge_pages_work_and_their_memory_moves_to_another_machine() {
    skip_if!(without_machine());
    let pool = match HugePages::add(2048, 16) {
        Ok(pool) => pool,
        Err(reason) => return skip::report(&reason),
    };
    let free = pool.free();
    let console: Arc<Console> = Arc::default();
    let memory = MemoryConfig {
        pages: Pages::Huge2Mib,
        ..MemoryConfig::new(RAM_BYTES)
    };
    let (file, _) = disk();
    let with_disk = |mut config: MachineConfig| {
        let image = file.try_clone().expect("a descriptor").into();
        let disk = BlkConfig::default();
        let disk = DeviceConfig::Blk {
            image,
            config: disk,
        };
        config.devices = on_bus_0(vec![disk, DeviceConfig::Rng]);
        config
    };
    let command_line = "tests=blk,rng mode=poll blk_kib=1024";
    let first = with_disk(config(command_line, memory.clone(), &console));
    let machine = boot(first, Arc::clone(&console));
    machine.wait_until_it_runs();
    let (snapshot, image) = machine.snapshot().expect("a machine that runs");
    assert_eq!(pool.free(), free - RAM_BYTES / (2 * MIB));
    machine.stop();
    machine.ended();
    let allocated = image.metadata().expect("its size").blocks() * 512;
    println!("{allocated} bytes of {RAM_BYTES} are in the snapshot");
    assert!(allocated < RAM_BYTES / 2);

    let restore = Restore {
        snapshot,
        fill_ram: Box::new(move |ram| load_ram(ram, &image, 0, None)),
    };
    let second = with_disk(config(command_line, memory, &console));
    let machine = Machine::start(second, console, Some(restore));
    machine.handle.request(1, Request::Resume);
    let (status, results) = machine.ended();
    let done = "passed=5 failed=0 skipped=0";
    assert_eq!(results.one("done"), done, "{results:#?}");
    let end = status.end.map(|end| end.reason);
    assert_eq!(end, Some(EndReason::PoweredOff));
}

/// A page that a balloon gave back to the pool could be somebody else's when the guest touches it again, which then
/// is a SIGBUS of the VMM.
#[test]
fn pages_of_a_pool_stay_with_their_guest_whatever_its_balloon_takes() {
    let pool = match HugePages::add(2048, 2) {
        Ok(pool) => pool,
        Err(reason) => return skip::report(&reason),
    };
    let layout = Layout::new(4 * MIB, 40).expect("a layout");
    let ram = create_ram_of(&layout, Pages::Huge2Mib).expect("two pages");
    for place in [0, 2 * MIB] {
        ram.write_obj(!place, GuestAddress(place)).expect("RAM");
    }
    let free = pool.free();
    let all = Window {
        base: 0,
        bytes: 4 * MIB,
    };
    assert_eq!(release(&ram, all).expect("nothing to do"), 0);
    assert_eq!(pool.free(), free);
    for place in [0, 2 * MIB] {
        let kept: u64 = ram.read_obj(GuestAddress(place)).expect("RAM");
        assert_eq!(kept, !place);
    }
}

#[test]
fn threads_run_on_the_cpus_that_they_are_given() {
    skip_if!(without_machine());
    let allowed = vmm_sys::affinity::of_this_thread().expect("a set");
    let cpu = allowed.iter().last().expect("a CPU");
    if allowed.count() < 2 {
        return skip::report("threads cannot be distinguished on one CPU");
    }
    let one = || AffinityMask::new([cpu]).expect("a CPU");
    let console = Arc::default();
    let mut config = config(
        "tests=blk,rng then=idle",
        MemoryConfig::new(RAM_BYTES),
        &console,
    );
    let topology = CpuTopology::new(1, 3, 1).expect("CPUs");
    config.cpus = CpuConfig::passthrough(topology);
    let disk = PciAddress::new(0, 1).expect("a slot");
    // A name that no other test's thread has.
    config.io_threads = BTreeMap::from([(disk, "placed".to_owned())]);
    config.placement = Placement {
        vcpus: BTreeMap::from([(2, one())]),
        emulator: None,
        io_threads: BTreeMap::from([("placed".to_owned(), one())]),
    };
    let machine = boot(config, console);
    machine.wait_until_it_runs();
    // No other test has so many vCPUs.
    for name in ["io-placed", "vcpu2"] {
        expect_place(name, &cpu.to_string());
    }
    machine.stop();
    machine.ended();
}
