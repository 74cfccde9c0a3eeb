//! Root ports: bus numbers, windows, slots and messages that make no sense, with a function behind them
//! or none.

use super::outcome::Outcome::Ignored;
use super::two_cpus::Pair;
use super::victim::BEYOND_MEMORY;
use crate::clock::Clock;
use crate::memory::Registers;
use crate::pci::{BAR0, COMMAND, Ecam, Function};
use crate::report::Report;
use crate::second_cpu::Table;

/// Offsets in configuration space (PCI-to-PCI Bridge 1.2, 3.2).
const BUS_NUMBERS: usize = 0x18;
const MEMORY_WINDOW: usize = 0x20;
const PREFETCHABLE_WINDOW: usize = 0x24;
const PREFETCHABLE_UPPER: usize = 0x28;
const BRIDGE_CONTROL: usize = 0x3e;
const SECONDARY_RESET: u16 = 1 << 6;
const FORWARD: u16 = 0b111;

const CAPABILITY_MSI: u8 = 0x05;
const CAPABILITY_EXPRESS: u8 = 0x10;
/// From the start of the PCI Express capability.
const SLOT_CONTROL: usize = 0x18;
const POWER_OFF: u16 = 1 << 10;
const ALL_EVENTS: u16 = 1 << 12 | 0x3f;

const HEADER_BYTES: usize = 256;
const SPACE_BYTES: usize = 4096;
const WORDS: usize = HEADER_BYTES / 4;
const STORM: usize = 500;

type Words = [u32; WORDS];

/// A root port, and what is behind it.
struct Bridge<'a> {
    ecam: &'a Ecam,
    port: Function,
    behind: Option<Function>,
    saved: Words,
    saved_behind: Option<Words>,
}

