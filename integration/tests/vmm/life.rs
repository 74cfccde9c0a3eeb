//! Why guests end, as exit records and events tell it.

use std::sync::atomic::{AtomicBool, Ordering};

use integration::host;
use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::{VmmClient, VmmProcess};
use proto_vmm::v1::{self, pci_device, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::tiny_guest::{
    breakpoint, compare_16_bytes, halt, kernel, power_off, print, reset, restore_extended_state,
    start_watchdog, wait_for_power_button, write_hyperv_crash_register, write_panic_port,
};

fn status(client: &mut VmmClient) -> v1::MachineStatus {
    let response = client.must(Kind::GetStatus(v1::GetStatus {}));
    response.expect("an answer").status.expect("a status")
}

fn event(client: &mut VmmClient, kind: v1::EventKind) -> v1::MachineStatus {
    loop {
        let event = client.next_event().expect("an event");
        if event.kind() == kind {
            return event.status.expect("a status");
        }
        assert_ne!(event.kind(), v1::EventKind::Exited, "{event:?}");
    }
}

/// Runs `by_hand` to its end.
fn end_of(by_hand: &ByHand) -> v1::ExitRecord {
    let mut vmm = VmmProcess::start().expect("a VMM");
    let mut client = vmm.connect().expect("connected");
    by_hand.boot(&mut client);
    let exit = client.wait_for_exit().expect("an end");
    assert!(vmm.wait().expect("it ends").success());
    assert_eq!(by_hand.exit_record().expect("a record"), exit);
    exit
}

fn with_panic_port(steps: &[Vec<u8>]) -> ByHand {
    let mut by_hand = ByHand::new(kernel(steps));
    by_hand.config.isa_pvpanic = true;
    by_hand
}

fn with_watchdog(steps: &[Vec<u8>], action: v1::WatchdogAction) -> ByHand {
    let mut by_hand = ByHand::new(kernel(steps));
    let watchdog = v1::I6300Esb {
        action: action.into(),
    };
    by_hand.config.devices = vec![v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device: 1,
            function: 0,
        }),
        kind: Some(pci_device::Kind::I6300esb(watchdog)),
        ..v1::PciDevice::default()
    }];
    by_hand
}

#[test]
fn a_panic_that_is_reported_ends_the_guest() {
    skip_if!(without_kvm());
    let exit = end_of(&with_panic_port(&[write_panic_port(1), print("x"), halt()]));
    assert_eq!(exit.reason(), v1::ExitReason::GuestPanicked);
    assert_eq!(exit.detail, "reported by the panic device");
}

#[test]
fn a_panic_pauses_or_resets_the_guest_if_so_configured() {
    skip_if!(without_kvm());
    let mut by_hand = with_panic_port(&[print("p"), write_panic_port(1), power_off(), halt()]);
    by_hand.config.on_panic = v1::PanicPolicy::Pause.into();
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let paused = event(&mut client, v1::EventKind::Paused);
    assert_eq!(paused.pause_reason(), v1::PauseReason::Panicked);
    assert_eq!(paused.panics, 1);
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);

    by_hand = with_panic_port(&[print("p"), write_panic_port(1), halt()]);
    by_hand.config.on_panic = v1::PanicPolicy::Restart.into();
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let panicked = event(&mut client, v1::EventKind::Panicked);
    // However often it has panicked since.
    assert_eq!((panicked.panics, panicked.resets), (1, 0));
    let again = event(&mut client, v1::EventKind::Reset);
    assert_eq!(again.last_reset(), v1::ResetCause::Panic);
    soon(|| by_hand.printed().starts_with("pp"));
}

fn with_hyperv_crash() -> ByHand {
    let mut by_hand = ByHand::new(kernel(&[write_hyperv_crash_register(), halt()]));
    if let Some(cpus) = &mut by_hand.config.cpus {
        cpus.hyperv = Some(v1::Hyperv {
            crash: true,
            ..v1::Hyperv::default()
        });
    }
    by_hand
}

/// Why this host has no crash registers of Hyper-V.
fn without_hyperv_crash() -> Option<String> {
    let by_hand = with_hyperv_crash();
    let vmm = VmmProcess::start().expect("a VMM");
    let mut client = vmm.connect().expect("connected");
    let response = client
        .request(by_hand.request(), &by_hand.descriptors())
        .expect("an answer");
    let error = response.error?;
    assert_eq!(error.field, "cpus.hyperv.crash", "{error:?}");
    Some(error.message)
}

#[test]
fn a_crash_reported_by_hyperv_is_a_panic() {
    skip_if!(without_kvm().or_else(without_hyperv_crash));
    let by_hand = with_hyperv_crash();
    let exit = end_of(&by_hand);
    assert_eq!(exit.reason(), v1::ExitReason::GuestPanicked);
    assert_eq!(exit.detail, "reported by Hyper-V's crash registers");
}

