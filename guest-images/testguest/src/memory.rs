//! Guest physical memory as the payload sees it: identity-mapped, never its own image except
//! through Rust.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence};

const PAGE_BYTES: usize = 4096;
const CACHE_LINE_BYTES: usize = 64;
const LARGE_PAGE_BYTES: u64 = 2 << 20;
const TABLE_ENTRIES: usize = 512;
/// Present, writable, CPL 3.
const TABLE_FLAGS: u64 = 0x07;
/// The same, a 2 MiB page, uncached.
const DEVICE_PAGE_FLAGS: u64 = 0x07 | 0x80 | 0x18;
const ADDRESS_MASK: u64 = 0x000f_ffff_ffff_f000;
/// What `entry.rs` maps beforehand.
const PREMAPPED_END: u64 = 4 << 30;
/// Four-level paging ends here in its lower half.
const MAPPABLE_END: u64 = 1 << 47;
/// Buffers, rings and page tables together.
const ARENA_BYTES: usize = 1 << 20;

#[repr(C, align(4096))]
struct Arena(core::cell::UnsafeCell<[u8; ARENA_BYTES]>);

// SAFETY: parts of it are handed out once only, see `DmaBuffer::new`.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(core::cell::UnsafeCell::new([0; ARENA_BYTES]));
static ARENA_USED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static boot_pml4: [AtomicU64; TABLE_ENTRIES];
    static image_start: u8;
    static image_end: u8;
}

/// A guest physical address as a number of this 64-bit guest's `usize`.
#[allow(
    clippy::cast_possible_truncation,
    reason = "usize is 64 bits wide on x86-64"
)]
const fn to_usize(value: u64) -> usize {
    value as usize
}

/// Whether `[address, address + bytes)` stays clear of this program, zero and the address space's
/// end. Everything else may be looked at without breaking Rust's rules: no Rust object is there.
fn is_foreign(address: u64, bytes: u64) -> bool {
    let (start, end) = (&raw const image_start as u64, &raw const image_end as u64);
    match address.checked_add(bytes) {
        Some(last) => address != 0 && last <= MAPPABLE_END && (last <= start || address >= end),
        None => false,
    }
}

/// Memory that firmware or the VMM filled before the start and nobody changes any more.
/// `None` for addresses that cannot be such.
pub fn boot_data(address: u64, bytes: usize) -> Option<&'static [u8]> {
    let length = u64::try_from(bytes).ok()?;
    if !is_foreign(address, length) || address + length > PREMAPPED_END {
        return None;
    }
    // SAFETY: mapped and foreign; a range that is no RAM reads as ones.
    Some(unsafe { core::slice::from_raw_parts(to_usize(address) as *const u8, bytes) })
}

/// Device registers at a guest physical address.
#[derive(Clone, Copy)]
pub struct Registers {
    base: usize,
    bytes: usize,
}

macro_rules! register_access {
    ($read:ident, $write:ident, $type:ty) => {
        /// Reads a register; all ones outside the window, as a bus without a device would.
        pub fn $read(&self, offset: usize) -> $type {
            if !self.holds(offset, size_of::<$type>()) {
                return <$type>::MAX;
            }
            // SAFETY: inside the window that `map` checked.
            unsafe { ((self.base + offset) as *const $type).read_volatile() }
        }

        /// Writes a register; outside the window it is lost, as on a bus without a device.
        pub fn $write(&self, offset: usize, value: $type) {
            if self.holds(offset, size_of::<$type>()) {
                // SAFETY: as for reading.
                unsafe { ((self.base + offset) as *mut $type).write_volatile(value) };
            }
        }
    };
}

impl Registers {
    /// Makes a device's registers reachable; above 4 GiB they are mapped now. `None` when the range
    /// overlaps this program or no page table is left.
    pub fn map(address: u64, bytes: u64) -> Option<Self> {
        if !is_foreign(address, bytes) {
            return None;
        }
        let mut page = address & !(LARGE_PAGE_BYTES - 1);
        while page < address + bytes {
            if page >= PREMAPPED_END {
                map_device_page(page)?;
            }
            page += LARGE_PAGE_BYTES;
        }
        Some(Self {
            base: to_usize(address),
            bytes: to_usize(bytes),
        })
    }