type Run = fn(&Bridge<'_>);

const CASES: [(&str, Run); 8] = [
    (
        "bridge-configuration-written-everywhere",
        written_everywhere,
    ),
    (
        "bridge-configuration-of-odd-sizes-and-offsets",
        odd_accesses,
    ),
    ("bus-numbers-that-can-not-be", bus_numbers),
    ("bus-numbers-of-all-others", all_buses),
    ("bridge-windows-over-everything", windows),
    ("secondary-bus-reset-storm", reset_storm),
    ("slot-power-storm", power_storm),
    (
        "messages-of-bridges-to-addresses-that-are-no-apic",
        messages,
    ),
];

/// Runs all on every root port there is. After each the port gets its registers back, and it and the
/// function behind it have to be what they were.
pub fn run(ecam: &Ecam, clock: &Clock, pair: Option<&Pair<'_>>, report: &mut Report) {
    ecam.for_each(|port| {
        let Some(bridge) = Bridge::open(ecam, port) else {
            return;
        };
        let mut one = |name: &str, attack: &dyn Fn(&Bridge<'_>)| {
            let start = clock.now();
            attack(&bridge);
            let is_whole = bridge.is_whole_again();
            let ms = clock.ns_since(start) / 1_000_000;
            let mark = if is_whole { "" } else { " FAIL" };
            report.attack(
                is_whole,
                format_args!("{port} {name}: {Ignored}{mark} ms={ms}"),
            );
        };
        for (name, attack) in CASES {
            one(name, &attack);
        }
        if let Some(pair) = pair {
            one("slot-of-two-cpus", &|bridge| two_cpus(bridge, pair));
        }
    });
}

impl<'a> Bridge<'a> {
    fn open(ecam: &'a Ecam, port: Function) -> Option<Self> {
        let behind = ecam.function(port.secondary_bus()?, 0, 0);
        let saved = save(port.configuration());
        let saved_behind = behind.map(|function| save(function.configuration()));
        Some(Self {
            ecam,
            port,
            behind,
            saved,
            saved_behind,
        })
    }

    fn space(&self) -> &Registers {
        self.port.configuration()
    }

    fn capability(&self, id: u8) -> usize {
        // Beyond configuration space nothing is written.
        self.port.capabilities(id).next().unwrap_or(SPACE_BYTES)
    }

    fn is_whole_again(&self) -> bool {
        restore(self.space(), &self.saved);
        if let (Some(function), Some(saved)) = (self.behind, &self.saved_behind) {
            restore(function.configuration(), saved);
        }
        let is_same = |space: &Registers, saved: &Words| {
            // Identity, class, header, BARs and windows; not what a guest may clear.
            save(space)
                .iter()
                .zip(saved)
                .enumerate()
                .all(|(word, (now, before))| {
                    now == before || word == COMMAND / 4 || word >= 0x40 / 4
                })
        };
        let behind = match (self.behind, &self.saved_behind) {
            (Some(function), Some(saved)) => is_same(function.configuration(), saved),
            _ => true,
        };
        behind && is_same(self.space(), &self.saved)
    }

    /// Looks at, and writes to, all buses by configuration space.
    fn touch_buses(&self) {
        for bus in (0..=u8::MAX).step_by(3) {
            for device in [0, 1, 31] {
                // On bus 0 are those that are needed.
                if let Some(function) = self.ecam.function(bus, device, 0)
                    && bus != 0
                {
                    function.configuration().write16(COMMAND, FORWARD);
                }
            }
        }
    }
}

fn save(space: &Registers) -> Words {
    core::array::from_fn(|word| space.read32(word * 4))
}

fn restore(space: &Registers, words: &Words) {
    for (word, value) in words.iter().enumerate() {
        space.write32(word * 4, *value);
    }
}

fn written_everywhere(bridge: &Bridge<'_>) {
    let space = bridge.space();
    for value in [0, u64::MAX, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa] {
        for bytes in [4, 2, 1] {
            for offset in (0..HEADER_BYTES).step_by(bytes) {
                space.poke(offset, bytes, value);
                space.peek(offset, bytes);
            }
        }
    }
}

fn odd_accesses(bridge: &Bridge<'_>) {
    let space = bridge.space();
    for bytes in [1, 2, 4, 8] {
        let end = SPACE_BYTES - 16..SPACE_BYTES;
        for offset in (0..HEADER_BYTES + 8).chain(end) {
            space.peek(offset, bytes);
            space.poke(offset, bytes, BEYOND_MEMORY.rotate_left(7));
        }
    }
}

fn bus_numbers(bridge: &Bridge<'_>) {
    let space = bridge.space();
    for [primary, secondary, subordinate] in [
        [0, 0, 0],
        [0, 0, 0xff],
        [0, 0xff, 0xff],
        [0, 0xff, 0],
        [0xff, 1, 0],
        [7, 7, 7],
        [0, 1, 0xff],
        [0xff, 0xff, 0xff],
    ] {
        space.write32(
            BUS_NUMBERS,
            u32::from_le_bytes([primary, secondary, subordinate, 0xff]),
        );
        bridge.touch_buses();
    }
}

fn all_buses(bridge: &Bridge<'_>) {
    for secondary in 0..=u8::MAX {
        let numbers = u32::from_le_bytes([0, secondary, u8::MAX, 0]);
        bridge.space().write32(BUS_NUMBERS, numbers);
        bridge.ecam.function(secondary, 0, 0);
    }
    bridge.touch_buses();
}

fn windows(bridge: &Bridge<'_>) {
    let space = bridge.space();
    space.write16(COMMAND, FORWARD);
    for [window, upper_base, upper_limit] in [
        [0xfff0_0000, 0, u32::MAX],
        [0, 0, 0],
        [u32::MAX, u32::MAX, u32::MAX],
        [0x0000_fff0, u32::MAX, 0],
        [0xfee0_fee0, 0, 0],
        [0xb000_b000, 1, 1],
    ] {
        space.write32(MEMORY_WINDOW, window);
        space.write32(PREFETCHABLE_WINDOW, window);
        space.write32(PREFETCHABLE_UPPER, upper_base);
        space.write32(PREFETCHABLE_UPPER + 4, upper_limit);
        let Some(function) = &bridge.behind else {
            continue;
        };
        for bar in [
            0,
            0x10_0000,
            0xfee0_0000,
            0xb000_0000,
            0xfec0_0000,
            u32::MAX,
        ] {
            function.configuration().write16(COMMAND, FORWARD);
            for register in 0..6 {
                function.configuration().write32(BAR0 + register * 4, bar);
            }
        }
    }
}

fn reset_storm(bridge: &Bridge<'_>) {
    for _ in 0..STORM {
        bridge.space().write16(BRIDGE_CONTROL, SECONDARY_RESET);
        bridge.space().write16(BRIDGE_CONTROL, 0);
    }
}

fn power_storm(bridge: &Bridge<'_>) {
    switch_power(bridge, STORM);
}

fn switch_power(bridge: &Bridge<'_>, times: usize) {
    let control = bridge.capability(CAPABILITY_EXPRESS) + SLOT_CONTROL;
    for round in 0..times {
        let power = if round % 2 == 0 { POWER_OFF } else { 0 };
        bridge.space().write16(control, power | ALL_EVENTS);
    }
}

fn messages(bridge: &Bridge<'_>) {
    let msi = bridge.capability(CAPABILITY_MSI);
    for address in [0, 0x1000, 0xfee0_0000 | 0xff << 12, 0xfec0_0000, u64::MAX] {
        bridge.space().write64(msi + 4, address);
        // A vector below 16, and the deliveries as NMI and SMI.
        for data in [0, 0x0400, 0x0200] {
            bridge.space().write16(msi + 12, data);
            for control in [1, 0, u16::MAX] {
                // While it is masked, and then not.
                for mask in [u32::MAX, 0] {
                    bridge.space().write32(msi + 16, mask);
                    bridge.space().write16(msi + 2, control);
                }
                switch_power(bridge, 4);
            }
        }
    }
}

/// The slot is switched, its bus reset and moved, and its messages are unmasked, by both.
fn two_cpus(bridge: &Bridge<'_>, pair: &Pair<'_>) {
    const POWERS: [u16; 2] = [POWER_OFF | ALL_EVENTS, ALL_EVENTS];
    let space = bridge.space();
    let control = bridge.capability(CAPABILITY_EXPRESS) + SLOT_CONTROL;
    let status = control + 2;
    let msi = bridge.capability(CAPABILITY_MSI);
    let numbers = space.read32(BUS_NUMBERS).into();
    let mut table = Table::new();
    for power in POWERS {
        table.add(space.place(control, 2), power.into());
        table.add(space.place(status, 2), u64::MAX);
        table.add(space.place(BRIDGE_CONTROL, 2), SECONDARY_RESET.into());
        table.add(space.place(msi + 4, 4), 0);
        table.add(space.place(msi + 2, 2), 1);
        table.add(space.place(msi + 16, 4), u64::MAX);
        table.add(space.place(BRIDGE_CONTROL, 2), 0);
        table.add(space.place(msi + 16, 4), 0);
        table.add(space.place(BUS_NUMBERS, 4), 0);
        table.add(space.place(msi + 2, 2), 0);
        table.add(space.place(BUS_NUMBERS, 4), numbers);
    }
    pair.race(&table, || {
        for power in POWERS {
            space.write16(control, power);
            space.read32(control);
            if let Some(behind) = &bridge.behind {
                behind.configuration().write16(COMMAND, u16::MAX);
                behind.configuration().write32(BAR0, u32::MAX);
                behind.configuration().read32(BAR0);
            }
            space.write16(status, u16::MAX);
        }
    });
    space.write16(BRIDGE_CONTROL, 0);
}
