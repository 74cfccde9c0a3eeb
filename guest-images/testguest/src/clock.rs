//! Time: the TSC, measured once against the ACPI PM timer or, where there is none, against the
//! local APIC's timer, which counts nanoseconds on KVM and QEMU alike. And sleeping until a time.

use core::arch::x86_64::_rdtsc;

use testguest_lib::tables::Fadt;

use crate::io;
use crate::lapic::{Lapic, TIMER_VECTOR};
use crate::trap;

const PM_TIMER_HZ: u64 = 3_579_545;
/// How long the measurement takes: far above the resolution of either timer.
const CALIBRATION_NS: u64 = 5_000_000;
const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;
/// A PM timer that stands still this long is none.
const PM_TIMER_PATIENCE_READS: u32 = 2_000;
/// Readings of both clocks, of which the closest pair counts: the host may take the CPU away
/// between the two.
const PAIR_READINGS: u32 = 8;

/// A moment, in nanoseconds since the clock was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// The moment `ms` milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(NS_PER_MS)))
    }
}

/// The guest's clock.
pub struct Clock {
    lapic: Lapic,
    start_tsc: u64,
    tsc_khz: u64,
    timer_khz: u64,
    reference: &'static str,
}

impl Clock {
    /// Measures TSC and timer; takes 5 ms.
    pub fn calibrate(lapic: Lapic, fadt: Option<&Fadt>) -> Self {
        let fadt = fadt.filter(|fadt| fadt.pm_timer != 0 && pm_timer_counts(fadt.pm_timer));
        lapic.start_timer(u32::MAX);
        let timer = Reference::Lapic(lapic);
        let reference = fadt.map_or(timer, Reference::pm_timer);
        let start = reference.read_with_tsc();
        let timer_start = timer.read_with_tsc();
        while reference.ns_between(start.0, reference.read()) < CALIBRATION_NS {
            core::hint::spin_loop();
        }
        let end = reference.read_with_tsc();
        let timer_end = timer.read_with_tsc();
        lapic.start_timer(0);
        let tsc_khz = khz(end.1 - start.1, reference.ns_between(start.0, end.0));
        let timer_ticks = u64::from(timer_end.0.wrapping_sub(timer_start.0));
        let timer_ns = (timer_end.1 - timer_start.1).saturating_mul(1_000_000) / tsc_khz;
        let timer_khz = khz(timer_ticks, timer_ns);
        Self {
            lapic,
            start_tsc: start.1,
            tsc_khz,
            timer_khz,
            reference: reference.name(),
        }
    }

    /// TSC frequency in kHz.
    pub fn tsc_khz(&self) -> u64 {
        self.tsc_khz
    }

