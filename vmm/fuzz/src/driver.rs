//! Programs for a virtio device: each step is something that a driver, a host or a migration does.

use vmm_devices::virtio::VirtioDevice;
use vmm_devices::{Payload, Payloads, PciFunction};

use crate::guest::{BUFFERS, Guest, QUEUE_SIZE, RAM_BYTES};
use crate::input::Input;

/// Longest program, in steps.
const MAX_STEPS: usize = 48;

/// What is special about a device.
pub trait Peer {
    /// The device after power-on.
    fn device(&self) -> Box<dyn VirtioDevice>;

    /// The device of saved state, if it can be made of it.
    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>>;

    /// The header of a request, as `input` wants it: nearly right, so that more than the first check
    /// is reached.
    fn request(&self, input: &mut Input<'_>) -> Vec<u8>;

    /// Something happens on the host's side.
    fn happen(&mut self, input: &mut Input<'_>) {
        let _ = input;
    }

    /// The device goes on with a state that was damaged and that it could not refuse.
    fn take_damage(&mut self) {}
}

/// Runs a program on a device, and sees to it that the device serves an honest driver afterwards, which then has it.
pub fn run(peer: &mut dyn Peer, bytes: &[u8]) -> Guest {
    let mut input = Input::new(bytes);
    let mut guest = Guest::new(peer.device());
    guest.start(input.u64());
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut guest, peer, &mut input);
    }
    guest.settle();
    guest.start(u64::MAX);
    guest.settle();
    guest
}

fn step(guest: &mut Guest, peer: &mut dyn Peer, input: &mut Input<'_>) {
    let queue = input.below(guest.queues());
    match input.below(16) {
        0..=3 => request(guest, peer, queue, input),
        4 => chain(guest, queue, input),
        5 => {
            let at = input.below(usize::from(QUEUE_SIZE)) as u64;
            let [table, _, _] = Guest::rings(queue);
            descriptor(guest, table + at * 16, input);
            guest.offer(queue, input.u16() % (QUEUE_SIZE + 1));
        }
        6 => guest.set_avail(queue, input.u16()),
        7 => {
            guest.kick(queue);
            guest.settle();
        }
        8 => {
            let offset = place(input);
            let data = input.access();
            guest.function.bar_write(0, offset, &data);
        }
        9 => {
            let mut data = input.access();
            let offset = place(input);
            guest.function.bar_read(0, offset, &mut data);
        }
        10 => configuration(guest, input),
        11 => {
            let offset = 0x2000 + u64::from(input.u8());
            let data = input.access();
            guest.function.bar_write(0, offset, &data);
        }
        12 => guest.start(input.u64()),
        13 => {
            peer.happen(input);
            guest.settle();
        }
        14 => moved(guest, peer, input),
        _ => {
            let address = address(input);
            let count = input.below(64);
            let data = input.bytes(count);
            guest.write(address, data);
        }
    }
}

/// A place in the BAR, mostly where registers are.
fn place(input: &mut Input<'_>) -> u64 {
    let page = u64::from(input.u8() % 9) << 12;
    if input.flag() {
        page + u64::from(input.u8() % 64)
    } else {
        page + u64::from(input.u16())
    }
}

/// A guest-physical address: mostly a buffer, sometimes the end of memory, sometimes anything.
fn address(input: &mut Input<'_>) -> u64 {
    match input.below(8) {
        0..=4 => BUFFERS + u64::from(input.u16()) * 8,
        5 => RAM_BYTES - u64::from(input.u8()),
        6 => u64::from(input.u32() % (1 << 18)),
        _ => input.u64(),
    }
}

fn length(input: &mut Input<'_>) -> u32 {
    match input.below(8) {
        0..=2 => u32::from(input.u8()),
        3..=5 => u32::from(input.u16()),
        6 => 512 * u32::from(input.u8()),
        _ => input.u32(),
    }
}

fn descriptor(guest: &Guest, at: u64, input: &mut Input<'_>) {
    let mut bytes = address(input).to_le_bytes().to_vec();
    bytes.extend(length(input).to_le_bytes());
    bytes.extend((input.u16() & 7).to_le_bytes());
    bytes.extend((input.u16() % (QUEUE_SIZE + 2)).to_le_bytes());
    guest.write(at, &bytes);
}

