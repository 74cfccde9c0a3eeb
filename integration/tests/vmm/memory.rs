//! Memory and placement of a VMM that has given up everything that it could.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use agent_plan::overhead;
use integration::huge_pages::HugePages;
use integration::skip::{self, without_kvm};
use integration::skip_if;
use integration::vmm_client::{VmmClient, VmmProcess};
use proto_vmm::v1::{self, request::Kind};
use vmm_devices::virtio::blk::BlkDevice;
use vmm_devices::virtio::{net, vsock};

use crate::by_hand::{ByHand, soon};
use crate::tiny_guest::{
    halt, keep, kernel, power_off, print, print_kept, reset, wait_for_power_button,
};

const MIB: u64 = 1 << 20;

/// Neither side may import the other, and each asserts its own.
#[test]
fn the_agent_counts_for_each_device_what_the_vmm_holds_it_to() {
    let counted = |bytes: usize| u64::try_from(bytes).unwrap();
    assert_eq!(overhead::DISK_BYTES, counted(BlkDevice::COUNTED_BYTES));
    assert_eq!(overhead::BITMAP_BYTES, BlkDevice::COUNTED_BITMAP_BYTES);
    assert_eq!(overhead::PAIR_BYTES, net::COUNTED_BYTES_OF_PAIR);
    assert_eq!(overhead::VSOCK_BYTES, counted(vsock::COUNTED_BYTES));
}

fn refusal(by_hand: &ByHand, client: &mut VmmClient) -> v1::Error {
    let response = client
        .request(by_hand.request(), &by_hand.descriptors())
        .expect("an answer");
    response.error.expect("a refusal")
}

fn memory(by_hand: &mut ByHand) -> &mut v1::Memory {
    by_hand.config.memory.as_mut().expect("memory")
}

fn host_cpus(cpus: &[u32]) -> v1::HostCpus {
    v1::HostCpus {
        cpus: cpus.to_vec(),
    }
}

/// Mappings of guest memory: the lines of `smaps` after each one's first.
fn ram_mappings(pid: u32) -> Vec<Vec<String>> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let mut mappings: Vec<(bool, Vec<String>)> = Vec::new();
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if first.contains('-') {
            mappings.push((line.contains("kvmlet-guest-ram"), Vec::new()));
        } else if let Some((_, lines)) = mappings.last_mut() {
            lines.push(line.to_owned());
        }
    }
    let of_ram = mappings.into_iter().filter(|(is_ram, _)| *is_ram);
    of_ram.map(|(_, lines)| lines).collect()
}

fn kib(lines: &[String], name: &str) -> u64 {
    let line = lines.iter().find(|line| line.starts_with(name));
    let text = line.and_then(|line| line.split_whitespace().nth(1));
    text.and_then(|text| text.parse().ok()).expect("a number")
}

/// Where each thread may run, by its name.
fn places(pid: u32) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    tasks
        .map(|task| {
            let status = task.expect("a thread").path().join("status");
            let status = fs::read_to_string(status).expect("its status");
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.expect("a field").trim().to_owned()
            };
            (field("Name:"), field("Cpus_allowed_list:"))
        })
        .collect()
}

fn allowed_here() -> Vec<u32> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).expect("a set");
    (0..1024u32)
        .filter(|cpu| set.is_set(*cpu as usize).unwrap_or(false))
        .collect()
}