    /// Guest physical address of the window.
    pub fn address(&self) -> u64 {
        self.base as u64
    }

    /// A part of the window.
    pub fn part(&self, offset: usize, bytes: usize) -> Option<Self> {
        self.holds(offset, bytes).then_some(Self {
            base: self.base + offset,
            bytes,
        })
    }

    fn holds(&self, offset: usize, bytes: usize) -> bool {
        offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes)
    }

    register_access!(read8, write8, u8);
    register_access!(read16, write16, u16);
    register_access!(read32, write32, u32);

    /// Writes the low `bytes` (1, 2, 4 or 8) of `value` by one instruction, aligned or not; outside the
    /// window it is lost.
    pub fn poke(&self, offset: usize, bytes: usize, value: u64) {
        if let Some(place) = self.place(offset, bytes) {
            place.write(value);
        }
    }

    /// A register of `bytes` (1, 2, 4 or 8), or `None` outside the window.
    pub fn place(&self, offset: usize, bytes: usize) -> Option<WriteTarget> {
        self.holds(offset, bytes).then_some(WriteTarget {
            at: self.base + offset,
            bytes,
        })
    }

    /// Reads `bytes` (1, 2, 4 or 8) by one instruction, aligned or not; ones outside the window.
    pub fn peek(&self, offset: usize, bytes: usize) -> u64 {
        if !self.holds(offset, bytes) {
            return u64::MAX;
        }
        let at = self.base + offset;
        let value: u64;
        // SAFETY: as for writing.
        unsafe {
            match bytes {
                1 => asm!("movzx {:e}, byte ptr [{}]", out(reg) value, in(reg) at),
                2 => asm!("movzx {:e}, word ptr [{}]", out(reg) value, in(reg) at),
                4 => asm!("mov {:e}, dword ptr [{}]", out(reg) value, in(reg) at),
                _ => asm!("mov {}, qword ptr [{}]", out(reg) value, in(reg) at),
            }
        }
        value
    }

    /// Length of the window in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes a 64-bit register in two halves, which every device accepts.
    pub fn write64(&self, offset: usize, value: u64) {
        self.write32(offset, (value & 0xffff_ffff) as u32);
        self.write32(offset + 4, (value >> 32) as u32);
    }

    /// Reads a 64-bit register in two halves.
    pub fn read64(&self, offset: usize) -> u64 {
        u64::from(self.read32(offset)) | u64::from(self.read32(offset + 4)) << 32
    }
}

/// Where 1, 2, 4 or 8 bytes may be written at any time, by either CPU: a register, or memory of devices.
#[derive(Clone, Copy)]
pub struct WriteTarget {
    at: usize,
    bytes: usize,
}

impl WriteTarget {
    /// Writes what fits of the low bytes of `value` by one instruction, aligned or not.
    pub fn write(&self, value: u64) {
        let at = self.at;
        // SAFETY: inside a window that `Registers::map` checked or a `DmaBuffer`, where no Rust object is.
        unsafe {
            match self.bytes {
                1 => asm!("mov byte ptr [{}], {:l}", in(reg) at, in(reg_abcd) value),
                2 => asm!("mov word ptr [{}], {:x}", in(reg) at, in(reg) value),
                4 => asm!("mov dword ptr [{}], {:e}", in(reg) at, in(reg) value),
                _ => asm!("mov qword ptr [{}], {}", in(reg) at, in(reg) value),
            }
        }
    }
}

/// Maps the 2 MiB at `page`. The CPU never caches absent entries, so nothing has to be flushed.
fn map_device_page(page: u64) -> Option<()> {
    // SAFETY: the CPU reads this table, Rust code only through these atomics.
    let mut table = unsafe { &boot_pml4 };
    for shift in [39, 30] {
        table = next_table(&table[to_usize(page >> shift) % TABLE_ENTRIES])?;
    }
    table[to_usize(page >> 21) % TABLE_ENTRIES].store(page | DEVICE_PAGE_FLAGS, Ordering::SeqCst);
    Some(())
}