/// Links descriptors from 0 on: a header that was written before, buffers that are readable, then some
/// that are writable.
pub fn linked(guest: &mut Guest, queue: usize, parts: &[(u64, u32, bool)]) {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    let [table, _, _] = Guest::rings(queue);
    for (index, (address, bytes, is_writable)) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        let flags = if is_last { 0 } else { NEXT } | if *is_writable { WRITE } else { 0 };
        let next = u16::try_from(index + 1).unwrap_or(0);
        let mut descriptor = address.to_le_bytes().to_vec();
        descriptor.extend(bytes.to_le_bytes());
        descriptor.extend(flags.to_le_bytes());
        descriptor.extend(next.to_le_bytes());
        guest.write(table + index as u64 * 16, &descriptor);
    }
    guest.offer(queue, 0);
    guest.kick(queue);
    guest.settle();
}

/// A request that is nearly right.
fn request(guest: &mut Guest, peer: &dyn Peer, queue: usize, input: &mut Input<'_>) {
    const HEADER: u64 = BUFFERS + 0x8_0000;
    let header = peer.request(input);
    guest.write(HEADER, &header);
    let bytes = u32::try_from(header.len()).unwrap_or(0);
    let mut parts = Vec::new();
    match input.below(4) {
        // In one piece, in two, cut short, or none at all.
        0 | 1 => parts.push((HEADER, bytes, false)),
        2 => {
            let cut = bytes.min(input.u8().into());
            parts.push((HEADER, cut, false));
            parts.push((HEADER + u64::from(cut), bytes - cut, false));
        }
        _ => {}
    }
    for is_writable in [false, true] {
        for _ in 0..input.below(3) {
            parts.push((address(input), length(input), is_writable));
        }
    }
    if input.flag() {
        parts.push((BUFFERS + 0x8_1000, 1, true));
    }
    if !parts.is_empty() {
        linked(guest, queue, &parts);
    }
}

/// Any chain.
fn chain(guest: &mut Guest, queue: usize, input: &mut Input<'_>) {
    let [table, _, _] = Guest::rings(queue);
    let is_indirect = input.flag();
    let count = input.below(usize::from(QUEUE_SIZE)) + 1;
    let base = if is_indirect { BUFFERS } else { table };
    for index in 0..count {
        descriptor(guest, base + index as u64 * 16, input);
    }
    if is_indirect {
        let mut descriptor = base.to_le_bytes().to_vec();
        let bytes = u32::try_from(count * 16).unwrap_or(0);
        descriptor.extend(bytes.wrapping_add(input.u8() as u32 / 64).to_le_bytes());
        descriptor.extend(4u16.to_le_bytes());
        descriptor.extend(0u16.to_le_bytes());
        guest.write(table, &descriptor);
    }
    guest.offer(queue, input.u16() % QUEUE_SIZE * u16::from(input.flag()));
    guest.kick(queue);
    guest.settle();
}

fn configuration(guest: &mut Guest, input: &mut Input<'_>) {
    let offset = input.u16() % 4096;
    let mut data = input.access();
    // As the machine cuts accesses: within one doubleword.
    data.truncate(4 - usize::from(offset % 4));
    if data.len() == 3 {
        data.pop();
    }
    let effect = guest.function.config_write(offset, &data);
    let _ = (effect, guest.function.bars());
    guest.function.config_read(offset, &mut data);
}

/// Another process goes on with the device: from its state as saved, or from a damaged copy of it.
fn moved(guest: &mut Guest, peer: &mut dyn Peer, input: &mut Input<'_>) {
    let Some(saved) = guest.save() else { return };
    let mut damaged = saved.clone();
    for _ in 0..input.below(4) {
        damage(&mut damaged, input);
    }
    let is_damaged = damaged != saved;
    for (payloads, is_damaged) in [(damaged, is_damaged), (saved, false)] {
        let mut payloads = Payloads::new(payloads);
        let Some(device) = peer.restored(&mut payloads) else {
            continue;
        };
        if guest.move_to(device, payloads).is_ok() {
            guest.settle();
            if is_damaged {
                peer.take_damage();
            }
            return;
        }
    }
    // Only state that was damaged is refused; and that of the device itself was not.
    panic!("a device does not take its own state");
}

fn damage(payloads: &mut [Payload], input: &mut Input<'_>) {
    let index = input.below(payloads.len());
    let Some(payload) = payloads.get_mut(index) else {
        return;
    };
    let at = usize::from(input.u16()) % payload.bytes.len().max(1);
    let value = input.u8();
    match payload.bytes.get_mut(at) {
        Some(byte) => *byte ^= value,
        None => payload.bytes.push(value),
    }
}
