//! A balloon by requests, in a VMM with its filter of system calls.

use std::fs::File;
use std::time::{Duration, Instant};

use integration::skip::without_kvm;
use integration::vmm_client::{VmmClient, VmmProcess};
use integration::{skip_if, testguest};
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::{ByHand, soon};

const BALLOON_BYTES: u64 = 8 << 20;

fn balloon(device: u32, target_bytes: u64) -> v1::PciDevice {
    v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device,
            function: 0,
        }),
        kind: Some(v1::pci_device::Kind::Balloon(v1::VirtioBalloon {
            target_bytes,
            deflate_on_oom: true,
            free_page_reporting: true,
            stats_interval_ms: 0,
        })),
        ..v1::PciDevice::default()
    }
}

/// `testguest`, which is led through the test of its balloon.
fn guest(devices: Vec<v1::PciDevice>) -> ByHand {
    let elf = testguest::elf().expect("checked before");
    let mut by_hand = ByHand::new(File::open(elf).expect("the guest"));
    by_hand.config.devices = devices;
    if let Some(kernel) = &mut by_hand.config.kernel {
        kernel.cmdline = "tests=balloon then=poweroff".to_owned();
    }
    by_hand
}

fn ask(client: &mut VmmClient, kind: Kind) -> v1::Response {
    client.request(kind, &[]).expect("an answer")
}

fn set(client: &mut VmmClient, target_bytes: u64) -> v1::Response {
    ask(client, Kind::SetBalloon(v1::SetBalloon { target_bytes }))
}

fn stats(client: &mut VmmClient) -> v1::BalloonStats {
    let refresh = true;
    let wanted = Kind::GetBalloonStats(v1::GetBalloonStats { refresh });
    ask(client, wanted).balloon_stats.expect("a balloon")
}

fn wait_for_size(client: &mut VmmClient, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let response = ask(client, Kind::GetStatus(v1::GetStatus {}));
        let status = response.status.expect("a status");
        assert_eq!(status.balloon_target_bytes, Some(bytes));
        if status.balloon_actual_bytes == Some(bytes) {
            return;
        }
        assert!(Instant::now() < deadline, "{status:?}");
        // The VMM sends no event while a balloon changes, so its size is polled.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_guest_is_led_by_requests() {
    skip_if!(without_kvm().or_else(testguest::missing));
    let by_hand = guest(vec![balloon(1, 0)]);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    soon(|| by_hand.printed().contains("TESTGUEST filled"));
    // The guest answers each request for statistics with the number of its answers in `minor_faults`. An answer is
    // not waited for by the request, so it is polled.
    let is_answered = (0..10_000).any(|_| {
        // Each look asks the guest for new statistics.
        std::thread::sleep(Duration::from_millis(1));
        stats(&mut client).minor_faults >= Some(3)
    });
    assert!(is_answered, "{}", by_hand.printed());
    let reported = stats(&mut client);
    assert_eq!(reported.total_bytes, Some(BALLOON_BYTES));
    assert_eq!(reported.swap_in_bytes, None);
    assert!(reported.age_ms.is_some());
    assert_eq!(reported.released_bytes, 0);

    assert_eq!(set(&mut client, BALLOON_BYTES).error, None);
    wait_for_size(&mut client, BALLOON_BYTES);
    assert_eq!(stats(&mut client).released_bytes, BALLOON_BYTES);
    assert_eq!(set(&mut client, 0).error, None);
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
    let printed = by_hand.printed();
    assert!(printed.contains("TESTGUEST balloon ok"), "{printed}");
}

#[test]
fn what_cannot_be_is_refused_by_field() {
    skip_if!(without_kvm().or_else(testguest::missing));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let early = set(&mut client, 0).error.expect("no machine");
    assert_eq!(early.code(), v1::ErrorCode::WrongState);
    let cases = [
        (vec![balloon(1, 4097)], "devices[0].balloon.target_bytes"),
        (vec![balloon(1, 1 << 40)], "devices"),
        (vec![balloon(1, 0), balloon(2, 0)], "devices"),
    ];
    for (devices, field) in cases {
        let by_hand = guest(devices);
        let response = client
            .request(by_hand.request(), &by_hand.descriptors())
            .unwrap();
        let error = response.error.expect("a refusal");
        assert_eq!(error.field, field, "{error:?}");
    }

    let without = guest(vec![]);
    without.configure(&mut client);
    let none = set(&mut client, 0).error.expect("no balloon");
    assert_eq!(none.code(), v1::ErrorCode::InvalidArgument);
    let wanted = Kind::GetBalloonStats(v1::GetBalloonStats::default());
    let response = ask(&mut client, wanted);
    assert_eq!(response.balloon_stats, None);
    assert!(response.error.is_some());

    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    guest(vec![balloon(1, 4096)]).configure(&mut client);
    for bytes in [4097, 1 << 40] {
        let error = set(&mut client, bytes).error.expect("a refusal");
        assert_eq!(error.field, "target_bytes");
    }
    let status = ask(&mut client, Kind::GetStatus(v1::GetStatus {})).status;
    assert_eq!(status.expect("one").balloon_target_bytes, Some(4096));
}
