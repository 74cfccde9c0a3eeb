//! The memory functions that compiled Rust calls. Written as string instructions, because the
//! compiler would turn loops back into calls of the very same functions.

use core::arch::asm;

/// As C's `memcpy`.
///
/// # Safety
/// `source` is readable and `target` writable for `bytes`, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(target: *mut u8, source: *const u8, bytes: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep movsb", inout("rcx") bytes => _, inout("rdi") target => _,
             inout("rsi") source => _, options(nostack, preserves_flags));
    }
    target
}

/// As C's `memmove`.
///
/// # Safety
/// `source` is readable and `target` writable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(target: *mut u8, source: *const u8, bytes: usize) -> *mut u8 {
    if (target as usize).wrapping_sub(source as usize) >= bytes {
        // SAFETY: copying upwards never overwrites what is still to be read.
        return unsafe { memcpy(target, source, bytes) };
    }
    // SAFETY: `bytes` is not 0 here, so the last bytes exist; copied downwards from there.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") bytes => _,
             inout("rdi") target.add(bytes - 1) => _,
             inout("rsi") source.add(bytes - 1) => _, options(nostack));
    }
    target
}

/// As C's `memset`.
///
/// # Safety
/// `target` is writable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(target: *mut u8, value: i32, bytes: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep stosb", inout("rcx") bytes => _, inout("rdi") target => _,
             in("al") value.to_le_bytes()[0], options(nostack, preserves_flags));
    }
    target
}

/// As C's `memcmp`.
///
/// # Safety
/// Both are readable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    for index in 0..bytes {
        // SAFETY: `index` is below `bytes`.
        let (a, b) = unsafe { (*left.add(index), *right.add(index)) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// As BSD's `bcmp`: 0 when equal.
///
/// # Safety
/// Both are readable for `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, bytes: usize) -> i32 {
    for index in 0..bytes {
        // SAFETY: `index` is below `bytes`.
        if unsafe { *left.add(index) != *right.add(index) } {
            return 1;
        }
    }
    0
}

/// Never called: nothing unwinds here. The precompiled `core` names it all the same.
#[unsafe(no_mangle)]
pub extern "C" fn rust_eh_personality() {}

/// As C's `strlen`; some of `core` refers to it.
///
/// # Safety
/// `text` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: stops at the zero byte.
    while unsafe { *text.add(length) } != 0 {
        length += 1;
    }
    length
}
