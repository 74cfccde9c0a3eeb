//! Guests of a few instructions, entered in long mode by the 64-bit Linux protocol.

use std::fs::File;
use std::io::Write;

/// Where code is loaded and entered.
const CODE: u64 = 0x10_0000;

/// `mov dx, port; mov al, value; out dx, al`.
fn out8(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0x66, 0xba, low, high, 0xb0, value, 0xee]
}

/// A byte to the panic device at its port.
pub fn write_panic_port(value: u8) -> Vec<u8> {
    out8(0x505, value)
}

/// Selects a register of the PCI function 00:01.0.
fn select_config(offset: u8) -> Vec<u8> {
    select_config_of(1, offset)
}

/// Selects a register of function 0 of a device on bus 0: `mov dx, 0xcf8; mov eax, address; out dx, eax`.
pub fn select_config_of(device: u8, offset: u8) -> Vec<u8> {
    let address = 0x8000_0000 | u32::from(device) << 11 | u32::from(offset & !3);
    let mut code = vec![0x66, 0xba, 0xf8, 0x0c, 0xb8];
    code.extend(address.to_le_bytes());
    code.push(0xef);
    code
}

/// Writes to the last byte of the address of configuration space, where nothing is.
pub fn disturb_config() -> Vec<u8> {
    out8(0xcfb, 1)
}

/// Prints byte `at` of the register that is selected: `mov dx, 0xcfc + at; in al, dx; mov dx, 0x3f8;
/// out dx, al`.
pub fn print_config(at: u8) -> Vec<u8> {
    vec![
        0x66,
        0xba,
        0xfc + at,
        0x0c,
        0xec,
        0x66,
        0xba,
        0xf8,
        0x03,
        0xee,
    ]
}

/// Does nothing for a while: `mov ecx, count; loop`.
pub fn spin(count: u32) -> Vec<u8> {
    let mut code = vec![0xb9];
    code.extend(count.to_le_bytes());
    code.extend([0xe2, 0xfe]);
    code
}

/// Starts the i6300esb at 00:01.0 at its fast clock, from which it runs out after two seconds.
pub fn start_watchdog() -> Vec<u8> {
    let fast = [select_config(0x60), out8(0xcfc, 1 << 2)];
    let enabled = [select_config(0x68), out8(0xcfc, 1 << 1)];
    [fast, enabled].concat().concat()
}

/// `cmpxchg16b [rsp]`.
pub fn compare_16_bytes() -> Vec<u8> {
    vec![0x48, 0x0f, 0xc7, 0x0c, 0x24]
}

/// `int3`.
pub fn breakpoint() -> Vec<u8> {
    vec![0xcc]
}

/// `xrstor [rsp]` with an empty mask: `xor eax, eax; xor edx, edx; xrstor [rsp]`.
pub fn restore_extended_state() -> Vec<u8> {
    vec![0x31, 0xc0, 0x31, 0xd2, 0x0f, 0xae, 0x2c, 0x24]
}

/// Hyper-V's crash register, by which a guest tells that it crashed: `mov ecx, 0x40000105; mov edx,
/// 1 << 31; xor eax, eax; wrmsr`.
pub fn write_hyperv_crash_register() -> Vec<u8> {
    let mut code = vec![0xb9];
    code.extend(0x4000_0105u32.to_le_bytes());
    code.push(0xba);
    code.extend((1u32 << 31).to_le_bytes());
    code.extend([0x31, 0xc0, 0x0f, 0x30]);
    code
}

/// Prints `text` on COM1.
pub fn print(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| out8(0x3f8, byte)).collect()
}

/// Keeps `value` in RAM, at 2 MiB: `mov byte [0x200000], value`.
pub fn keep(value: u8) -> Vec<u8> {
    vec![0xc6, 0x04, 0x25, 0x00, 0x00, 0x20, 0x00, value]
}

/// Prints what was kept: `mov dx, 0x3f8; mov al, [0x200000]; out dx, al`.
pub fn print_kept() -> Vec<u8> {
    let mut code = vec![0x66, 0xba, 0xf8, 0x03];
    code.extend([0x8a, 0x04, 0x25, 0x00, 0x00, 0x20, 0x00, 0xee]);
    code
}

/// ACPI S5: `mov dx, 0x604; mov ax, 0x2000; out dx, ax`.
pub fn power_off() -> Vec<u8> {
    vec![0x66, 0xba, 0x04, 0x06, 0x66, 0xb8, 0x00, 0x20, 0x66, 0xef]
}

/// The reset register.
pub fn reset() -> Vec<u8> {
    out8(0xcf9, 6)
}

/// The debug exit port.
pub fn debug_exit(value: u8) -> Vec<u8> {
    out8(0xd04, value)
}

/// The boot timestamp port.
pub fn timestamp() -> Vec<u8> {
    out8(0xd02, 123)
}

/// `cli; hlt; jmp` back: halts for ever.
pub fn halt() -> Vec<u8> {
    vec![0xfa, 0xf4, 0xeb, 0xfd]
}

/// Ends the guest with register `index` of the CMOS clock as the debug exit port's value.
pub fn exit_with_cmos(index: u8) -> Vec<u8> {
    let mut code = out8(0x70, index);
    // `mov dx, 0x71; in al, dx; mov dx, 0xd04; out dx, al`.
    code.extend([0x66, 0xba, 0x71, 0x00, 0xec, 0x66, 0xba, 0x04, 0x0d, 0xee]);
    code
}

/// `ud2` without an interrupt table.
pub fn triple_fault() -> Vec<u8> {
    vec![0x0f, 0x0b]
}

/// Polls the power button's status bit: `mov dx, 0x600; in ax, dx; test ah, 1; jz`.
pub fn wait_for_power_button() -> Vec<u8> {
    vec![
        0x66, 0xba, 0x00, 0x06, 0x66, 0xed, 0xf6, 0xc4, 0x01, 0x74, 0xf9,
    ]
}

/// Echoes COM1 for ever: waits for the data ready bit, reads, writes.
pub fn echo() -> Vec<u8> {
    let mut code = vec![0x66, 0xba, 0xfd, 0x03, 0xec, 0xa8, 0x01, 0x74, 0xf7];
    code.extend([0x66, 0xba, 0xf8, 0x03, 0xec, 0xee]);
    let back = 256 - (code.len() + 2);
    code.extend([0xeb, u8::try_from(back).expect("a short loop")]);
    code
}

/// An ELF file that does `steps` one after the other.
pub fn kernel(steps: &[Vec<u8>]) -> File {
    let code = steps.concat();
    let mut image = vec![0; 64 + 56];
    image[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(18, &62u16.to_le_bytes());
    put(24, &CODE.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &1u16.to_le_bytes());
    put(64, &1u32.to_le_bytes());
    put(64 + 8, &120u64.to_le_bytes());
    put(64 + 24, &CODE.to_le_bytes());
    put(64 + 32, &(code.len() as u64).to_le_bytes());
    put(64 + 40, &(code.len() as u64).to_le_bytes());
    image.extend(code);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&image).expect("written");
    file
}
