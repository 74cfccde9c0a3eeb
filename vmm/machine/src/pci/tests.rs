//! The bus as a guest sees it, with a real root port and functions that only have BARs.

mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use vmm_devices::pci::config::{ConfigSpace, PciIdentity};
use vmm_devices::pci::root_port::RootPort;
use vmm_devices::{
    BarKind, BarWindow, ConfigEffect, ConfigImage, EventSource, IoEvent, MsiBinding, MsiError,
    MsiMessage, Payload, PciFunction, QuiesceError,
};
use vmm_memory::{Layout, RomMemory};
use vmm_sys_util::eventfd::EventFd;

use super::address::PciAddress;
use super::bus::PciBus;
use super::hooks::BindKick;
use super::{ConfigPages, MapPage, PAGE_BYTES, PlacedFunction, ecam_read, ecam_write};

const BAR_BYTES: u64 = 0x8000;
const KICK: u64 = 0x3000;
const COMMAND_MEMORY: u8 = 2;
const INTERRUPT_LINE: u16 = 0x3c;
/// While this is in the interrupt line's register, reads of a function have effects.
const LIVELY: u8 = 0x55;
/// Where root ports and functions are in these tests.
const PORTS: [(u8, u8); 3] = [(16, 1), (17, 2), (18, 0x81)];

/// BAR 0, whose bytes read as its number, and a kick.
struct Plain {
    number: u8,
    space: ConfigSpace,
    kick: Arc<EventFd>,
}

impl Plain {
    fn boxed(number: u8) -> Box<dyn PciFunction> {
        let mut space = ConfigSpace::new(PciIdentity {
            vendor: 0x1af4,
            device: 0x1040 + u16::from(number),
            revision: 1,
            class: 0xff_0000,
            subsystem_vendor: 0x1af4,
            subsystem: 1,
        });
        space.add_bar(0, BAR_BYTES, BarKind::Memory64).unwrap();
        let kick = Arc::new(EventFd::new(0).unwrap());
        Box::new(Self {
            number,
            space,
            kick,
        })
    }
}

impl PciFunction for Plain {
    fn config_read(&mut self, offset: u16, data: &mut [u8]) {
        self.space.read(offset, data);
    }

    fn config_write(&mut self, offset: u16, data: &[u8]) -> ConfigEffect {
        let bars = self.space.bars();
        self.space.write(offset, data);
        ConfigEffect {
            bars_changed: self.space.bars() != bars,
            ..ConfigEffect::default()
        }
    }

    fn config_image(&self) -> Option<ConfigImage<'_>> {
        let [line, _] = self.space.u16_at(INTERRUPT_LINE).to_le_bytes();
        (line != LIVELY).then(|| self.space.image())
    }

    fn bars(&self) -> Vec<BarWindow> {
        self.space.bars()
    }

    fn set_bar(&mut self, index: usize, base: u64) {
        self.space.set_bar(index, base);
    }

    fn bar_read(&mut self, _: usize, _: u64, data: &mut [u8]) {
        data.fill(self.number);
    }

    fn bar_write(&mut self, _: usize, _: u64, _: &[u8]) {}

    fn io_events(&self) -> Vec<IoEvent> {
        vec![IoEvent {
            bar: 0,
            offset: KICK,
            event: Arc::clone(&self.kick),
        }]
    }

    fn event_sources(&self) -> Vec<EventSource> {
        Vec::new()
    }

    fn handle_event(&mut self, _: u64) {}

    fn reset(&mut self) {
        self.space.reset();
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        Ok(())
    }

    fn resume(&mut self) {}

    fn save(&self) -> Vec<Payload> {
        Vec::new()
    }
}

/// No interrupt goes anywhere here.
struct NoMsi;

impl MsiBinding for NoMsi {
    fn vector_event(&self, _: u16) -> Result<Arc<EventFd>, MsiError> {
        Ok(Arc::new(EventFd::new(0).unwrap()))
    }

