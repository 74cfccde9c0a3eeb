//! CPUs and clocks, on whatever KVM this is. What CPUID says is tested where it is decided, and where
//! KVM is one of hardware; this one adds bits of its own.

use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::{VmmClient, VmmProcess};
use proto_vmm::v1;

use crate::by_hand::ByHand;
use crate::tiny_guest::{exit_with_cmos, halt, kernel, power_off, print};

fn refusal(by_hand: &ByHand, client: &mut VmmClient) -> v1::Error {
    let response = client
        .request(by_hand.request(), &by_hand.descriptors())
        .expect("an answer");
    response.error.expect("a refusal")
}

fn cpus(by_hand: &mut ByHand) -> &mut v1::Cpus {
    by_hand.config.cpus.as_mut().expect("CPUs")
}

fn required(name: &str) -> v1::CpuFeature {
    v1::CpuFeature {
        name: name.to_owned(),
        policy: v1::CpuFeaturePolicy::Require.into(),
    }
}

#[test]
fn cpus_that_no_host_has_are_refused_by_field_and_others_may_follow() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[print("small"), power_off(), halt()]));
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    // One is of AMD's CPUs only, the other of Intel's.
    cpus(&mut by_hand).features = vec![required("fpu"), required("xop"), required("avx512er")];
    let error = refusal(&by_hand, &mut client);
    assert_eq!(error.code(), v1::ErrorCode::InvalidArgument);
    assert!(
        ["cpus.features[1].name", "cpus.features[2].name"].contains(&error.field.as_str()),
        "{error:?}"
    );
    assert!(error.message.contains("required"), "{error:?}");

    cpus(&mut by_hand).features.clear();
    cpus(&mut by_hand).model = "VAX".to_owned();
    assert_eq!(refusal(&by_hand, &mut client).field, "cpus.model");

    cpus(&mut by_hand).model = "host-model".to_owned();
    by_hand.boot(&mut client);
    client.wait_for_exit().unwrap();
    assert_eq!(by_hand.printed(), "small");
}

#[test]
fn a_guest_may_have_vcpus_whose_ids_only_an_x2apic_can_have() {
    skip_if!(without_kvm());
    let mut by_hand = ByHand::new(kernel(&[print("many"), power_off(), halt()]));
    cpus(&mut by_hand).count = 260;
    cpus(&mut by_hand).sockets = 260;
    cpus(&mut by_hand).max_sockets = 300;
    // Nothing to do with it, but this KVM has the knob.
    by_hand.config.clock = Some(v1::Clock {
        pit_discards_missed_ticks: true,
        ..v1::Clock::default()
    });
    let mut vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
    assert!(vmm.wait().unwrap().success());
    assert_eq!(by_hand.printed(), "many");
}

#[test]
fn the_clock_is_ahead_of_utc_as_configured_and_there_may_be_no_pit() {
    skip_if!(without_kvm());
    // Register 0x32 is the century, in BCD.
    let mut by_hand = ByHand::new(kernel(&[exit_with_cmos(0x32)]));
    by_hand.config.clock = Some(v1::Clock {
        // 99 years: the next century until 2100.
        rtc_offset_seconds: 99 * 365 * 86_400,
        no_pit: true,
        pit_discards_missed_ticks: false,
    });
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::DebugExit);
    assert_eq!(exit.detail, 0x21.to_string());
}