    /// What the TSC was measured against.
    pub fn reference(&self) -> &'static str {
        self.reference
    }

    /// The local APIC.
    pub fn lapic(&self) -> &Lapic {
        &self.lapic
    }

    /// Time since the guest began, by its TSC.
    pub fn now(&self) -> Moment {
        let ticks = u128::from(read_tsc() - self.start_tsc);
        let ns = ticks * 1_000_000 / u128::from(self.tsc_khz);
        Moment(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since `earlier`.
    pub fn ns_since(&self, earlier: Moment) -> u64 {
        self.now().0.saturating_sub(earlier.0)
    }

    /// The moment `ms` milliseconds from now.
    pub fn after_ms(&self, ms: u64) -> Moment {
        self.now().plus_ms(ms)
    }

    /// Sleeps until an interrupt on `vector` has come since it was counted to be `seen`, or until
    /// `deadline`. True when the interrupt came.
    pub fn wait_for_irq(&self, vector: u8, seen: u32, deadline: Moment) -> bool {
        trap::disable_interrupts();
        let mut came = trap::irq_count(vector) != seen;
        while !came && self.arm(deadline) {
            trap::wait_for_interrupt();
            came = trap::irq_count(vector) != seen;
        }
        self.lapic.start_timer(0);
        trap::enable_interrupts();
        came
    }

    /// Sleeps until `deadline`.
    pub fn sleep_until(&self, deadline: Moment) {
        trap::disable_interrupts();
        while self.arm(deadline) {
            trap::wait_for_interrupt();
        }
        trap::enable_interrupts();
    }

    /// Sleeps until the timer, set to go off in `ms`, has interrupted.
    pub fn sleep_through_timer(&self, ms: u64) {
        trap::disable_interrupts();
        let seen = trap::irq_count(TIMER_VECTOR);
        self.start_timer(ms.saturating_mul(NS_PER_MS));
        while trap::irq_count(TIMER_VECTOR) == seen {
            trap::wait_for_interrupt();
        }
        trap::enable_interrupts();
    }

    /// Sets the timer to go off in `ms` and keeps running until it has interrupted, with `patience_ms`
    /// on top. False when it has not.
    pub fn run_until_timer(&self, ms: u64, patience_ms: u64) -> bool {
        let seen = trap::irq_count(TIMER_VECTOR);
        let limit = self.after_ms(ms + patience_ms);
        self.start_timer(ms.saturating_mul(NS_PER_MS));
        loop {
            // Read before the count: the host may take the CPU away between the two.
            let late = self.now() > limit;
            if trap::irq_count(TIMER_VECTOR) != seen {
                return true;
            }
            if late {
                return false;
            }
            core::hint::spin_loop();
        }
    }

    /// Sets the timer to go off at `deadline` or, if that is far away, earlier. False when
    /// `deadline` has passed.
    pub fn arm(&self, deadline: Moment) -> bool {
        let left = deadline.0.saturating_sub(self.now().0);
        if left == 0 {
            return false;
        }
        self.start_timer(left);
        true
    }

    /// Sets the timer to go off in `ns` nanoseconds or, if that is too far away, earlier.
    fn start_timer(&self, ns: u64) {
        let count = u128::from(ns) * u128::from(self.timer_khz) / u128::from(NS_PER_MS);
        self.lapic
            .start_timer(u32::try_from(count).unwrap_or(u32::MAX).max(1));
    }
}

fn pm_timer_counts(port: u16) -> bool {
    let first = io::inl(port);
    (0..PM_TIMER_PATIENCE_READS).any(|_| io::inl(port) != first)
}

/// A clock of known frequency, counting upwards and wrapping around.
#[derive(Clone, Copy)]
enum Reference {
    PmTimer { port: u16, mask: u32 },
    Lapic(Lapic),
}

impl Reference {
    fn pm_timer(fadt: &Fadt) -> Self {
        let mask = if fadt.pm_timer_32_bits {
            u32::MAX
        } else {
            0x00ff_ffff
        };
        Self::PmTimer {
            port: fadt.pm_timer,
            mask,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::PmTimer { .. } => "pm_timer",
            Self::Lapic(_) => "lapic_timer",
        }
    }

    fn read(&self) -> u32 {
        match self {
            Self::PmTimer { port, .. } => io::inl(*port),
            Self::Lapic(lapic) => u32::MAX - lapic.timer_count(),
        }
    }

    fn ns_between(&self, start: u32, end: u32) -> u64 {
        let ticks = end.wrapping_sub(start);
        match self {
            Self::PmTimer { mask, .. } => u64::from(ticks & mask) * NS_PER_S / PM_TIMER_HZ,
            Self::Lapic(_) => u64::from(ticks),
        }
    }

    /// This clock and the TSC at the same time, as nearly as can be.
    fn read_with_tsc(&self) -> (u32, u64) {
        let mut best = (0, 0);
        let mut least = u64::MAX;
        for _ in 0..PAIR_READINGS {
            let before = read_tsc();
            let count = self.read();
            let taken = read_tsc() - before;
            if taken < least {
                least = taken;
                best = (count, before + taken / 2);
            }
        }
        best
    }
}

fn khz(ticks: u64, ns: u64) -> u64 {
    let khz = u128::from(ticks) * 1_000_000 / u128::from(ns.max(1));
    u64::try_from(khz).unwrap_or(u64::MAX).max(1)
}

fn read_tsc() -> u64 {
    // SAFETY: every x86-64 CPU has a TSC, and CR4.TSD is off.
    unsafe { _rdtsc() }
}