    fn route(&self, _: u16, _: MsiMessage) -> Result<(), MsiError> {
        Ok(())
    }

    fn unroute(&self, _: u16) -> Result<(), MsiError> {
        Ok(())
    }
}

struct World {
    bus: PciBus,
    layout: Layout,
    /// Addresses that kicks are bound at.
    bound: Arc<Mutex<BTreeSet<u64>>>,
    /// Where in configuration space a guest sees which page.
    seen: Arc<Mutex<BTreeMap<usize, u64>>>,
    pages: Arc<RomMemory>,
}

impl World {
    /// Functions 1 and 2 on bus 0, 3 and 4 behind the first two of three ports.
    fn new() -> Self {
        let layout = Layout::new(3 << 30, 40).unwrap();
        let place = |bus, device| PciAddress::new(bus, device).unwrap();
        let mut functions = vec![
            plain(place(0, 1), 1),
            plain(place(0, 2), 2),
            plain(place(1, 0), 3),
            plain(place(2, 0), 4),
        ];
        for (device, secondary_bus) in PORTS {
            let occupied = secondary_bus != 0x81;
            let root_port = RootPort::new(device, occupied, Arc::new(NoMsi)).unwrap();
            functions.push(PlacedFunction {
                address: place(0, device),
                function: Box::new(root_port),
                secondary_bus: Some(secondary_bus),
            });
        }
        let bound: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
        let mut bus = PciBus::new(recorder(&bound), layout, functions);
        bus.place().unwrap();
        let seen = Arc::default();
        let pages = Arc::new(RomMemory::zeroed(bus.slots().count()).unwrap());
        bus.map_config_pages(ConfigPages::new(Arc::clone(&pages), watcher(&seen)));
        Self {
            bus,
            layout,
            bound,
            seen,
            pages,
        }
    }

    /// What a guest reads at an offset of configuration space without coming out, if it can.
    fn seen(&self, offset: u64) -> Option<u32> {
        let seen = self.seen.lock().unwrap();
        let within = |at: &u64| (*at..at + PAGE_BYTES as u64).contains(&offset);
        let (page, at) = seen.iter().find(|(_, at)| within(at))?;
        let mut data = [0; 4];
        let start = page * PAGE_BYTES + usize::try_from(offset - at).unwrap();
        self.pages.read(start, &mut data);
        Some(u32::from_le_bytes(data))
    }

    /// Whatever is seen is what an exit would give.
    fn check_pages(&self) {
        let seen: Vec<_> = self.seen.lock().unwrap().values().copied().collect();
        for offset in seen {
            for register in (offset..offset + 0x108).step_by(4).chain([offset + 0xffc]) {
                let mut data = [0; 4];
                ecam_read(&self.bus, register, &mut data);
                assert_eq!(self.seen(register), Some(u32::from_le_bytes(data)));
            }
        }
    }

    fn read(&self, bus: u8, device: u8, register: u16) -> u32 {
        let mut data = [0; 4];
        ecam_read(&self.bus, ecam(bus, device, register), &mut data);
        u32::from_le_bytes(data)
    }

    fn write(&self, bus: u8, device: u8, register: u16, data: &[u8]) {
        ecam_write(&self.bus, ecam(bus, device, register), data);
    }

    fn bar(&self, bus: u8, device: u8) -> u64 {
        u64::from(self.read(bus, device, 0x14)) << 32
            | u64::from(self.read(bus, device, 0x10) & !0xf)
    }

    /// The number of the function that answers at an address; 0xff for none.
    fn answers(&self, address: u64) -> u8 {
        let mut data = [0];
        self.bus.mmio_read(address, &mut data);
        data[0]
    }

