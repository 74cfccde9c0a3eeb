//! The device as firmware finds it, and as a hostile guest uses it.

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::state::kept::assert_format_is_kept;

const DESCRIPTOR: u64 = 0x1000;
const BUFFER: u64 = 0x2000;
const RAM_BYTES: usize = 1 << 20;

fn ram() -> Arc<GuestRam> {
    Arc::new(GuestRam::from_ranges(&[(GuestAddress(0), RAM_BYTES)]).unwrap())
}

fn device() -> FwCfg {
    let mut items = Items::default();
    items.add(5, Content::Fixed(vec![2, 0])).unwrap();
    items
        .add_file("etc/e820", Content::Fixed((0..40).collect()))
        .unwrap();
    // By name the first is not the one that may be written.
    items
        .add_file("etc/vmgenid_addr", Content::Written(8))
        .unwrap();
    let make = Box::new(|| vec![7; 3]);
    items
        .add_file("etc/made", Content::Made { bytes: 4, make })
        .unwrap();
    FwCfg::new(items, ram())
}

fn select(device: &mut FwCfg, key: u16) {
    device.write(SELECTOR, &key.to_le_bytes());
}

fn bytes(device: &mut FwCfg, count: usize) -> Vec<u8> {
    let mut byte = [0];
    (0..count)
        .map(|_| {
            device.read(DATA, &mut byte);
            byte[0]
        })
        .collect()
}

/// Key of a file, found as firmware finds it.
fn find(device: &mut FwCfg, name: &str) -> (u16, u32) {
    select(device, 0x19);
    let count = bytes(device, 4);
    for _ in 0..count[3] {
        let entry = bytes(device, 64);
        let end = entry[8..].iter().position(|byte| *byte == 0).unwrap();
        if &entry[8..8 + end] == name.as_bytes() {
            let size = u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]]);
            return (u16::from_be_bytes([entry[4], entry[5]]), size);
        }
    }
    panic!("no file {name}");
}

/// One transfer; what the guest then finds as its control word.
fn dma(device: &mut FwCfg, control: u32, length: u32, address: u64) -> u32 {
    let mut descriptor = Vec::new();
    descriptor.extend(control.to_be_bytes());
    descriptor.extend(length.to_be_bytes());
    descriptor.extend(address.to_be_bytes());
    let ram = Arc::clone(&device.ram);
    ram.write_slice(&descriptor, GuestAddress(DESCRIPTOR))
        .unwrap();
    device.write(DMA_HIGH, &[0; 4]);
    device.write(DMA_LOW, &u32::try_from(DESCRIPTOR).unwrap().to_be_bytes());
    u32::from_be_bytes(ram.read_obj(GuestAddress(DESCRIPTOR)).unwrap())
}

fn memory<const N: usize>(device: &FwCfg, address: u64) -> [u8; N] {
    let mut data = [0; N];
    device
        .ram
        .read_slice(&mut data, GuestAddress(address))
        .unwrap();
    data
}

#[test]
fn firmware_finds_signature_features_keys_and_files() {
    let mut device = device();
    assert_eq!(bytes(&mut device, 5), *b"QEMU\0");
    select(&mut device, 1);
    assert_eq!(bytes(&mut device, 4), [3, 0, 0, 0]);
    select(&mut device, 5);
    assert_eq!(bytes(&mut device, 3), [2, 0, 0]);
    let (key, size) = find(&mut device, "etc/e820");
    assert_eq!(size, 40);
    select(&mut device, key);
    assert_eq!(
        bytes(&mut device, 41),
        (0..40).chain([0]).collect::<Vec<u8>>()
    );
    let (key, size) = find(&mut device, "etc/made");
    select(&mut device, key);
    // What is made too short is filled up: the directory said how long it is.
    assert_eq!((size, bytes(&mut device, 4)), (4, vec![7, 7, 7, 0]));
    select(&mut device, 0x3fff);
    assert_eq!(bytes(&mut device, 2), [0, 0]);
    let mut signature = [0; 4];
    device.read(DMA_HIGH, &mut signature);
    assert_eq!(signature, *b"QEMU");
    device.read(DMA_LOW, &mut signature);
    assert_eq!(signature, *b" CFG");
}

#[test]
fn dma_selects_skips_and_reads_and_zeros_follow_an_items_end() {
    let mut device = device();
    let (key, _) = find(&mut device, "etc/e820");
    let select = u32::from(key) << 16 | 8;
    assert_eq!(dma(&mut device, select | 4, 30, 0), 0);
    device
        .ram
        .write_slice(&[0xee; 16], GuestAddress(BUFFER))
        .unwrap();
    assert_eq!(dma(&mut device, 2, 14, BUFFER), 0);
    let mut wanted: Vec<u8> = (30..40).collect();
    wanted.extend([0, 0, 0, 0, 0xee, 0xee]);
    assert_eq!(memory::<16>(&device, BUFFER).to_vec(), wanted);
    // Nothing is left.
    assert_eq!(dma(&mut device, 2, 1, BUFFER), 0);
    assert_eq!(memory::<1>(&device, BUFFER), [0]);
}