fn next_table(entry: &AtomicU64) -> Option<&'static [AtomicU64; TABLE_ENTRIES]> {
    if entry.load(Ordering::SeqCst) == 0 {
        let table = DmaBuffer::aligned(PAGE_BYTES, PAGE_BYTES)?;
        entry.store(table.address() | TABLE_FLAGS, Ordering::SeqCst);
    }
    let address = entry.load(Ordering::SeqCst) & ADDRESS_MASK;
    // SAFETY: a page table from the arena or from `entry.rs`, zeroed or filled, never freed, and
    // identity-mapped; `DmaBuffer` forgets it, so that these atomics are the only way to it.
    Some(unsafe { &*(to_usize(address) as *const [AtomicU64; TABLE_ENTRIES]) })
}

/// Zeroed memory that a device may read and write at any time; handed out once, never taken back.
/// All access is by copy.
pub struct DmaBuffer {
    start: *mut u8,
    bytes: usize,
}

impl DmaBuffer {
    /// Takes `bytes` from the arena, on a cache line of their own. `None` when nothing is left.
    pub fn new(bytes: usize) -> Option<Self> {
        Self::aligned(bytes, CACHE_LINE_BYTES)
    }

    /// Takes whole pages from the arena.
    pub fn pages(count: usize) -> Option<Self> {
        Self::aligned(count * PAGE_BYTES, PAGE_BYTES)
    }

    fn aligned(bytes: usize, align: usize) -> Option<Self> {
        let start = ARENA_USED.load(Ordering::SeqCst).next_multiple_of(align);
        let end = start.checked_add(bytes)?;
        if end > ARENA_BYTES {
            return None;
        }
        ARENA_USED.store(end, Ordering::SeqCst);
        // SAFETY: `start` lies inside the arena.
        let pointer = unsafe { ARENA.0.get().cast::<u8>().add(start) };
        Some(Self {
            start: pointer,
            bytes,
        })
    }

    /// Its guest physical address.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// The `bytes` (1, 2, 4 or 8) at `offset`, or `None` outside.
    pub fn place(&self, offset: usize, bytes: usize) -> Option<WriteTarget> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(WriteTarget {
            at: self.start.addr() + offset,
            bytes,
        })
    }

    /// Copies `data` to `offset`.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn write(&self, offset: usize, data: &[u8]) {
        assert!(
            offset + data.len() <= self.bytes,
            "write beyond a DMA buffer"
        );
        // SAFETY: inside the buffer; `data` cannot be in it, for nobody holds a reference there.
        unsafe {
            core::ptr::copy_nonoverlapping(data.as_ptr(), self.start.add(offset), data.len())
        };
        compiler_fence(Ordering::SeqCst);
    }

    /// Copies from `offset` into `data`.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        assert!(
            offset + data.len() <= self.bytes,
            "read beyond a DMA buffer"
        );
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `write`.
        unsafe {
            core::ptr::copy_nonoverlapping(self.start.add(offset), data.as_mut_ptr(), data.len())
        };
    }

    /// The 16-bit word at `offset`, read anew each time.
    ///
    /// # Panics
    /// When it is not inside the buffer or not aligned.
    pub fn read16(&self, offset: usize) -> u16 {
        assert!(
            offset + 2 <= self.bytes && offset.is_multiple_of(2),
            "read beyond a DMA buffer"
        );
        // SAFETY: inside the buffer and aligned.
        unsafe { self.start.add(offset).cast::<u16>().read_volatile() }
    }

    /// Writes the 16-bit word at `offset`.
    ///
    /// # Panics
    /// When it is not inside the buffer or not aligned.
    pub fn write16(&self, offset: usize, value: u16) {
        assert!(
            offset + 2 <= self.bytes && offset.is_multiple_of(2),
            "write beyond a DMA buffer"
        );
        // SAFETY: inside the buffer and aligned.
        unsafe { self.start.add(offset).cast::<u16>().write_volatile(value) };
    }
}
