//! When a function is at rest.

use super::*;
use crate::virtio::device::{ActivateError, DeviceFault, DeviceKind, QuiesceError};

/// A device whose host never ends what it was asked for.
struct Busy(RngDevice);

impl VirtioDevice for Busy {
    fn kind(&self) -> DeviceKind {
        self.0.kind()
    }

    fn queue_sizes(&self) -> &[u16] {
        self.0.queue_sizes()
    }

    fn features(&self) -> u64 {
        self.0.features()
    }

    fn config(&self) -> Vec<u8> {
        self.0.config()
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        self.0.activate(context)
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        self.0.queues()
    }

    fn quiesce(&mut self) -> Result<(), QuiesceError> {
        Err(QuiesceError::InFlight {
            in_flight: 1,
            waited_ms: 0,
        })
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        self.0.handle(event)
    }
}

#[test]
fn a_driver_that_resets_its_device_does_not_bring_the_host_to_rest() {
    let mut driver = Driver::ready(Box::new(Busy(RngDevice::new())), 16, VERSION_1);
    assert!(driver.function.quiesce().is_err());
    driver.set_status(0);
    assert!(driver.function.quiesce().is_err());
}