    /// What must hold whatever a guest has written.
    fn check(&self) {
        let map = self.bus.map.read().unwrap();
        let ranges: Vec<_> = map.ranges().collect();
        assert!(
            ranges
                .windows(2)
                .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
        );
        for (base, bytes) in &ranges {
            let windows = [self.layout.mmio32(), self.layout.mmio64()];
            assert!(windows.iter().any(|window| window.contains(*base, *bytes)));
            assert!(
                self.layout
                    .ram()
                    .all(|ram| base + bytes <= ram.base || ram.end() <= *base)
            );
        }
        let kicks: Vec<_> = ranges.iter().map(|(base, _)| base + KICK).collect();
        let bound: Vec<_> = self.bound.lock().unwrap().iter().copied().collect();
        assert_eq!(bound, kicks);
        let mut mapped = 0;
        for slot in self.bus.slots() {
            let bars = slot.function().bars();
            for bar in slot.mapped.lock().unwrap().iter() {
                assert!(bars.contains(&bar.window) && bar.window.decoded);
                assert!(slot.is_reached(bar.window));
                assert!(ranges.contains(&(bar.window.base, bar.window.size)));
                mapped += 1;
            }
        }
        assert_eq!(mapped, ranges.len());
        drop(map);
        self.check_pages();
    }
}

fn plain(address: PciAddress, number: u8) -> PlacedFunction {
    PlacedFunction {
        address,
        function: Plain::boxed(number),
        secondary_bus: None,
    }
}

fn recorder(bound: &Arc<Mutex<BTreeSet<u64>>>) -> BindKick {
    let bound = Arc::clone(bound);
    Box::new(move |_, address| {
        assert!(bound.lock().unwrap().insert(address), "bound twice");
        let bound = Arc::clone(&bound);
        Some(Box::new(move || {
            assert!(bound.lock().unwrap().remove(&address), "bound no more");
        }))
    })
}

fn watcher(seen: &Arc<Mutex<BTreeMap<usize, u64>>>) -> MapPage {
    let seen = Arc::clone(seen);
    Box::new(move |page, offset| {
        let mut seen = seen.lock().unwrap();
        seen.remove(&page);
        // As KVM, which refuses what overlaps.
        let fits = offset.filter(|offset| seen.values().all(|other| other != offset));
        if let Some(offset) = fits {
            seen.insert(page, offset);
        }
        fits.is_some()
    })
}

fn ecam(bus: u8, device: u8, register: u16) -> u64 {
    u64::from(bus) << 20 | u64::from(device) << 15 | u64::from(register)
}

#[test]
fn functions_are_where_the_configuration_says() {
    let world = World::new();
    assert_eq!(world.read(0, 0, 0), 0x29c0_8086);
    assert_eq!(world.read(0, 1, 0), 0x1041_1af4);
    assert_eq!(world.read(1, 0, 0), 0x1043_1af4);
    assert_eq!(world.read(2, 0, 0), 0x1044_1af4);
    for (bus, device) in [(0, 3), (1, 1), (3, 0), (0x81, 0)] {
        assert_eq!(world.read(bus, device, 0), u32::MAX);
    }
    assert_eq!(world.read(0, 18, 0x18), 0x81_8100);
}

#[test]
fn a_function_answers_at_its_bar_once_memory_is_decoded() {
    let world = World::new();
    for (bus, device, number) in [(0, 1, 1), (0, 2, 2), (1, 0, 3), (2, 0, 4)] {
        let bar = world.bar(bus, device);
        assert_eq!(world.answers(bar), 0xff);
        world.write(bus, device, 4, &[COMMAND_MEMORY, 0]);
        assert_eq!(world.answers(bar), number);
        assert_eq!(world.answers(bar + BAR_BYTES - 1), number);
        world.check();
    }
    world.bus.reset().unwrap();
    world.check();
    assert!(world.bound.lock().unwrap().is_empty());
}

#[test]
fn a_function_moves_with_the_bus_numbers_of_its_bridge() {
    let world = World::new();
    world.write(0, 16, 0x18, &[0, 0x40, 0x42]);
    assert_eq!(world.read(1, 0, 0), u32::MAX);
    assert_eq!(world.read(0x40, 0, 0), 0x1043_1af4);
    // Behind the port there is no further bridge.
    assert_eq!(world.read(0x41, 0, 0), u32::MAX);
    // Two ports with one number: the first has it.
    world.write(0, 17, 0x18, &[0, 0x40, 0x40]);
    assert_eq!(world.read(0x40, 0, 0), 0x1043_1af4);
    world.bus.reset().unwrap();
    assert_eq!(world.read(1, 0, 0), 0x1043_1af4);
}

