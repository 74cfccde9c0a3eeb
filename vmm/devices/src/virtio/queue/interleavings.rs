//! Every interleaving of device and driver about notifications, with every value that C11's memory model
//! lets a load return. The device's half is compiled a second time for it, on loom's atomics; the driver's
//! half is what VIRTIO 1.2 asks for (2.7.13.4 and 2.7.14).

#![allow(
    clippy::duplicate_mod,
    reason = "the same source on std's atomics is what ships"
)]

mod atomics;
#[path = "notifications.rs"]
mod notifications;

use std::convert::Infallible;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU16, fence};
use loom::thread;

use self::atomics::Ordering;
use self::notifications::{Field, Fields, Notifications};
use super::event_index;

/// Fields of the rings, and one slot of each: 0 until it is written.
#[derive(Default)]
struct Rings {
    fields: [AtomicU16; 6],
    head: AtomicU16,
    element: AtomicU16,
}

impl Rings {
    fn field(&self, field: Field) -> &AtomicU16 {
        &self.fields[field as usize]
    }
}

impl Fields for Arc<Rings> {
    type Error = Infallible;

    fn load(&self, field: Field, order: Ordering) -> Result<u16, Infallible> {
        Ok(self.field(field).load(order))
    }

    fn store(&self, field: Field, value: u16, order: Ordering) -> Result<(), Infallible> {
        self.field(field).store(value, order);
        Ok(())
    }
}

const HEAD: u16 = 3;
const ELEMENT: u16 = 4;

/// Adds a chain. True when the device wants a kick for it.
fn driver_adds(rings: &Rings, has_event_index: bool) -> bool {
    rings.head.store(HEAD, Ordering::Relaxed);
    rings.field(Field::AvailIndex).store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    if has_event_index {
        let event = rings.field(Field::AvailEvent).load(Ordering::Relaxed);
        event_index::is_passed(0, 1, event)
    } else {
        rings.field(Field::UsedFlags).load(Ordering::Relaxed) & 1 == 0
    }
}

/// Asks for an interrupt at the first used element. True when the element is there already.
fn driver_waits(rings: &Rings, has_event_index: bool) -> bool {
    if has_event_index {
        rings.field(Field::UsedEvent).store(0, Ordering::Relaxed);
    } else {
        rings.field(Field::AvailFlags).store(0, Ordering::Relaxed);
    }
    fence(Ordering::SeqCst);
    let is_there = rings.field(Field::UsedIndex).load(Ordering::Acquire) == 1;
    if is_there {
        assert_eq!(rings.element.load(Ordering::Relaxed), ELEMENT);
    }
    is_there
}

fn model(has_event_index: bool, check: fn(&Arc<Rings>, &Notifications<Arc<Rings>>)) {
    loom::model(move || {
        let rings = Arc::new(Rings::default());
        let device = Notifications {
            fields: Arc::clone(&rings),
            has_event_index,
        };
        check(&rings, &device);
    });
}

#[test]
fn a_chain_that_is_added_while_the_device_goes_to_sleep_is_seen_or_kicked_for() {
    for has_event_index in [false, true] {
        model(has_event_index, |rings, device| {
            let has_event_index = device.has_event_index;
            let Ok(()) = device.disable_notification(0);
            let driver = {
                let rings = Arc::clone(rings);
                thread::spawn(move || driver_adds(&rings, has_event_index))
            };
            let Ok(is_there) = device.enable_notification(0);
            if is_there {
                assert_eq!(rings.head.load(Ordering::Relaxed), HEAD);
            }
            let is_kicked = driver.join().unwrap();
            assert!(is_there || is_kicked, "a kick is lost");
        });
    }
}

#[test]
fn a_chain_that_is_given_back_while_the_driver_goes_to_sleep_is_seen_or_called_for() {
    for has_event_index in [false, true] {
        model(has_event_index, |rings, device| {
            let has_event_index = device.has_event_index;
            // The driver was at work, and wanted no interrupts.
            rings.field(Field::AvailFlags).store(1, Ordering::Relaxed);
            rings
                .field(Field::UsedEvent)
                .store(0x8000, Ordering::Relaxed);
            let driver = {
                let rings = Arc::clone(rings);
                thread::spawn(move || driver_waits(&rings, has_event_index))
            };
            rings.element.store(ELEMENT, Ordering::Relaxed);
            let Ok(()) = device.publish(1);
            let Ok(is_called) = device.is_call_wanted(0, 1);
            let is_there = driver.join().unwrap();
            assert!(is_there || is_called, "an interrupt is lost");
        });
    }
}
