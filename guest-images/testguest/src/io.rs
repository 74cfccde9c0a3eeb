//! Port I/O, open to CPL 3 by IOPL 3 and by the TSS's permission map.

use core::arch::asm;

/// Writes a byte to `port`.
pub fn outb(port: u16, value: u8) {
    // SAFETY: no device of the machines this runs on writes to memory on a mere port access.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Writes 16 bits to `port`.
pub fn outw(port: u16, value: u16) {
    // SAFETY: as in `outb`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) };
}

/// Writes 32 bits to `port`.
pub fn outl(port: u16, value: u32) {
    // SAFETY: as in `outb`.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    };
}

/// Reads a byte from `port`.
pub fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as in `outb`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Reads 16 bits from `port`.
pub fn inw(port: u16) -> u16 {
    let value;
    // SAFETY: as in `outb`.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack, preserves_flags)) };
    value
}

/// Reads 32 bits from `port`.
pub fn inl(port: u16) -> u32 {
    let value;
    // SAFETY: as in `outb`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags))
    };
    value
}
