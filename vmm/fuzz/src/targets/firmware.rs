//! What firmware, and whatever comes after it, reaches: its configuration with DMA, and flash memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress};
use vmm_devices::fw_cfg::{Content, FwCfg, Items};
use vmm_devices::pflash::{BLOCK_BYTES, Flash};
use vmm_devices::{BusDevice, GuestRam, Payload};

use crate::guest::{RAM_BYTES, ram};
use crate::input::Input;

const MAX_STEPS: usize = 300;
/// Commands of flash memory; others come by chance.
const COMMANDS: [u8; 12] = [
    0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0x90, 0x98, 0xd0, 0xe8, 0xff, 0x00,
];
const FLASH_BYTES: u64 = 2 * BLOCK_BYTES;

fn fw_cfg_device(memory: &Arc<GuestRam>) -> FwCfg {
    let mut items = Items::default();
    let make = Box::new(|| vec![7; 5000]);
    items.add(5, Content::Fixed(vec![2, 0])).expect("a key");
    let files = [
        ("etc/e820", Content::Fixed(vec![3; 40])),
        ("etc/made", Content::Made { bytes: 5000, make }),
        ("etc/written", Content::Written(8)),
    ];
    for (name, content) in files {
        items.add_file(name, content).expect("a file");
    }
    FwCfg::new(items, Arc::clone(memory))
}

/// Firmware configuration: ports, descriptors anywhere, its state.
pub fn fw_cfg(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let memory = ram();
    let mut device = fw_cfg_device(&memory);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        match input.below(6) {
            0 => device.write(u64::from(input.u8() % 13), &input.access()),
            1 => device.read(u64::from(input.u8() % 13), &mut input.access()),
            2 => device.write(0, &[input.u8() % 48, input.u8() & 0x40]),
            3 => {
                // A whole descriptor in memory, and its address to the device.
                let at = u64::from(input.u32()) % RAM_BYTES;
                let mut descriptor = [0, input.u8(), 0, input.u8() & 0x1f].to_vec();
                descriptor.extend((input.u32() >> (input.u8() % 32)).to_be_bytes());
                descriptor.extend((u64::from(input.u32()) % (2 * RAM_BYTES)).to_be_bytes());
                // What lies beyond the end is not there.
                drop(memory.write_slice(&descriptor, GuestAddress(at)));
                let [.., a, b, c, d] = at.to_be_bytes();
                device.write(8, &[a, b, c, d]);
            }
            4 => {
                let saved = device.save();
                let mut other = fw_cfg_device(&memory);
                other.load(&saved).expect("its own state");
                device = other;
            }
            _ => drop(device.load(&damaged(device.save(), &mut input))),
        }
    }
    device.reset();
    let mut signature = [0; 4];
    for byte in &mut signature {
        device.read(1, std::slice::from_mut(byte));
    }
    assert_eq!(&signature, b"QEMU", "no signature after a reset");
}

/// Flash memory: commands, its content in the store, its state.
pub fn pflash(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let file = tempfile::tempfile().expect("a file");
    file.set_len(FLASH_BYTES).expect("room");
    let open = |file: &File| Flash::new(file.try_clone().expect("a descriptor")).expect("flash");
    let mut flash = open(&file);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        let offset = u64::from(input.u16()) % (FLASH_BYTES + 16);
        match input.below(8) {
            0..=3 => flash.write(offset, &[COMMANDS[input.below(COMMANDS.len())]]),
            4 => flash.write(input.u64() >> (input.u8() % 64), &input.access()),
            5 => flash.read(offset, &mut input.access()),
            6 => {
                let saved = flash.save();
                let mut other = open(&file);
                other.load(&saved).expect("its own state");
                flash = other;
            }
            _ => {
                let damaged = damaged(flash.save(), &mut input);
                drop(flash.load(&damaged));
            }
        }
    }
    flash.reset();
    let length = usize::try_from(FLASH_BYTES).expect("a small flash");
    let (mut memory, mut stored) = (vec![0; length], vec![0; length]);
    flash.read(0, &mut memory);
    file.read_exact_at(&mut stored, 0).expect("the store");
    assert!(memory == stored, "memory and store differ");
}

fn damaged(saved: Payload, input: &mut Input<'_>) -> Payload {
    let Payload {
        kind,
        version,
        mut bytes,
    } = saved;
    let at = usize::from(input.u8());
    let value = input.u8();
    match bytes.get_mut(at) {
        Some(byte) => *byte ^= value,
        None => bytes.push(value),
    }
    Payload {
        kind,
        version,
        bytes,
    }
}
