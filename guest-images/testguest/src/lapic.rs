//! The local APIC, in x2APIC mode where the CPU has it: interrupts on, and a one-shot timer.

use crate::memory::Registers;
use crate::trap;

const XAPIC_BASE: u64 = 0xfee0_0000;
const XAPIC_BYTES: u64 = 4096;
const X2APIC_MSR_BASE: u32 = 0x800;

/// Register offsets of the xAPIC; divided by 16 they are those of the x2APIC MSRs.
const ID: u32 = 0x020;
const TASK_PRIORITY: u32 = 0x080;
const EOI: u64 = 0x0b0;
const SPURIOUS: u32 = 0x0f0;
const COMMAND: u32 = 0x300;
const COMMAND_TO: u32 = 0x310;
const LVT_TIMER: u32 = 0x320;
const LVT_LINT0: u32 = 0x350;
const INITIAL_COUNT: u32 = 0x380;
const CURRENT_COUNT: u32 = 0x390;
const DIVIDE: u32 = 0x3e0;

const SOFTWARE_ENABLE: u32 = 1 << 8;
const LVT_MASKED: u32 = 1 << 16;
const DIVIDE_BY_1: u32 = 0b1011;

/// The vector of the timer.
pub const TIMER_VECTOR: u8 = trap::FIRST_IRQ_VECTOR;

const PIC_MASKS: [u16; 2] = [0x21, 0xa1];

/// The CPU's local APIC.
#[derive(Clone, Copy)]
pub enum Lapic {
    /// Memory-mapped registers.
    Xapic(Registers),
    /// Registers in MSRs.
    X2apic,
}

impl Lapic {
    /// Takes the local APIC into use: everything masked but what this guest programs itself.
    pub fn enable(x2apic: bool) -> Option<Self> {
        for port in PIC_MASKS {
            crate::io::outb(port, 0xff);
        }
        let lapic = if x2apic {
            Self::X2apic
        } else {
            trap::set_xapic_eoi(XAPIC_BASE + EOI);
            Self::Xapic(Registers::map(XAPIC_BASE, XAPIC_BYTES)?)
        };
        lapic.write(TASK_PRIORITY, 0);
        lapic.write(LVT_LINT0, LVT_MASKED);
        lapic.write(LVT_TIMER, LVT_MASKED);
        lapic.write(SPURIOUS, SOFTWARE_ENABLE | u32::from(trap::SPURIOUS_VECTOR));
        lapic.write(DIVIDE, DIVIDE_BY_1);
        Some(lapic)
    }

    /// `xapic` or `x2apic`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Xapic(_) => "xapic",
            Self::X2apic => "x2apic",
        }
    }

    /// This CPU's APIC id.
    pub fn id(&self) -> u32 {
        match self {
            Self::Xapic(_) => self.read(ID) >> 24,
            Self::X2apic => self.read(ID),
        }
    }

    /// Counts down from `count` and then interrupts once with [`TIMER_VECTOR`]; 0 stops the timer.
    pub fn start_timer(&self, count: u32) {
        self.write(LVT_TIMER, u32::from(TIMER_VECTOR));
        self.write(INITIAL_COUNT, count);
    }

    /// What is left of the count.
    pub fn timer_count(&self) -> u32 {
        self.read(CURRENT_COUNT)
    }

    /// Sends an inter-processor interrupt: the interrupt command register's low half.
    pub fn command(&self, to: u32, command: u32) {
        match self {
            Self::Xapic(registers) => {
                registers.write32(COMMAND_TO as usize, to << 24);
                registers.write32(COMMAND as usize, command);
            }
            Self::X2apic => {
                let value = u64::from(to) << 32 | u64::from(command);
                trap::write_x2apic(X2APIC_MSR_BASE + (COMMAND >> 4), value);
            }
        }
    }

    fn read(&self, register: u32) -> u32 {
        match self {
            Self::Xapic(registers) => registers.read32(register as usize),
            Self::X2apic => {
                (trap::read_msr(X2APIC_MSR_BASE + (register >> 4)) & 0xffff_ffff) as u32
            }
        }
    }

    fn write(&self, register: u32, value: u32) {
        match self {
            Self::Xapic(registers) => registers.write32(register as usize, value),
            Self::X2apic => {
                trap::write_x2apic(X2APIC_MSR_BASE + (register >> 4), value.into());
            }
        }
    }
}
