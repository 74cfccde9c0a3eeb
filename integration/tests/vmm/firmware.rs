//! Firmware of a few instructions, which begins where processors begin: what it finds, what it shadows,
//! and what a reset brings back.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use integration::firmware_code::{
    at_segment, first_time, image, out8, print, print_at, program, put, reach_all, restart,
    variables_at,
};
use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::VmmProcess;
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::snapshot::{restore, save};

/// The host bridge's registers for segments from 0xC0000 and 0xE0000 on.
const PAM1: u8 = 0x91;
const PAM5: u8 = 0x95;

/// `mov dx, port; in al, dx`, then prints it.
fn print_port(port: u16) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    let mut code = vec![0xba, low, high, 0xec];
    code.extend([0xba, 0xf8, 0x03, 0xee]);
    code
}

/// `mov dx, 0xcf8; mov eax, address; out dx, eax; mov dx, 0xcfc + offset; mov al, value; out dx, al`.
fn configure(offset: u8, value: u8) -> Vec<u8> {
    let mut code = vec![0xba, 0xf8, 0x0c, 0x66, 0xb8];
    code.extend((0x8000_0000 | u32::from(offset & !3)).to_le_bytes());
    code.extend([0x66, 0xef]);
    code.extend(out8(0xcfc + u16::from(offset & 3), value));
    code
}

/// Prints the first byte of a segment: `mov al, [0]`.
fn print_first(segment: u16) -> Vec<u8> {
    let mut code = at_segment(segment);
    code.extend([0xa0, 0, 0, 0xba, 0xf8, 0x03, 0xee]);
    code
}

/// `mov byte [0], value`.
fn put_first(segment: u16, value: u8) -> Vec<u8> {
    let mut code = at_segment(segment);
    code.extend([0xc6, 0x06, 0, 0, value]);
    code
}

/// `mov al, [0]; cmp al, 0xff; jne +len`: what follows is for a segment where nothing is.
fn if_nothing(segment: u16, then: &[u8]) -> Vec<u8> {
    let mut code = at_segment(segment);
    let length = u8::try_from(then.len()).expect("a short jump");
    code.extend([0xa0, 0, 0, 0x3c, 0xff, 0x75, length]);
    code.extend(then);
    code
}

pub fn by_firmware(code: &[u8], change: impl FnOnce(&mut v1::FirmwareBoot)) -> ByHand {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&image(code)).expect("written");
    let mut by_hand = ByHand::new(file);
    by_hand.config.kernel = None;
    let mut firmware = v1::FirmwareBoot {
        code_fd: 1,
        ..v1::FirmwareBoot::default()
    };
    change(&mut firmware);
    by_hand.config.firmware = Some(firmware);
    by_hand
}

/// Runs it to its end; what it printed.
fn run(by_hand: &ByHand) -> String {
    let vmm = VmmProcess::start().expect("a VMM");
    let mut client = vmm.connect().expect("a connection");
    by_hand.boot(&mut client);
    let exit = client.wait_for_exit().expect("its end");
    assert_eq!(exit.reason(), v1::ExitReason::DebugExit, "{}", exit.detail);
    by_hand.printed()
}

/// As [`run`], with one more descriptor, number 4.
fn run_with(by_hand: &ByHand, file: &File) -> String {
    let vmm = VmmProcess::start().expect("a VMM");
    let mut client = vmm.connect().expect("a connection");
    by_hand.boot_with(&mut client, &[file.as_fd()]);
    let exit = client.wait_for_exit().expect("its end");
    assert_eq!(exit.reason(), v1::ExitReason::DebugExit, "{}", exit.detail);
    by_hand.printed()
}

#[test]
fn a_variable_that_firmware_sets_is_in_its_store_and_outlives_a_reset() {
    skip_if!(without_kvm());
    let flash = variables_at(8192);
    let code = [
        reach_all(),
        print_at(flash + 4096),
        program(flash + 4096, b'n'),
        print_at(flash + 4096),
        // Erases the first block.
        put(flash, 0x20),
        put(flash, 0xd0),
        put(flash, 0xff),
        print_at(flash + 4096),
        // The image is no flash memory.
        put(0xfffe_0000, b'x'),
        print_at(0xfffe_0000),
        first_time(&restart()),
        out8(0xd04, 0),
        vec![0xf4],
    ]
    .concat();
    let by_hand = by_firmware(&code, |firmware| firmware.variables_fd = Some(4));
    let store = tempfile::tempfile().unwrap();
    store.write_all_at(&[b'v'; 8192], 0).unwrap();
    assert_eq!(run_with(&by_hand, &store), "vnnEnnnE");
    let mut content = [0; 8192];
    store.read_exact_at(&mut content, 0).unwrap();
    let mut wanted = [0xff; 8192];
    wanted[4096..].fill(b'v');
    wanted[4096] = b'n';
    assert!(content == wanted, "the store has something else");
}

