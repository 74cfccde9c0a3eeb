//! From start to exit record.

use std::time::{Duration, Instant};

use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::{VmmClient, VmmProcess};
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::tiny_guest::{
    debug_exit, halt, kernel, power_off, print, reset, timestamp, triple_fault,
    wait_for_power_button,
};

fn status(client: &mut VmmClient) -> v1::MachineStatus {
    let response = client.must(Kind::GetStatus(v1::GetStatus {}));
    response.expect("an answer").status.expect("a status")
}

fn error_code(client: &mut VmmClient, kind: Kind) -> v1::ErrorCode {
    let response = client.request(kind, &[]).expect("an answer");
    response.error.expect("a refusal").code()
}

#[test]
fn a_vmm_waits_for_agents_that_come_and_go_and_leaves_an_exit_record() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[timestamp(), print("hello"), power_off(), halt()]));
    let mut vmm = VmmProcess::start().unwrap();

    let first = vmm.connect().unwrap();
    let hello = first.hello().clone();
    assert_eq!(
        hello.status.unwrap().state(),
        v1::MachineState::Unconfigured
    );
    let identity = hello.identity.unwrap();
    assert_eq!(identity.pid, vmm.pid());
    assert_ne!(identity.start_time_ticks, 0);
    assert_eq!(identity.vmi_uid, "");
    drop(first);

    let mut second = vmm.connect().unwrap();
    by_hand.configure(&mut second);
    drop(second);

    let mut third = vmm.connect().unwrap();
    let hello = third.hello().clone();
    assert_eq!(hello.status.unwrap().state(), v1::MachineState::Configured);
    let identity = hello.identity.unwrap();
    assert_eq!(
        (identity.vmi_uid.as_str(), identity.incarnation),
        ("0000-1111", 7)
    );
    third.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
    third.must(Kind::Boot(v1::Boot {})).unwrap();
    let exit = third.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);

    assert!(vmm.wait().unwrap().success());
    assert_eq!(by_hand.exit_record().unwrap(), exit);
    assert_eq!(exit.boot_id, identity.boot_id);
    assert!(exit.uptime_ns > 0);
    assert_eq!(by_hand.printed(), "hello");
}

#[test]
fn the_same_configuration_again_is_success_and_another_is_refused() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.configure(&mut client);
    by_hand.configure(&mut client);
    by_hand.config.incarnation = 8;
    let response = client
        .request(by_hand.request(), &by_hand.descriptors())
        .unwrap();
    assert_eq!(
        response.error.unwrap().code(),
        v1::ErrorCode::AlreadyConfigured
    );
}

#[test]
fn a_wrong_configuration_names_the_field_and_leaves_the_vmm_as_it_was() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[halt()]));
    by_hand.config.memory = Some(v1::Memory {
        size_bytes: 1,
        ..v1::Memory::default()
    });
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let response = client
        .request(by_hand.request(), &by_hand.descriptors())
        .unwrap();
    let error = response.error.unwrap();
    assert_eq!(error.code(), v1::ErrorCode::InvalidArgument);
    assert_eq!(error.field, "memory.size_bytes");
    by_hand.config.memory = Some(v1::Memory {
        size_bytes: 16 << 20,
        ..v1::Memory::default()
    });

    // A kernel that is none is found out while the machine is built.
    let nonsense = ByHand::new(tempfile::tempfile().unwrap());
    let response = client
        .request(nonsense.request(), &nonsense.descriptors())
        .unwrap();
    assert_eq!(response.error.unwrap().field, "kernel");
    by_hand.configure(&mut client);
}

#[test]
fn requests_that_do_not_fit_the_state_are_refused() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let boot = || Kind::Boot(v1::Boot {});
    assert_eq!(error_code(&mut client, boot()), v1::ErrorCode::WrongState);
    by_hand.configure(&mut client);
    let pause = Kind::Pause(v1::Pause {});
    assert_eq!(error_code(&mut client, pause), v1::ErrorCode::WrongState);
    client.must(boot()).unwrap();
    client.must(boot()).unwrap();
}

#[test]
fn a_paused_guest_stands_still_and_goes_on() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[wait_for_power_button(), power_off(), halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    for _ in 0..20 {
        client.must(Kind::Pause(v1::Pause {})).unwrap();
        assert_eq!(status(&mut client).state(), v1::MachineState::Paused);
        client.must(Kind::Resume(v1::Resume {})).unwrap();
    }
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    // Nothing is to happen: a guest that ran in spite of the pause would take the button and end in this time.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(status(&mut client).state(), v1::MachineState::Paused);
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
}