#[test]
fn a_watchdog_that_runs_out_is_an_exit_reason_or_a_reset_with_its_cause() {
    skip_if!(without_kvm());
    let poweroff = v1::WatchdogAction::Poweroff;
    let exit = end_of(&with_watchdog(&[start_watchdog(), halt()], poweroff));
    assert_eq!(exit.reason(), v1::ExitReason::Watchdog);
    assert_eq!(exit.resets, 0);

    let steps = [print("w"), start_watchdog(), halt()];
    let by_hand = with_watchdog(&steps, v1::WatchdogAction::Unspecified);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let expired = event(&mut client, v1::EventKind::WatchdogExpired);
    assert_eq!((expired.watchdog_expirations, expired.resets), (1, 0));
    let again = event(&mut client, v1::EventKind::Reset);
    assert_eq!(again.last_reset(), v1::ResetCause::Watchdog);
    assert_eq!(again.resets, 1);
    soon(|| by_hand.printed() == "ww");
}

#[test]
fn the_status_says_how_the_guest_came_to_start_over() {
    skip_if!(without_kvm());
    let steps = [print("r"), wait_for_power_button(), reset(), halt()];
    let by_hand = ByHand::new(kernel(&steps));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let last = |client: &mut VmmClient| status(client).last_reset();
    assert_eq!(last(&mut client), v1::ResetCause::Unspecified);
    client.must(Kind::Reset(v1::Reset {})).unwrap();
    assert_eq!(last(&mut client), v1::ResetCause::Requested);
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    event(&mut client, v1::EventKind::Reset);
    let own = event(&mut client, v1::EventKind::Reset);
    assert_eq!(own.last_reset(), v1::ResetCause::ResetRegister);
}

/// Subscribes, and gives the counts of resets: of the picture that the subscription begins with, and of the events of
/// resets that follow it.
fn resets_of_events(vmm: &VmmProcess) -> anyhow::Result<Vec<u64>> {
    const EVENTS: usize = 4;
    let mut client = vmm.connect()?;
    client.must(Kind::Subscribe(v1::Subscribe {}))?;
    let mut resets = Vec::new();
    while resets.len() < EVENTS {
        let event = client.next_event()?;
        if let v1::EventKind::Current | v1::EventKind::Reset = event.kind() {
            resets.push(event.status.unwrap_or_default().resets);
        }
    }
    Ok(resets)
}

#[test]
fn each_event_has_the_status_of_its_moment_and_none_is_older_than_the_first_picture() {
    const SUBSCRIPTIONS: usize = 200;
    skip_if!(without_kvm());
    let by_hand = ByHand::new(kernel(&[halt()]));
    let vmm = VmmProcess::start().unwrap();
    by_hand.boot(&mut vmm.connect().unwrap());
    // So many that the next reset is under way when the VMM gets to telling of one.
    let mut resetters = [0; 3].map(|_| vmm.connect().unwrap());
    let is_over = AtomicBool::new(false);
    let seen: Vec<_> = std::thread::scope(|scope| {
        for client in &mut resetters {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.must(Kind::Reset(v1::Reset {})).unwrap();
                }
            });
        }
        let seen = (0..SUBSCRIPTIONS).map(|_| resets_of_events(&vmm)).collect();
        is_over.store(true, Ordering::Relaxed);
        seen
    });
    for resets in seen {
        let resets = resets.unwrap();
        let (first, events) = resets.split_first().unwrap();
        assert!((*first..=first + 1).contains(&events[0]), "{resets:?}");
        let follows = |pair: &[u64]| pair[1] == pair[0] + 1;
        assert!(events.windows(2).all(follows), "{resets:?}");
    }
}

#[test]
fn an_instruction_that_kvm_cannot_carry_out_is_a_kvm_error() {
    let without_limits = || {
        let why = "KVM on this machine carries out every instruction";
        host::without_stock_kernels()
            .is_none()
            .then(|| why.to_owned())
    };
    skip_if!(without_kvm().or_else(without_limits));
    let mut reasons = Vec::new();
    for step in [compare_16_bytes(), breakpoint(), restore_extended_state()] {
        let mut by_hand = ByHand::new(kernel(&[step, print("on"), power_off(), halt()]));
        by_hand.config.reboot_policy = v1::RebootPolicy::Terminate.into();
        let exit = end_of(&by_hand);
        reasons.push((exit.reason(), exit.detail));
    }
    println!("{reasons:?}");
    let kvm_errors: Vec<_> = reasons
        .iter()
        .filter(|(reason, _)| *reason == v1::ExitReason::KvmError)
        .collect();
    assert!(!kvm_errors.is_empty(), "{reasons:?}");
    for (_, detail) in kvm_errors {
        assert!(detail.contains("InternalError"), "{detail}");
        assert!(detail.contains(" at rip 0x10"), "{detail}");
    }
}