#[test]
fn a_bar_is_reached_only_through_the_window_of_its_bridge() {
    let world = World::new();
    world.write(1, 0, 4, &[COMMAND_MEMORY, 0]);
    let bar = world.bar(1, 0);
    let [window, limit] = [0x20, 0x22].map(|at| world.read(0, 16, at).to_le_bytes());
    assert_eq!(world.answers(bar), 3);
    // The window closes, moves away, comes back.
    world.write(0, 16, 4, &[0, 0]);
    assert_eq!(world.answers(bar), 0xff);
    assert!(world.bound.lock().unwrap().is_empty());
    world.write(0, 16, 4, &[COMMAND_MEMORY, 0]);
    assert_eq!(world.answers(bar), 3);
    world.write(0, 16, 0x20, &[0, 0xf0, 0, 0xf0]);
    assert_eq!(world.answers(bar), 0xff);
    world.check();
    world.write(0, 16, 0x20, &window[..2]);
    world.write(0, 16, 0x22, &limit[..2]);
    assert_eq!(world.answers(bar), 3);
    // The BAR leaves the window.
    world.write(1, 0, 0x10, &0xf000_0000u32.to_le_bytes());
    assert_eq!(world.answers(0xf000_0000), 0xff);
    world.check();
}

#[test]
fn a_bar_that_found_its_addresses_taken_has_them_when_they_become_free() {
    let world = World::new();
    let first = world.bar(0, 1);
    world.write(0, 1, 4, &[COMMAND_MEMORY, 0]);
    world.write(0, 2, 0x10, &u32::try_from(first).unwrap().to_le_bytes());
    world.write(0, 2, 4, &[COMMAND_MEMORY, 0]);
    assert_eq!(world.answers(first), 1);
    world.check();
    world.write(0, 1, 4, &[0, 0]);
    assert_eq!(world.answers(first), 2);
    world.check();
}

#[test]
fn a_secondary_bus_reset_resets_the_function_behind() {
    let world = World::new();
    world.write(1, 0, 4, &[COMMAND_MEMORY, 0]);
    let bar = world.bar(1, 0);
    world.write(0, 16, 0x3e, &[0x40, 0]);
    assert_eq!(world.read(1, 0, 0), u32::MAX);
    assert_eq!(world.answers(bar), 0xff);
    world.write(0, 16, 0x3e, &[0, 0]);
    assert_eq!(world.read(1, 0, 0), 0x1043_1af4);
    assert_eq!((world.bar(1, 0), world.read(1, 0, 4) & 0xffff), (0, 0));
    world.check();
}

#[test]
fn a_guest_sees_all_functions_where_they_are_and_nothing_elsewhere() {
    let world = World::new();
    for (bus, device) in [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (2, 0),
        (0, 16),
        (0, 17),
        (0, 18),
    ] {
        let offset = ecam(bus, device, 0);
        assert_eq!(world.seen(offset), Some(world.read(bus, device, 0)));
    }
    for (bus, device) in [(0, 3), (1, 1), (3, 0), (0x81, 0)] {
        assert_eq!(world.seen(ecam(bus, device, 0)), None);
    }
    // The host bridge has no extended space, which reads as ones.
    assert_eq!(world.seen(ecam(0, 0, 0x100)), Some(u32::MAX));
    assert_eq!(world.seen(ecam(0, 1, 0x100)), Some(0));
    world.check_pages();
    // Bus 1 moves, is held in reset, and comes back as after power-on.
    world.write(1, 0, INTERRUPT_LINE, &[7]);
    world.write(0, 16, 0x18, &[0, 0x40, 0x40]);
    assert_eq!(world.seen(ecam(1, 0, 0)), None);
    assert_eq!(world.seen(ecam(0x40, 0, INTERRUPT_LINE)), Some(7));
    world.write(0, 16, 0x3e, &[0x40, 0]);
    assert_eq!(world.seen(ecam(0x40, 0, 0)), None);
    world.write(0, 16, 0x3e, &[0, 0]);
    assert_eq!(world.seen(ecam(0x40, 0, INTERRUPT_LINE)), Some(0));
    world.check_pages();
}