#[test]
fn only_what_may_be_written_is_written() {
    let mut device = device();
    let (key, _) = find(&mut device, "etc/vmgenid_addr");
    let (fixed, _) = find(&mut device, "etc/e820");
    device
        .ram
        .write_slice(&[9; 9], GuestAddress(BUFFER))
        .unwrap();
    let select = |key: u16| u32::from(key) << 16 | 8 | 16;
    assert_eq!(dma(&mut device, select(fixed), 1, BUFFER), 1);
    assert_eq!(dma(&mut device, select(key), 9, BUFFER), 1);
    assert_eq!(dma(&mut device, select(key), 8, BUFFER), 0);
    assert_eq!(device.written("etc/vmgenid_addr"), Some(&[9; 8][..]));
    assert_eq!(device.written("etc/e820"), None);
    assert_eq!(dma(&mut device, 16, 1, BUFFER), 1, "beyond its end");
    device.reset();
    assert_eq!(device.written("etc/vmgenid_addr"), Some(&[0; 8][..]));
}

#[test]
fn memory_that_is_not_there_and_lengths_that_are_too_large_are_errors() {
    let mut device = device();
    let beyond = RAM_BYTES as u64;
    assert_eq!(dma(&mut device, 2, 4, beyond - 2), 1);
    assert_eq!(dma(&mut device, 2, 4, u64::MAX - 1), 1);
    assert_eq!(dma(&mut device, 2, u32::MAX, 0x4000), 1);
    assert_eq!(dma(&mut device, 2, 1 << 20, 0x4000), 1, "zeros beyond RAM");
    assert_eq!(dma(&mut device, 4, u32::MAX, 0), 0);
    assert_eq!(dma(&mut device, 4, u32::MAX, 0), 0, "offsets do not wrap");
    // A descriptor outside RAM: there is nowhere to write an error to, so nothing happens.
    device.write(DMA_HIGH, &[0xff; 4]);
    device.write(DMA_LOW, &[0xff; 4]);
}

#[test]
fn names_and_keys_are_given_once() {
    let mut items = Items::default();
    let fixed = || Content::Fixed(vec![1]);
    items.add(3, fixed()).unwrap();
    assert_eq!(items.add(3, fixed()), Err(ItemError::Key(3)));
    assert_eq!(items.add(0x19, fixed()), Err(ItemError::Key(0x19)));
    items.add_file("a", fixed()).unwrap();
    let long = "x".repeat(MAX_FILE_NAME_BYTES + 1);
    for name in ["a", "", "a b", long.as_str()] {
        assert_eq!(
            items.add_file(name, fixed()),
            Err(ItemError::Name(name.to_owned()))
        );
    }
}

#[test]
fn a_restored_device_goes_on_in_the_middle_of_an_item() {
    let mut device = device();
    let (key, _) = find(&mut device, "etc/vmgenid_addr");
    device
        .ram
        .write_slice(&[5; 8], GuestAddress(BUFFER))
        .unwrap();
    dma(&mut device, u32::from(key) << 16 | 8 | 16, 8, BUFFER);
    let (key, _) = find(&mut device, "etc/e820");
    select(&mut device, key);
    bytes(&mut device, 10);
    device.write(DMA_HIGH, &[0, 0, 0, 1]);
    let saved = device.save();
    let mut other = self::device();
    other.load(&saved).unwrap();
    assert_eq!(other.save(), saved);
    assert_eq!(bytes(&mut other, 2), [10, 11]);
    assert_eq!(other.written("etc/vmgenid_addr"), Some(&[5; 8][..]));
    let mut plain = FwCfg::new(Items::default(), ram());
    plain.load(&saved).unwrap_err();
}

#[test]
fn the_format_is_kept() {
    assert_format_is_kept::<FwCfgState>();
}

proptest! {
    #[test]
    fn no_guest_brings_it_out_of_step(
        steps in prop::collection::vec((any::<bool>(), 0u64..12, any::<u32>(), 0usize..5), 0..200),
    ) {
        let mut device = device();
        for (is_write, offset, value, width) in steps {
            let mut data = value.to_le_bytes();
            let part = &mut data[..width.min(4)];
            if is_write {
                device.write(offset, part);
            } else {
                device.read(offset, part);
            }
            let saved = device.save();
            let mut other = self::device();
            other.load(&saved).unwrap();
            prop_assert_eq!(other.save(), saved);
        }
    }
}
