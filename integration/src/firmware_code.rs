//! Firmware of a few instructions of 16-bit code, for what real firmware takes too long to show.

/// Two segments below 1 MiB: data at 0xE0000, code at 0xF0000.
pub const IMAGE_BYTES: usize = 128 << 10;
const CODE: usize = 64 << 10;
/// Where the table of [`reach_all`] is in the code's segment.
const GDT: u16 = 0x8000;

/// `mov dx, port; mov al, value; out dx, al` of 16-bit code.
#[must_use]
pub fn out8(port: u16, value: u8) -> Vec<u8> {
    let [low, high] = port.to_le_bytes();
    vec![0xba, low, high, 0xb0, value, 0xee]
}

/// Prints a text on the serial console.
#[must_use]
pub fn print(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|byte| out8(0x3f8, byte)).collect()
}

/// `mov ax, segment; mov ds, ax`.
#[must_use]
pub fn at_segment(segment: u16) -> Vec<u8> {
    let [low, high] = segment.to_le_bytes();
    vec![0xb8, low, high, 0x8e, 0xd8]
}

/// Only the first time after power-on: the clock's memory counts. `in al; cmp al, 0; jne; ...`.
///
/// # Panics
/// When there is too much to do for a short jump.
#[must_use]
pub fn first_time(then: &[u8]) -> Vec<u8> {
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

/// Makes DS reach all of 4 GiB: `cs lgdt [GDT]; mov eax, cr0; or al, 1; mov cr0, eax; mov ax, 0x10;
/// mov ds, ax`.
#[must_use]
pub fn reach_all() -> Vec<u8> {
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
#[must_use]
pub fn put(address: u32, value: u8) -> Vec<u8> {
    let mut code = vec![0x67, 0xc6, 0x05];
    code.extend(address.to_le_bytes());
    code.push(value);
    code
}

/// Prints the byte at an address: `mov al, [address]`.
#[must_use]
pub fn print_at(address: u32) -> Vec<u8> {
    let mut code = vec![0x67, 0xa0];
    code.extend(address.to_le_bytes());
    code.extend([0xba, 0xf8, 0x03, 0xee]);
    code
}

/// Starts over by the reset register, having counted this time.
#[must_use]
pub fn restart() -> Vec<u8> {
    [out8(0x70, 0x40), out8(0x71, 1), out8(0xcf9, 6), vec![0xf4]].concat()
}

/// Where the variable store is, right below the image.
///
/// # Panics
/// When it is too long for this machine.
#[must_use]
pub fn variables_at(bytes: usize) -> u32 {
    let below = u32::try_from(IMAGE_BYTES + bytes).expect("within 4 GiB");
    below.wrapping_neg()
}

/// Programs a byte of the variable store, which is memory again then.
#[must_use]
pub fn program(address: u32, value: u8) -> Vec<u8> {
    [put(address, 0x10), put(address, value), put(address, 0xff)].concat()
}

/// `cli`, then `hlt` for ever.
#[must_use]
pub fn stay() -> Vec<u8> {
    vec![0xfa, 0xf4, 0xeb, 0xfd]
}

/// An image with `E` at its beginning and code at 0xF0000, where a jump at its end leads.
///
/// # Panics
/// When the code is too long for the tables behind it.
#[must_use]
pub fn image(code: &[u8]) -> Vec<u8> {
    let tables = CODE + usize::from(GDT);
    assert!(code.len() < usize::from(GDT), "{} bytes", code.len());
    let mut image = vec![0xcc; IMAGE_BYTES];
    image[0] = b'E';
    image[CODE..CODE + code.len()].copy_from_slice(code);
    let table = descriptor_table();
    image[tables..tables + table.len()].copy_from_slice(&table);
    // `jmp 0xf000:0`.
    image[IMAGE_BYTES - 16..IMAGE_BYTES - 11].copy_from_slice(&[0xea, 0, 0, 0, 0xf0]);
    image
}
