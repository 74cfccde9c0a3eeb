//! Messages of the control queues (VIRTIO 1.2, 5.3.6.2).

/// Length of `struct virtio_console_control`: id, event, value.
pub(super) const MESSAGE_BYTES: usize = 8;

const DEVICE_READY: u16 = 0;
const PORT_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const CONSOLE_PORT: u16 = 4;
const RESIZE: u16 = 5;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

/// What a driver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverMessage {
    /// It is ready to hear of ports.
    DeviceReady,
    /// It has made a port, or could not.
    PortReady {
        /// Number of the port.
        port: u32,
        /// Whether it has.
        made: bool,
    },
    /// Somebody in the guest opened or closed a port.
    PortOpen {
        /// Number of the port.
        port: u32,
        /// Whether it is open now.
        open: bool,
    },
}

impl DriverMessage {
    /// Reads a message. None for those that say nothing to a device: unknown events, those that only
    /// devices send, and a driver that could not start.
    pub(super) fn parse(message: [u8; MESSAGE_BYTES]) -> Option<Self> {
        let [a, b, c, d, event0, event1, value0, value1] = message;
        let port = u32::from_le_bytes([a, b, c, d]);
        let value = u16::from_le_bytes([value0, value1]) != 0;
        match u16::from_le_bytes([event0, event1]) {
            DEVICE_READY if value => Some(Self::DeviceReady),
            PORT_READY => Some(Self::PortReady { port, made: value }),
            PORT_OPEN => Some(Self::PortOpen { port, open: value }),
            _ => None,
        }
    }
}

/// What a device says of one of its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceMessage<'a> {
    /// There is the port.
    PortAdd,
    /// It is a console.
    ConsolePort,
    /// Its name.
    PortName(&'a str),
    /// The host's side was closed, or opened.
    PortOpen(bool),
    /// The console's size in characters.
    Resize {
        /// Width in characters.
        columns: u16,
        /// Height in lines.
        rows: u16,
    },
}

impl DeviceMessage<'_> {
    /// The message as the driver reads it. A name comes without NUL at its end.
    pub(super) fn bytes(self, port: u16) -> Vec<u8> {
        let (event, value) = match self {
            Self::PortAdd => (PORT_ADD, 1),
            Self::ConsolePort => (CONSOLE_PORT, 1),
            Self::PortName(_) => (PORT_NAME, 1),
            Self::PortOpen(open) => (PORT_OPEN, u16::from(open)),
            Self::Resize { .. } => (RESIZE, 1),
        };
        let mut message = u32::from(port).to_le_bytes().to_vec();
        message.extend_from_slice(&event.to_le_bytes());
        message.extend_from_slice(&value.to_le_bytes());
        match self {
            Self::PortName(name) => message.extend_from_slice(name.as_bytes()),
            Self::Resize { columns, rows } => {
                message.extend_from_slice(&columns.to_le_bytes());
                message.extend_from_slice(&rows.to_le_bytes());
            }
            Self::PortAdd | Self::ConsolePort | Self::PortOpen(_) => {}
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_laid_out_as_specified() {
        let open = DeviceMessage::PortOpen(true).bytes(3);
        assert_eq!(open, [3, 0, 0, 0, 6, 0, 1, 0]);
        let name = DeviceMessage::PortName("a.0").bytes(1);
        assert_eq!(name, *b"\x01\0\0\0\x07\0\x01\0a.0");
        let resize = DeviceMessage::Resize {
            columns: 80,
            rows: 25,
        };
        assert_eq!(resize.bytes(0), [0, 0, 0, 0, 5, 0, 1, 0, 80, 0, 25, 0]);
        let ready = DriverMessage::parse([2, 0, 0, 0, 3, 0, 1, 0]);
        assert_eq!(
            ready,
            Some(DriverMessage::PortReady {
                port: 2,
                made: true
            })
        );
        let refused = DriverMessage::parse([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(refused, None);
    }

    proptest! {
        #[test]
        fn any_message_is_understood_or_ignored(message: [u8; MESSAGE_BYTES]) {
            let port = u32::from_le_bytes([message[0], message[1], message[2], message[3]]);
            match DriverMessage::parse(message) {
                Some(DriverMessage::DeviceReady) => prop_assert_eq!(message[4], 0),
                Some(DriverMessage::PortReady { port: got, .. }
                    | DriverMessage::PortOpen { port: got, .. }) => prop_assert_eq!(got, port),
                None => {}
            }
        }
    }
}
