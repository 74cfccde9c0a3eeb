//! Guests that go on in another process.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::{VmmClient, VmmProcess};
use prost::Message;
use proto_vmm::payload;
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::tiny_guest::{
    disturb_config, halt, keep, kernel, power_off, print, print_config, print_kept,
    select_config_of, spin, wait_for_power_button,
};

/// Keeps a byte, prints "r", waits for the power button, prints the byte and powers off.
fn guest(kept: u8) -> ByHand {
    ByHand::new(kernel(&[
        keep(kept),
        print("r"),
        wait_for_power_button(),
        print_kept(),
        power_off(),
        halt(),
    ]))
}

pub fn save(client: &mut VmmClient, file: &File) -> v1::Response {
    let save = Kind::Save(v1::Save {});
    client.request(save, &[file.as_fd()]).expect("an answer")
}

/// Runs `by_hand` until it waits, and returns its snapshot.
fn snapshot_of(by_hand: &ByHand) -> File {
    let vmm = VmmProcess::start().expect("a VMM");
    let mut client = vmm.connect().expect("connected");
    by_hand.boot(&mut client);
    soon(|| by_hand.printed() == "r");
    let file = tempfile::tempfile().expect("a file");
    let early = save(&mut client, &file).error.expect("it runs");
    assert_eq!(early.code(), v1::ErrorCode::WrongState);
    client.must(Kind::Pause(v1::Pause {})).expect("paused");
    assert_eq!(save(&mut client, &file).error, None);
    file
}

