//! Packets to a socket device that make no sense.

use super::case::Case;
use super::outcome::Outcome::Ignored;
use super::victim::{Victim, read, write};
use crate::virtio::DeviceError;
use testguest_lib::vsock_packet::{
    CREDIT_REQUEST, CREDIT_UPDATE, DATA, HEADER_BYTES, Header, REQUEST, RESET, RESPONSE, SHUTDOWN,
};

const TRANSMIT: u16 = 1;
const CONNECTIONS: u32 = 3_000;
const HEADER: u32 = 44;

pub const CASES: &[Case] = &[
    Case {
        name: "operations-on-nothing",
        expected: &[Ignored],
        run: |victim| {
            for operation in [
                RESPONSE,
                RESET,
                SHUTDOWN,
                DATA,
                CREDIT_UPDATE,
                CREDIT_REQUEST,
                0,
                8,
                0xffff,
            ] {
                send(victim, header(operation), &[], HEADER)?;
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "lengths-that-lie",
        expected: &[Ignored],
        run: |victim| {
            for length in [1, 64, 0x1_0000, 0x7fff_ffff, u32::MAX] {
                for operation in [DATA, REQUEST] {
                    let lie = Header {
                        payload_bytes: length,
                        ..header(operation)
                    };
                    send(victim, lie, &[], HEADER)?;
                    send(victim, lie, &[], HEADER + 16)?;
                }
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "packets-shorter-than-a-header",
        expected: &[Ignored],
        run: |victim| {
            for bytes in 0..HEADER {
                send(victim, header(REQUEST), &[], bytes)?;
            }
            victim.still_serves()
        },
    },
    Case {
        name: "addresses-of-others",
        expected: &[Ignored],
        run: |victim| {
            let own = victim.configuration.read64(0);
            for source in [0, 1, 2, own + 1, u64::MAX] {
                for destination in [0, 1, 2, own, own + 1, 0xffff_ffff, u64::MAX] {
                    let fields = [(0, source), (8, destination)];
                    send(victim, header(REQUEST), &fields, HEADER)?;
                }
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "types-that-do-not-exist",
        expected: &[Ignored],
        run: |victim| {
            let word = u64::from(REQUEST) << 16;
            for kind in [0, 2, 3, 0x7fff, 0xffff] {
                send(victim, header(REQUEST), &[(28, word | kind)], HEADER)?;
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "credit-that-goes-back-and-overflows",
        expected: &[Ignored],
        run: |victim| {
            for (buf_alloc, fwd_cnt) in [
                (0, u32::MAX),
                (u32::MAX, 1),
                (u32::MAX, u32::MAX),
                (1, 1 << 31),
            ] {
                for operation in [REQUEST, CREDIT_UPDATE, RESPONSE, DATA] {
                    let mad = Header {
                        buf_alloc,
                        fwd_cnt,
                        ..header(operation)
                    };
                    send(victim, mad, &[], HEADER)?;
                }
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "connections-without-end-and-no-buffers",
        expected: &[Ignored],
        run: |victim| {
            // Each is refused, and there is no buffer to say so.
            for port in 0..CONNECTIONS {
                let request = Header {
                    source_port: port,
                    destination_port: port.wrapping_mul(7919),
                    ..header(REQUEST)
                };
                let cid = victim.configuration.read64(0);
                victim.memory.data.write(0, &request.encode(cid));
                victim.send(TRANSMIT, &[read(victim.data(0), HEADER)]);
                // A device that owes too many answers may stop to listen.
                if victim.outcome(TRANSMIT) == Ignored {
                    break;
                }
            }
            victim.start()?;
            victim.still_serves()
        },
    },
    Case {
        name: "event-queue-flooded",
        expected: &[Ignored],
        run: |victim| {
            for round in 0..2_000_u16 {
                victim.put(2, round % 12, write(victim.data(0x100), u32::from(round)));
                victim.offer(2, round % 12);
                if round % 12 == 0 {
                    victim.kick(2);
                    victim.start()?;
                }
            }
            victim.still_serves()
        },
    },
];

fn header(operation: u16) -> Header {
    Header {
        source_port: 1000,
        destination_port: 2000,
        operation,
        buf_alloc: 4096,
        ..Header::default()
    }
}

/// Sends `bytes` of a packet; `fields` are put over its header: offset and 32 or 64 bits.
fn send(
    victim: &mut Victim<'_>,
    header: Header,
    fields: &[(usize, u64)],
    bytes: u32,
) -> Result<(), DeviceError> {
    let mut packet: [u8; HEADER_BYTES] = header.encode(victim.configuration.read64(0));
    for (offset, value) in fields {
        let width = if *offset < 16 { 8 } else { 4 };
        packet[*offset..*offset + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    victim.memory.data.write(0, &packet);
    if bytes >= HEADER {
        // There is room for an answer, if there is one.
        victim.put(0, 0, write(victim.data(0x1000), 256));
        victim.offer(0, 0);
        victim.kick(0);
    }
    victim.send(TRANSMIT, &[read(victim.data(0), bytes)]);
    victim.answer(TRANSMIT).map(drop)
}
