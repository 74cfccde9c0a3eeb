//! Firmware of a few instructions, which begins where processors begin: what it finds, what it shadows,
//! and what a reset brings back.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use integration::skip::without_kvm;
use integration::skip_if;
use integration::vmm_client::VmmProcess;
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::{ByHand, soon};
use crate::snapshot::{restore, save};

/// Two segments below 1 MiB: data at 0xE0000, code at 0xF0000.
const IMAGE_BYTES: usize = 128 << 10;
const CODE: usize = 64 << 10;
/// The host bridge's registers for segments from 0xC0000 and 0xE0000 on.
const PAM1: u8 = 0x91;
const PAM5: u8 = 0x95;

/// `mov dx, port; mov al, value; out dx, al` of 16-bit code.
fn out8(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0xba, low, high, 0xb0, value, 0xee]
}

fn print(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| out8(0x3f8, byte)).collect()
}

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

/// `mov ax, segment; mov ds, ax`.
fn at_segment(segment: u16) -> Vec<u8> {
    let [low, high] = segment.to_le_bytes();
    vec![0xb8, low, high, 0x8e, 0xd8]
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

/// The rest is only for the second time: the clock's memory counts. `in al; cmp al, 0; jne; ...`.
fn first_time(then: &[u8]) -> Vec<u8> {
    let mut code = out8(0x70, 0x40);
    let length = i8::try_from(then.len()).expect("a short jump");
    code.extend([
        0xba,
        0x71,
        0x00,
        0xec,
        0x3c,
        0x00,
        0x75,
        length.cast_unsigned(),
    ]);
    code.extend(then);
    code
}

/// An image with `E` at its beginning and code at 0xF0000, where a jump at its end leads.
fn image(code: &[u8]) -> File {
    let mut image = vec![0xcc; IMAGE_BYTES];
    image[0] = b'E';
    image[CODE..CODE + code.len()].copy_from_slice(code);
    // `jmp 0xf000:0`.
    image[IMAGE_BYTES - 16..IMAGE_BYTES - 11].copy_from_slice(&[0xea, 0, 0, 0, 0xf0]);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&image).expect("written");
    file
}

fn by_firmware(code: &[u8], change: impl FnOnce(&mut v1::FirmwareBoot)) -> ByHand {
    let mut by_hand = ByHand::new(image(code));
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
    let mut descriptors = by_hand.descriptors().to_vec();
    descriptors.push(file.as_fd());
    let response = client.request(by_hand.request(), &descriptors);
    assert_eq!(response.expect("an answer").error, None);
    client
        .must(Kind::Subscribe(v1::Subscribe {}))
        .expect("subscribed");
    client.must(Kind::Boot(v1::Boot {})).expect("booted");
    let exit = client.wait_for_exit().expect("its end");
    assert_eq!(exit.reason(), v1::ExitReason::DebugExit, "{}", exit.detail);
    by_hand.printed()
}

/// Where the GDT of [`reach_all`] is in the code's segment.
const GDT: u16 = 0x8000;

/// Makes DS reach all of 4 GiB: `cs lgdt [GDT]; mov eax, cr0; or al, 1; mov cr0, eax; mov ax, 0x10;
/// mov ds, ax`.
fn reach_all() -> Vec<u8> {
    let [low, high] = GDT.to_le_bytes();
    let mut code = vec![0x2e, 0x0f, 0x01, 0x16, low, high];
    code.extend([0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0]);
    code.extend([0xb8, 0x10, 0x00, 0x8e, 0xd8]);
    code
}

/// Limit and base of the table, then the table: nothing, code, data.
fn descriptor_table() -> Vec<u8> {
    let mut table = 23u16.to_le_bytes().to_vec();
    table.extend((0xf_0000 + u32::from(GDT) + 8).to_le_bytes());
    table.extend([0; 2]);
    let descriptors = [0u64, 0x0000_9b0f_0000_ffff, 0x00cf_9300_0000_ffff];
    table.extend(descriptors.iter().flat_map(|d| d.to_le_bytes()));
    table
}

/// `mov byte [address], value`, with an address of 32 bits.
fn put(address: u32, value: u8) -> Vec<u8> {
    let mut code = vec![0x67, 0xc6, 0x05];
    code.extend(address.to_le_bytes());
    code.push(value);
    code
}

/// Prints the byte at an address: `mov al, [address]`.
fn print_at(address: u32) -> Vec<u8> {
    let mut code = vec![0x67, 0xa0];
    code.extend(address.to_le_bytes());
    code.extend([0xba, 0xf8, 0x03, 0xee]);
    code
}

#[test]
fn a_variable_that_firmware_sets_is_in_its_store_and_outlives_a_reset() {
    skip_if!(without_kvm());
    // Right below the image.
    let flash = u32::MAX - u32::try_from(IMAGE_BYTES).unwrap() + 1 - 8192;
    let restart = [out8(0x70, 0x40), out8(0x71, 1), out8(0xcf9, 6), vec![0xf4]].concat();
    let mut code = [
        reach_all(),
        print_at(flash + 4096),
        // Programs a byte; then it is memory again.
        put(flash + 4096, 0x10),
        put(flash + 4096, b'n'),
        put(flash + 4096, 0xff),
        print_at(flash + 4096),
        // Erases the first block.
        put(flash, 0x20),
        put(flash, 0xd0),
        put(flash, 0xff),
        print_at(flash + 4096),
        // The image is no flash memory.
        put(0xfffe_0000, b'x'),
        print_at(0xfffe_0000),
        first_time(&restart),
        out8(0xd04, 0),
        vec![0xf4],
    ]
    .concat();
    code.resize(usize::from(GDT), 0xcc);
    code.extend(descriptor_table());
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
    let reset = [out8(0x70, 0x40), out8(0x71, 1), out8(0xcf9, 6), vec![0xf4]].concat();
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
        first_time(&reset),
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