#[test]
fn a_snapshot_takes_one_descriptor_and_no_more() {
    skip_if!(without_kvm());
    let by_hand = guest(b'A');
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    let file = tempfile::tempfile().unwrap();
    for descriptors in [vec![], vec![file.as_fd(), file.as_fd()]] {
        let answer = client.request(Kind::Save(v1::Save {}), &descriptors);
        let error = answer.unwrap().error.expect("a refusal");
        assert_eq!(error.code(), v1::ErrorCode::InvalidArgument);
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn nothing_that_a_file_held_before_shows_in_a_snapshot() {
    skip_if!(without_kvm());
    let by_hand = guest(b'A');
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot(&mut client);
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    let file = tempfile::tempfile().unwrap();
    // Within RAM that no guest of a few instructions touches.
    file.write_all_at(&[0xff; 4096], 8 << 20).unwrap();
    assert_eq!(save(&mut client, &file).error, None);
    let mut bytes = [0xff; 4096];
    file.read_exact_at(&mut bytes, 8 << 20).unwrap();
    assert_eq!(bytes, [0; 4096]);
}

/// Configures a VMM with `by_hand` and the snapshot in `file`.
pub fn restore(client: &mut VmmClient, by_hand: &ByHand, file: &File) -> v1::Response {
    restore_with(client, by_hand, &[], file)
}

/// The same, with `more` descriptors: the configuration calls the first of them 4.
pub fn restore_with(
    client: &mut VmmClient,
    by_hand: &ByHand,
    more: &[BorrowedFd<'_>],
    file: &File,
) -> v1::Response {
    let descriptors = [&by_hand.descriptors(), more, &[file.as_fd()]].concat();
    let configure = v1::Configure {
        machine: Some(by_hand.config.clone()),
        snapshot_fd: u32::try_from(descriptors.len() - 1).ok(),
    };
    client
        .request(Kind::Configure(configure), &descriptors)
        .expect("an answer")
}

#[test]
fn a_guest_goes_on_in_another_process_as_often_as_one_likes() {
    skip_if!(without_kvm());
    let file = snapshot_of(&guest(b'A'));
    for _ in 0..3 {
        // The kernel is for resets: had it been entered, it would print what it keeps.
        let by_hand = guest(b'B');
        let vmm = VmmProcess::start().unwrap();
        let mut client = vmm.connect().unwrap();
        let restored = restore(&mut client, &by_hand, &file);
        assert_eq!(restored.error, None);
        let state = restored.status.expect("a status").state();
        assert_eq!(state, v1::MachineState::Paused);
        client.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
        client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
        client.must(Kind::Resume(v1::Resume {})).unwrap();
        let exit = client.wait_for_exit().unwrap();
        assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
        assert_eq!(by_hand.printed(), "A");
    }
}

/// A guest with an entropy device at 00:01.0 that reads configuration space in several ways. It prints
/// "D" of 1af4:1044 and ")" of the host bridge 8086:29c0, and the last of these a while after "w".
fn reader_of_config() -> ByHand {
    let (bridge, device) = (|| select_config_of(0, 0), || select_config_of(1, 0));
    // More addresses than KVM keeps.
    let often = (0..250).flat_map(|_| bridge()).collect();
    let mut by_hand = ByHand::new(kernel(&[
        device(),
        print_config(2),
        bridge(),
        print_config(3),
        often,
        device(),
        disturb_config(),
        print_config(2),
        print("w"),
        bridge(),
        spin(1_500_000),
        print_config(3),
        wait_for_power_button(),
        power_off(),
        halt(),
    ]));
    by_hand.config.devices.push(v1::PciDevice {
        address: Some(v1::PciAddress {
            device: 1,
            ..v1::PciAddress::default()
        }),
        kind: Some(v1::pci_device::Kind::Rng(v1::VirtioRng {})),
        ..v1::PciDevice::default()
    });
    by_hand
}

#[test]
fn a_selected_register_of_pci_is_the_same_in_another_process() {
    skip_if!(without_kvm());
    let first = reader_of_config();
    let file = tempfile::tempfile().unwrap();
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    first.boot(&mut client);
    soon(|| first.printed().contains('w'));
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    assert_eq!(save(&mut client, &file).error, None);
    let second = reader_of_config();
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    assert_eq!(restore(&mut client, &second, &file).error, None);
    client.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    client.wait_for_exit().unwrap();
    assert_eq!(first.printed() + &second.printed(), "D)Dw)");
}

#[test]
fn a_restored_guest_that_is_reset_boots_its_kernel() {
    skip_if!(without_kvm());
    let file = snapshot_of(&guest(b'A'));
    let by_hand = guest(b'B');
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    assert_eq!(restore(&mut client, &by_hand, &file).error, None);
    client.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    client.must(Kind::Reset(v1::Reset {})).unwrap();
    soon(|| by_hand.printed() == "r");
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    client.wait_for_exit().unwrap();
    assert_eq!(by_hand.printed(), "rB");
}

#[test]
fn what_is_no_snapshot_of_the_machine_is_refused_and_the_vmm_can_still_be_configured() {
    skip_if!(without_kvm());
    let file = snapshot_of(&guest(b'A'));
    let length = file.metadata().unwrap().len();
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let mut refused = |by_hand: &ByHand, file: &File| {
        let error = restore(&mut client, by_hand, file).error.expect("refused");
        assert_eq!(error.code(), v1::ErrorCode::InvalidArgument, "{error:?}");
        assert_eq!(error.field, "snapshot_fd", "{error:?}");
        error.message
    };
    let mut larger = guest(b'A');
    larger.config.memory = Some(v1::Memory {
        size_bytes: 32 << 20,
        ..v1::Memory::default()
    });
    assert!(refused(&larger, &file).contains("bytes of RAM"));
    let by_hand = guest(b'A');
    refused(&by_hand, &tempfile::tempfile().unwrap());
    let copy = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        edit(&mut bytes);
        let copy = tempfile::tempfile().unwrap();
        copy.write_all_at(&bytes, 0).unwrap();
        copy
    };
    refused(&by_hand, &copy(&|bytes| bytes.truncate(bytes.len() - 1)));
    refused(&by_hand, &copy(&|bytes| bytes.truncate(40)));
    for at in [0, 9, 20, 31, 100] {
        refused(&by_hand, &copy(&|bytes| bytes[at] ^= 1));
    }
    assert_eq!(restore(&mut client, &by_hand, &file).error, None);
}

/// Where the guest keeps its byte.
const KEPT: u64 = 2 << 20;

fn head_of(file: &File) -> v1::Snapshot {
    let mut bytes = vec![0; 1 << 20];
    let read = file.read_at(&mut bytes, 0).expect("read");
    payload::decode_snapshot(&bytes[..read]).expect("a head")
}

fn put_head(file: &File, version: u32, head: &v1::Snapshot) {
    let kind = payload::PayloadKind::SNAPSHOT;
    let head = payload::encode(kind, version, &head.encode_to_vec());
    file.write_all_at(&head, 0).expect("written");
}

#[test]
fn memory_that_is_not_as_it_was_saved_is_refused_before_it_runs() {
    skip_if!(without_kvm());
    let file = snapshot_of(&guest(b'A'));
    let head = head_of(&file);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let by_hand = guest(b'A');
    // What the guest kept, and what it never touched.
    for place in [KEPT, 12 << 20] {
        let at = head.ram_offset + place;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        let error = restore(&mut client, &by_hand, &file)
            .error
            .expect("refused");
        assert_eq!(error.code(), v1::ErrorCode::InvalidArgument, "{error:?}");
        let chunk = format!("byte {place:#x} of RAM");
        assert!(error.message.contains(&chunk), "{error:?}");
        file.write_all_at(&byte, at).unwrap();
    }
    // Fewer checksums than chunks, and none.
    for count in [7, 0] {
        let mut fewer = head.clone();
        fewer.ram_checksums.truncate(count);
        put_head(&file, 2, &fewer);
        let error = restore(&mut client, &by_hand, &file)
            .error
            .expect("refused");
        assert!(error.message.contains("checksums"), "{error:?}");
    }
    put_head(&file, 2, &head);
    assert_eq!(restore(&mut client, &by_hand, &file).error, None);
}

#[test]
fn a_snapshot_of_before_checksums_still_goes_on() {
    skip_if!(without_kvm());
    let file = snapshot_of(&guest(b'A'));
    let before = v1::Snapshot {
        ram_chunk_bytes: 0,
        ram_checksums: Vec::new(),
        ..head_of(&file)
    };
    put_head(&file, 1, &before);
    let by_hand = guest(b'B');
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    assert_eq!(restore(&mut client, &by_hand, &file).error, None);
    client.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
    client.must(Kind::PowerButton(v1::PowerButton {})).unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    client.wait_for_exit().unwrap();
    assert_eq!(by_hand.printed(), "A");
}