#[test]
fn a_power_off_is_a_reboot_once_where_one_was_asked_for() {
    skip_if!(without_kvm());
    let guest = [print("r"), wait_for_power_button(), power_off(), halt()];
    let begin = || {
        let by_hand = ByHand::new(kernel(&guest));
        let vmm = VmmProcess::start().unwrap();
        let mut client = vmm.connect().unwrap();
        by_hand.boot(&mut client);
        (by_hand, vmm, client)
    };
    let reboot = Kind::SoftReboot(v1::SoftReboot {});
    let press = Kind::PowerButton(v1::PowerButton {});
    let (by_hand, _vmm, mut client) = begin();
    for resets in 1..=2 {
        client.must(reboot.clone()).unwrap();
        while client.next_event().unwrap().kind() != v1::EventKind::Reset {}
        let status = status(&mut client);
        assert_eq!(status.resets, resets);
        assert_eq!(status.last_reset(), v1::ResetCause::SoftReboot);
    }
    soon(|| by_hand.printed() == "rrr");
    client.must(press.clone()).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);

    // Whoever asks it to end after that means it.
    let (_by_hand, _vmm, mut client) = begin();
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    client.must(reboot).unwrap();
    client.must(press).unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
}

#[test]
fn a_reset_starts_the_guest_over_and_is_counted() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[
        print("r"),
        wait_for_power_button(),
        reset(),
        halt(),
    ]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    for _ in 0..2 {
        client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
        while client.next_event().unwrap().kind() != v1::EventKind::Reset {}
    }
    soon(|| by_hand.printed() == "rrr");
    client.must(Kind::Reset(v1::Reset {})).unwrap();
    assert_eq!(status(&mut client).resets, 3);
    soon(|| by_hand.printed() == "rrrr");
    let stop = Kind::Stop(v1::Stop {
        reason: "GracePeriodOver".to_owned(),
    });
    client.must(stop).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::Stopped);
    assert_eq!((exit.detail.as_str(), exit.resets), ("GracePeriodOver", 3));
}

#[test]
fn a_reset_ends_the_guest_when_the_configuration_says_so() {
    skip_if!(without_kvm());
    for (steps, reason) in [
        (reset(), v1::ExitReason::GuestReset),
        (triple_fault(), v1::ExitReason::TripleFault),
        (debug_exit(42), v1::ExitReason::DebugExit),
    ] {
        let mut by_hand = ByHand::new(kernel(&[steps, halt()]));
        by_hand.config.reboot_policy = v1::RebootPolicy::Terminate.into();
        let vmm = VmmProcess::start().unwrap();
        let mut client = vmm.connect().unwrap();
        by_hand.boot(&mut client);
        assert_eq!(client.wait_for_exit().unwrap().reason(), reason);
    }
}

#[test]
fn a_guest_that_only_faults_is_slowed_down_and_then_given_up() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[triple_fault()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let begin = Instant::now();
    by_hand.boot(&mut client);
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::TripleFault);
    assert_eq!(exit.resets, 9);
    // 100, 200, 400 and 800 ms before the sixth to ninth new start. A slow machine may take longer.
    assert!(begin.elapsed() >= Duration::from_millis(1500));
}

#[test]
fn sigterm_ends_the_guest_with_a_record_of_the_signal() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[halt()]));
    let mut vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(vmm.pid()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(vmm.wait().unwrap().success());
    let exit = by_hand.exit_record().unwrap();
    assert_eq!((exit.reason(), exit.signal), (v1::ExitReason::Stopped, 15));
}

#[test]
fn an_idle_guest_costs_no_cpu_and_little_memory() {
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[print("idle"), halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    soon(|| by_hand.printed().contains("idle"));
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", vmm.pid())).unwrap();
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse().unwrap())
            .collect();
        fields.iter().sum::<u64>()
    };
    let before = ticks();
    // The interval of the measurement.
    std::thread::sleep(Duration::from_secs(1));
    assert!(ticks() - before <= 1, "an idle VMM used the CPU");
    let kib = resident_kib_but_guest_ram(vmm.pid());
    println!("kvmlet-vmm keeps {kib} KiB beyond guest RAM");
    assert!(kib <= 5 * 1024, "{kib} KiB");
}

fn resident_kib_but_guest_ram(pid: u32) -> u64 {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("smaps");
    let mut is_ram = false;
    let mut total = 0;
    for line in smaps.lines() {
        if line
            .split_whitespace()
            .next()
            .is_some_and(|word| word.contains('-'))
        {
            is_ram = line.contains("kvmlet-guest-ram");
        } else if let (false, Some(rest)) = (is_ram, line.strip_prefix("Rss:")) {
            let kib: u64 = rest
                .trim()
                .trim_end_matches(" kB")
                .parse()
                .expect("a number");
            total += kib;
        }
    }
    total
}
