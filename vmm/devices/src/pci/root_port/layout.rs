//! Which registers a root port has, and what guests may write.

use super::registers::{
    BRIDGE_CONTROL, BRIDGE_CONTROL_WRITABLE, BUS_NUMBERS, CAPABILITY_EXPRESS, HEADER_TYPE,
    MEMORY_WINDOW, PREFETCHABLE_UPPER, PREFETCHABLE_WINDOW, WINDOW_64_BITS, WINDOW_LOW_BITS,
    express,
};
use crate::pci::config::{ConfigSpace, LayoutError};

const HEADER_BRIDGE: u8 = 1;

/// Header of type 1.
pub(super) fn lay_out_header(space: &mut ConfigSpace) {
    let window = !WINDOW_LOW_BITS;
    let wide = WINDOW_64_BITS.to_le_bytes();
    space.fix(HEADER_TYPE, &[HEADER_BRIDGE]);
    space.allow(usize::from(BUS_NUMBERS), &[0xff; 3]);
    for at in [
        MEMORY_WINDOW,
        MEMORY_WINDOW + 2,
        PREFETCHABLE_WINDOW,
        PREFETCHABLE_WINDOW + 2,
    ] {
        space.allow(usize::from(at), &window.to_le_bytes());
    }
    space.fix(usize::from(PREFETCHABLE_WINDOW), &wide);
    space.fix(usize::from(PREFETCHABLE_WINDOW) + 2, &wide);
    space.allow(usize::from(PREFETCHABLE_UPPER), &[0xff; 8]);
    space.allow(
        usize::from(BRIDGE_CONTROL),
        &BRIDGE_CONTROL_WRITABLE.to_le_bytes(),
    );
}

/// The PCI Express capability; gives its offset.
pub(super) fn add_express(space: &mut ConfigSpace, port: u8) -> Result<u16, LayoutError> {
    let mut body = [0; express::BODY_BYTES];
    let mut writable = [0; express::BODY_BYTES];
    let link = express::LINK | u32::from(port) << 24;
    let fixed: [(usize, &[u8]); 6] = [
        (
            express::CAPABILITIES,
            &express::ROOT_PORT_WITH_SLOT.to_le_bytes(),
        ),
        (
            express::DEVICE_CAPABILITIES,
            &express::ROLE_BASED_ERRORS.to_le_bytes(),
        ),
        (express::LINK_CAPABILITIES, &link.to_le_bytes()),
        (express::SLOT_CAPABILITIES, &express::SLOT.to_le_bytes()),
        (express::LINK_CAPABILITIES_2, &express::SPEEDS.to_le_bytes()),
        (
            express::LINK_CONTROL_2,
            &express::TARGET_SPEED.to_le_bytes(),
        ),
    ];
    let masks = [
        (express::DEVICE_CONTROL, express::DEVICE_CONTROL_WRITABLE),
        (express::LINK_CONTROL, express::LINK_CONTROL_WRITABLE),
        (express::SLOT_CONTROL, express::SLOT_CONTROL_WRITABLE),
        (express::ROOT_CONTROL, express::ROOT_CONTROL_WRITABLE),
    ];
    for (at, bytes) in fixed {
        put(&mut body, at, bytes);
    }
    for (at, mask) in masks {
        put(&mut writable, at, &mask.to_le_bytes());
    }
    space.add_capability(CAPABILITY_EXPRESS, &body, &writable)
}

/// Puts bytes at an offset from the capability's start into what follows its two first bytes.
fn put(body: &mut [u8], offset: usize, bytes: &[u8]) {
    let start = offset.saturating_sub(2);
    if let Some(field) = body.get_mut(start..start + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}
