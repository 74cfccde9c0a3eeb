//! When a function is at rest.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::quiesce::QuiesceError;
use crate::virtio::device::{ActivateError, DeviceKind};
use crate::virtio::fault::DeviceFault;

/// A device whose host has work in flight until the test ends it.
struct Busy {
    rng: RngDevice,
    is_done: Arc<AtomicBool>,
}

impl Busy {
    /// The device, and the flag that ends its work.
    fn boxed() -> (Box<Self>, Arc<AtomicBool>) {
        let is_done = Arc::new(AtomicBool::new(false));
        let device = Self {
            rng: RngDevice::new(),
            is_done: Arc::clone(&is_done),
        };
        (Box::new(device), is_done)
    }
}

impl VirtioDevice for Busy {
    fn kind(&self) -> DeviceKind {
        self.rng.kind()
    }

    fn queue_sizes(&self) -> &[u16] {
        self.rng.queue_sizes()
    }

    fn features(&self) -> u64 {
        self.rng.features()
    }

    fn config(&self) -> Vec<u8> {
        self.rng.config()
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        self.rng.activate(context)
    }

    fn reset(&mut self) {
        self.rng.reset();
    }

    fn is_idle(&mut self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        self.rng.queues()
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        if self.is_done.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(QuiesceError::InFlight {
            in_flight: 1,
            waited_ms: 0,
        })
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        self.rng.handle(event)
    }
}

#[test]
fn a_driver_that_resets_its_device_does_not_bring_the_host_to_rest() {
    let (device, _) = Busy::boxed();
    let mut driver = Driver::new(device);
    assert!(driver.function.quiesce().is_err());
    driver.set_status(0);
    assert!(driver.function.quiesce().is_err());
}

/// A driver that was ready and has reset its device, whose host is still busy.
fn reset_while_busy() -> (Driver, Arc<AtomicBool>) {
    let (device, is_done) = Busy::boxed();
    let mut driver = Driver::ready(device, 16, VERSION_1);
    driver.set_status(0);
    (driver, is_done)
}

#[test]
fn the_status_reads_0_only_once_the_host_is_done_with_what_was_in_flight() {
    let (mut driver, is_done) = reset_while_busy();
    assert_ne!(driver.status(), 0);
    // Neither another reset nor time makes it 0.
    driver.set_status(0);
    assert_ne!(driver.status(), 0);
    is_done.store(true, Ordering::Relaxed);
    assert_eq!(driver.status(), 0);
    driver.start(16, VERSION_1);
    assert!(!driver.needs_reset());
}

#[test]
fn a_driver_that_does_not_wait_for_a_reset_does_not_get_the_device() {
    let (mut driver, is_done) = reset_while_busy();
    driver.set_status(1);
    driver.set_status(3);
    driver.negotiate(VERSION_1);
    assert_eq!(driver.status() & FEATURES_OK, 0);
    driver.set_status(15);
    assert_eq!(driver.status() & DRIVER_OK, 0);
    is_done.store(true, Ordering::Relaxed);
    // What it wrote meanwhile is forgotten.
    assert_eq!(driver.status(), 0);
    driver.start(16, VERSION_1);
}

#[test]
fn a_machine_that_is_saved_after_a_reset_has_a_device_that_is_reset() {
    let (mut driver, is_done) = reset_while_busy();
    assert!(driver.function.quiesce().is_err());
    is_done.store(true, Ordering::Relaxed);
    driver.function.quiesce().unwrap();
    let mut driver = driver.moved_to(Box::new(RngDevice::new()));
    assert_eq!(driver.status(), 0);
}

#[test]
fn a_device_without_bus_mastering_serves_nothing_and_goes_on_with_all_that_came_meanwhile() {
    let mut driver = Driver::ready(Box::new(RngDevice::new()), 16, VERSION_1);
    assert!(driver.set_bus_master(false));
    driver.function.quiesce().unwrap();
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.kick(0);
    assert_eq!(driver.used(0), None);
    // A machine that is paused and goes on changes nothing about it.
    driver.function.quiesce().unwrap();
    driver.function.resume();
    driver.settle();
    assert_eq!(driver.used(0), None);
    assert!(!driver.set_bus_master(true));
    driver.settle();
    assert_eq!(driver.used(0), Some((0, 8)));
}

#[test]
fn a_driver_may_be_ready_before_its_device_may_access_memory() {
    let mut driver = Driver::new(Box::new(RngDevice::new()));
    driver.set_bus_master(false);
    driver.start(16, VERSION_1);
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.kick(0);
    assert_eq!(driver.used(0), None);
    driver.set_bus_master(true);
    driver.settle();
    assert_eq!(driver.used(0), Some((0, 8)));
}

#[test]
fn a_function_that_is_reset_from_outside_says_when_the_host_is_done() {
    let (device, is_done) = Busy::boxed();
    let mut driver = Driver::ready(device, 16, VERSION_1);
    assert!(driver.function.is_idle());
    driver.function.reset();
    assert!(!driver.function.is_idle());
    is_done.store(true, Ordering::Relaxed);
    assert!(driver.function.is_idle());
}