#[test]
fn two_functions_at_one_place_are_seen_as_they_answer() {
    let world = World::new();
    world.write(0, 17, 0x18, &[0, 1, 1]);
    assert_eq!(world.seen(ecam(1, 0, 0)), Some(0x1043_1af4));
    world.write(0, 16, 0x18, &[0, 2, 2]);
    // The second port has bus 1 now, and the first one bus 2.
    assert_eq!(world.read(1, 0, 0), 0x1044_1af4);
    world.check_pages();
    // Whatever the order in which they moved: the next write shows what was in the way.
    world.write(0, 17, 4, &[0, 0]);
    world.write(0, 17, 4, &[COMMAND_MEMORY, 0]);
    assert_eq!(world.seen(ecam(1, 0, 0)), Some(0x1044_1af4));
    assert_eq!(world.seen(ecam(2, 0, 0)), Some(0x1043_1af4));
}

#[test]
fn a_function_whose_reads_have_effects_is_not_seen_until_it_is_reset() {
    let world = World::new();
    world.write(0, 1, INTERRUPT_LINE, &[LIVELY]);
    assert_eq!(world.seen(ecam(0, 1, 0)), None);
    // Not to have the host show and hide it all the time.
    world.write(0, 1, INTERRUPT_LINE, &[0]);
    assert_eq!(world.seen(ecam(0, 1, 0)), None);
    world.bus.reset().unwrap();
    assert_eq!(world.seen(ecam(0, 1, 0)), Some(0x1041_1af4));
    world.check_pages();
}

/// Writes that a hostile guest would make: decoding, BARs, bus numbers, windows, resets.
fn write() -> impl Strategy<Value = (u8, u8, u16, Vec<u8>)> {
    let address = prop_oneof![
        Just(0xc000_0000u32),
        Just(0xc020_0000),
        Just(0xc030_0000),
        Just(0x4000_0000),
        Just(0),
        Just(0xfec0_0000),
        Just(0xffff_ffff),
        any::<u32>(),
    ];
    let bus = prop_oneof![Just(0u8), Just(1), Just(2), Just(0x81), any::<u8>()];
    let device = prop_oneof![Just(0u8), Just(1), Just(2), 16u8..19, 0u8..32];
    let value = prop_oneof![
        address.prop_map(|address| address.to_le_bytes().to_vec()),
        prop_oneof![Just(2u8), Just(6), Just(0), Just(0x40), any::<u8>()]
            .prop_map(|byte| vec![byte, 0]),
        prop::collection::vec(any::<u8>(), 1..9),
    ];
    let register = prop_oneof![
        Just(4u16),
        Just(4),
        Just(0x10),
        Just(0x14),
        Just(0x18),
        Just(0x19),
        Just(0x20),
        Just(0x24),
        Just(0x28),
        Just(0x3e),
        0u16..0x100,
    ];
    (bus, device, register, value)
}

proptest! {
    #[test]
    fn whatever_is_programmed_no_address_is_of_two_bars_and_ram_stays_ram(
        writes in prop::collection::vec(write(), 0..120),
    ) {
        let world = World::new();
        for (bus, device) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
            world.write(bus, device, 4, &[COMMAND_MEMORY, 0]);
        }
        for (bus, device, register, data) in writes {
            world.write(bus, device, register, &data);
            world.check();
        }
        world.bus.reset().unwrap();
        world.check();
        prop_assert_eq!(world.read(1, 0, 0), 0x1043_1af4);
    }
}