#[test]
fn memory_and_threads_are_where_they_were_put() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[print("r"), halt()]));
    let (first, last) = {
        let allowed = allowed_here();
        (allowed[0], allowed[allowed.len() - 1])
    };
    let cpus = by_hand.config.cpus.as_mut().expect("CPUs");
    (cpus.count, cpus.sockets, cpus.max_sockets) = (2, 2, 4);
    cpus.vcpu_pins = vec![host_cpus(&[last]), host_cpus(&[])];
    cpus.emulator_pin = Some(host_cpus(&[first, 8191]));
    let node = |size_bytes, vcpus: &[u32], policy: v1::HostNumaPolicy| v1::NumaNode {
        size_bytes,
        vcpus: vcpus.to_vec(),
        distances: Vec::new(),
        host_policy: policy.into(),
        host_nodes: vec![0],
    };
    *memory(&mut by_hand) = v1::Memory {
        size_bytes: 48 * MIB,
        max_size_bytes: 4096 * MIB,
        prefault: true,
        numa_nodes: vec![
            node(32 * MIB, &[0, 2], v1::HostNumaPolicy::Bind),
            node(16 * MIB, &[1, 3], v1::HostNumaPolicy::Interleave),
        ],
        ..v1::Memory::default()
    };
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    soon(|| by_hand.printed() == "r");

    let mappings = ram_mappings(vmm.pid());
    let resident: u64 = mappings.iter().map(|lines| kib(lines, "Rss:")).sum();
    assert_eq!(resident, 48 * 1024);
    for lines in &mappings {
        let flags = lines.iter().find(|line| line.starts_with("VmFlags:"));
        assert!(flags.expect("flags").contains(" dd"), "left out of dumps");
    }
    let numa = fs::read_to_string(format!("/proc/{}/numa_maps", vmm.pid())).expect("numa_maps");
    let policies: Vec<&str> = numa
        .lines()
        .filter(|line| line.contains("kvmlet-guest-ram"))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect();
    assert_eq!(policies, ["bind:0", "interleave:0"]);

    let places = places(vmm.pid());
    println!("{places:?}");
    let free = places_of(&allowed_here());
    assert_eq!(places["vcpu0"], last.to_string());
    assert_eq!(places["vcpu1"], free);
    for thread in ["kvmlet-vmm", "machine", "devices"] {
        assert_eq!(places[thread], first.to_string(), "{thread}");
    }
}

/// As the kernel lists CPUs.
fn places_of(cpus: &[u32]) -> String {
    let set = vmm_sys::affinity::AffinityMask::new(cpus.iter().copied());
    set.expect("small numbers").to_string()
}

#[test]
fn what_the_host_does_not_have_is_refused_by_field_and_the_vmm_can_still_be_configured() {
    skip_if!(without_kvm());
    let new = || ByHand::new(kernel(&[print("r"), power_off(), halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let mut refused = |by_hand: &ByHand| {
        let error = refusal(by_hand, &mut client);
        assert_eq!(error.code(), v1::ErrorCode::InvalidArgument, "{error:?}");
        println!("{}: {}", error.field, error.message);
        error.field
    };

    let mut by_hand = new();
    let cpus = by_hand.config.cpus.as_mut().expect("CPUs");
    cpus.vcpu_pins = vec![host_cpus(&[8191])];
    assert_eq!(refused(&by_hand), "cpus.vcpu_pins[0]");
    let cpus = by_hand.config.cpus.as_mut().expect("CPUs");
    cpus.vcpu_pins.clear();
    cpus.emulator_pin = Some(host_cpus(&[8190, 8191]));
    assert_eq!(refused(&by_hand), "cpus.emulator_pin");

    let mut by_hand = new();
    memory(&mut by_hand).max_size_bytes = 1 << 53;
    assert_eq!(refused(&by_hand), "memory.max_size_bytes");
    memory(&mut by_hand).size_bytes = 1 << 53;
    assert_eq!(refused(&by_hand), "memory.size_bytes");

    let mut by_hand = new();
    memory(&mut by_hand).numa_nodes = vec![v1::NumaNode {
        size_bytes: 16 * MIB,
        vcpus: vec![0],
        distances: Vec::new(),
        host_policy: v1::HostNumaPolicy::Bind.into(),
        host_nodes: vec![0, 1023],
    }];
    assert_eq!(refused(&by_hand), "memory.numa_nodes[0].host_nodes");

    let by_hand = new();
    by_hand.boot(&mut client);
    client.wait_for_exit().unwrap();
    assert_eq!(by_hand.printed(), "r");
}

#[test]
fn a_pool_that_is_too_small_is_an_error_before_the_guest_runs() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[halt()]));
    // As much as no test machine has in huge pages.
    memory(&mut by_hand).size_bytes = 1 << 40;
    memory(&mut by_hand).hugepage_bytes = 1 << 30;
    let mut vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let error = refusal(&by_hand, &mut client);
    println!("{}", error.message);
    assert_eq!(error.code(), v1::ErrorCode::Host);
    assert!(error.message.contains("huge pages of 1073741824 bytes"));
    vmm.wait().unwrap();
    let record = by_hand.exit_record().unwrap();
    assert_eq!(record.reason(), v1::ExitReason::ConfigureFailed);
    assert!(record.detail.contains("huge pages of 1073741824 bytes"));
}

