//! The keyboard controller's command port, of which only the reset pulse is there.

use vmm_devices::BusDevice;

use crate::events::GuestEvents;
use crate::guest_event::{GuestEvent, ResetSource};
use crate::port_device::PortDevice;

/// Command and status port of the 8042.
pub(crate) const KEYBOARD_COMMAND_PORT: u16 = 0x64;
/// "Pulse output line 0", which is wired to the reset line.
const PULSE_RESET: u8 = 0xfe;

pub(crate) struct KeyboardReset {
    events: GuestEvents,
}

impl KeyboardReset {
    pub(crate) fn new(events: GuestEvents) -> Self {
        Self { events }
    }
}

impl PortDevice for KeyboardReset {}

impl BusDevice for KeyboardReset {
    fn read(&mut self, _: u64, data: &mut [u8]) {
        // Nothing pending in either direction: whoever wants to pulse does not wait.
        data.fill(0);
    }

    fn write(&mut self, _: u64, data: &[u8]) {
        if data == [PULSE_RESET] {
            self.events
                .post(GuestEvent::Reset(ResetSource::KeyboardController));
        }
    }
}