#[test]
fn firmware_shadows_itself_and_a_reset_brings_the_image_back() {
    skip_if!(without_kvm());
    let code = [
        print("["),
        // The image: writes are lost.
        put_first(0xe000, b'x'),
        print_first(0xe000),
        // Only writes go to RAM, which is not seen until reads do.
        configure(PAM5, 0x02),
        put_first(0xe000, b'r'),
        print_first(0xe000),
        configure(PAM5, 0x01),
        put_first(0xe000, b'x'),
        print_first(0xe000),
        configure(PAM5, 0x03),
        put_first(0xe000, b'w'),
        print_first(0xe000),
        configure(PAM5, 0x00),
        print_first(0xe000),
        // Where there is no image there is nothing, then RAM.
        if_nothing(0xc000, &print("-")),
        configure(PAM1, 0x33),
        put_first(0xc000, b'c'),
        print_first(0xc000),
        print("]"),
        first_time(&restart()),
        out8(0xd04, 0),
        vec![0xf4],
    ]
    .concat();
    let printed = run(&by_firmware(&code, |_| {}));
    assert_eq!(printed, "[EErwE-c][EErwE-c]");
}

#[test]
fn firmware_finds_its_configuration_and_is_heard() {
    skip_if!(without_kvm());
    // `mov dx, 0x510; xor ax, ax; out dx, ax`.
    let mut code = vec![0xba, 0x10, 0x05, 0x31, 0xc0, 0xef];
    for _ in 0..4 {
        code.extend(print_port(0x511));
    }
    code.extend(out8(0x402, b'h'));
    code.extend(out8(0x402, b'i'));
    code.extend(out8(0x402, b'\n'));
    code.extend(out8(0xd04, 0));
    code.push(0xf4);
    let by_hand = by_firmware(&code, |firmware| {
        firmware.debug_log_fd = Some(4);
        firmware.debug_log_max_bytes = 100;
    });
    let log = tempfile::tempfile().unwrap();
    assert_eq!(run_with(&by_hand, &log), "QEMU");
    let mut heard = [0; 3];
    log.read_exact_at(&mut heard, 0).unwrap();
    assert_eq!(&heard, b"hi\n");
}

/// A loop that takes a second or two where instructions are interpreted: `mov bx, 30; mov cx, 0; loop;
/// dec bx; jnz`.
fn a_while() -> Vec<u8> {
    vec![0xbb, 30, 0, 0xb9, 0, 0, 0xe2, 0xfe, 0x4b, 0x75, 0xf8]
}

#[test]
fn firmware_goes_on_in_another_process_with_what_it_shadowed() {
    skip_if!(without_kvm());
    let code = [
        configure(PAM5, 0x03),
        put_first(0xe000, b'w'),
        configure(PAM5, 0x01),
        out8(0x70, 0x40),
        out8(0x71, b'm'),
        print("a"),
        a_while(),
        put_first(0xe000, b'x'),
        print_first(0xe000),
        print_port(0x71),
        out8(0xd04, 0),
        vec![0xf4],
    ]
    .concat();
    let by_hand = by_firmware(&code, |_| {});
    let snapshot = tempfile::tempfile().unwrap();
    {
        let vmm = VmmProcess::start().unwrap();
        let mut client = vmm.connect().unwrap();
        by_hand.boot(&mut client);
        soon(|| by_hand.printed() == "a");
        client.must(Kind::Pause(v1::Pause {})).unwrap();
        assert_eq!(save(&mut client, &snapshot).error, None);
    }
    let again = by_firmware(&code, |_| {});
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    assert_eq!(restore(&mut client, &again, &snapshot).error, None);
    client.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::DebugExit, "{}", exit.detail);
    assert_eq!(again.printed(), "wm");
}