#[test]
fn a_stop_while_memory_is_allocated_stops_that_too() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[halt()]));
    // Seconds of work.
    memory(&mut by_hand).size_bytes = 6 << 30;
    memory(&mut by_hand).prefault = true;
    let mut vmm = VmmProcess::start().unwrap();
    let mut asker = vmm.connect().unwrap();
    let mut stopper = vmm.connect().unwrap();
    std::thread::scope(|scope| {
        let by_hand = &by_hand;
        let answer = scope.spawn(move || asker.request(by_hand.request(), &by_hand.descriptors()));
        let allocates = || {
            let mappings = ram_mappings(vmm.pid());
            mappings.iter().any(|lines| kib(lines, "Rss:") > 0)
        };
        soon(allocates);
        let reason = "not wanted".to_owned();
        stopper
            .must(Kind::Stop(v1::Stop { reason }))
            .expect("stopped");
        answer.join().expect("no panic").expect("an answer");
    });
    assert!(vmm.wait().unwrap().success());
    let record = by_hand.exit_record().unwrap();
    assert_eq!(record.reason(), v1::ExitReason::Stopped);
    assert_eq!(record.detail, "not wanted");
}

fn of_huge_pages(steps: &[Vec<u8>]) -> ByHand {
    let mut by_hand = ByHand::new(kernel(steps));
    memory(&mut by_hand).hugepage_bytes = 2 * MIB;
    by_hand
}

fn huge_guest(kept: u8) -> ByHand {
    of_huge_pages(&[
        keep(kept),
        print("r"),
        wait_for_power_button(),
        print_kept(),
        reset(),
        halt(),
    ])
}

#[test]
fn a_guest_of_huge_pages_has_them_from_the_start_and_is_reset_and_restored() {
    skip_if!(without_kvm());
    let pool = match HugePages::add(2048, 8) {
        Ok(pool) => pool,
        Err(reason) => return skip::report(&reason),
    };
    let free = pool.free();
    let by_hand = huge_guest(b'A');
    let mut vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.configure(&mut client);
    assert_eq!(pool.free(), free - 8, "taken before the guest runs");
    client.must(Kind::Boot(v1::Boot {})).unwrap();
    let mappings = ram_mappings(vmm.pid());
    let page_kib = mappings.iter().map(|lines| kib(lines, "KernelPageSize:"));
    assert_eq!(page_kib.collect::<Vec<_>>(), [2048]);
    soon(|| by_hand.printed() == "r");
    // The guest resets itself and starts over, with its pages.
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    soon(|| by_hand.printed() == "rAr");
    assert_eq!(pool.free(), free - 8);

    client.must(Kind::Pause(v1::Pause {})).unwrap();
    let file: File = tempfile::tempfile().unwrap();
    let save = Kind::Save(v1::Save {});
    let saved = client.request(save, &[file.as_fd()]).unwrap();
    assert_eq!(saved.error, None);
    let blocks = file.metadata().unwrap().blocks() * 512;
    assert!(
        blocks < 4 * MIB,
        "{blocks} bytes of a guest that uses a few pages"
    );
    let reason = "moved".to_owned();
    client.must(Kind::Stop(v1::Stop { reason })).unwrap();
    vmm.wait().unwrap();
    assert_eq!(pool.free(), free);

    let by_hand = huge_guest(b'B');
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let mut descriptors = by_hand.descriptors().to_vec();
    descriptors.push(file.as_fd());
    let configure = Kind::Configure(v1::Configure {
        machine: Some(by_hand.config.clone()),
        snapshot_fd: Some(4),
    });
    let restored = client.request(configure, &descriptors).unwrap();
    assert_eq!(restored.error, None);
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    soon(|| by_hand.printed() == "Ar");
}
