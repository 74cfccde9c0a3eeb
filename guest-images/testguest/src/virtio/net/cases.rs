//! What is tested about a NIC, besides plain frames.

use testguest_lib::command_line::NetCase;
use testguest_lib::echo_frame::{self, MAX_FRAME_BYTES};

use super::super::DeviceError;
use super::nic::{Nic, Wanted};
use super::packet::{
    BUFFER_BYTES, FEATURE_ANNOUNCE, FEATURE_CSUM, FEATURE_CTRL_MAC, FEATURE_CTRL_RX,
    FEATURE_CTRL_VQ, FEATURE_MERGE, FEATURE_MQ, FEATURE_STATUS, HEADER_BYTES, MAX_PACKET_BYTES,
};
use crate::clock::Clock;
use crate::serial::console_line;

/// Receive buffers that the longer frames do not fit into.
const SMALL_BUFFER_BYTES: u16 = 256;
/// Somebody outside has this long to pull a cable or to ask for an announcement.
const OUTSIDE_TIMEOUT_MS: u64 = 30_000;

/// Commands: class and number (virtio 1.2, 5.1.6.5).
const SET_PROMISCUOUS: (u8, u8) = (0, 0);
const SET_ADDRESS: (u8, u8) = (1, 1);
const ACKNOWLEDGE_ANNOUNCEMENT: (u8, u8) = (3, 0);
const SET_PAIRS: (u8, u8) = (4, 0);

/// Bits of the status.
const LINK_UP: u16 = 1;
const ANNOUNCE: u16 = 2;

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;
/// The checksum is over all from here on, and goes here.
const CHECKSUM_START: u8 = 22;

/// Frames of the test of limits: more than the test program lets through at once.
const BURST: u16 = 32;

/// What a case wants of the NIC.
pub fn wanted(case: NetCase) -> Wanted {
    let (features, buffer_bytes, pairs) = match case {
        NetCase::Echo | NetCase::Hostile | NetCase::Burst => (0, BUFFER_BYTES, 1),
        NetCase::Merge => (FEATURE_MERGE, SMALL_BUFFER_BYTES, 1),
        NetCase::Checksum => (FEATURE_CSUM, BUFFER_BYTES, 1),
        NetCase::Pairs => (FEATURE_CTRL_VQ | FEATURE_MQ, BUFFER_BYTES, 2),
        NetCase::Filter => {
            let features = FEATURE_CTRL_VQ | FEATURE_CTRL_RX | FEATURE_CTRL_MAC;
            (features, BUFFER_BYTES, 1)
        }
        NetCase::Link => (FEATURE_STATUS, BUFFER_BYTES, 1),
        NetCase::Announce => {
            let features = FEATURE_CTRL_VQ | FEATURE_STATUS | FEATURE_ANNOUNCE;
            (features, BUFFER_BYTES, 1)
        }
    };
    Wanted {
        features,
        buffer_bytes,
        pairs,
    }
}

/// Runs a case, with so many frames where it matters.
pub fn run(
    case: NetCase,
    nic: &mut Nic<'_>,
    clock: &Clock,
    frames: u32,
) -> Result<(), DeviceError> {
    match case {
        NetCase::Echo => exchange_all(nic, frames),
        NetCase::Merge => merge(nic, frames),
        NetCase::Checksum => checksum(nic, frames),
        NetCase::Pairs => pairs(nic, frames),
        NetCase::Filter => filter(nic, clock),
        NetCase::Link => link(nic, clock),
        NetCase::Announce => announce(nic, clock),
        NetCase::Hostile => hostile(nic, frames),
        NetCase::Burst => burst(nic, clock),
    }
}

fn exchange_all(nic: &mut Nic<'_>, frames: u32) -> Result<(), DeviceError> {
    (0..frames).try_for_each(|sequence| nic.exchange(0, sequence))
}

fn merge(nic: &mut Nic<'_>, frames: u32) -> Result<(), DeviceError> {
    exchange_all(nic, frames)?;
    if nic.totals.merged == 0 {
        return Err(DeviceError::Missing("a frame over several buffers"));
    }
    Ok(())
}

/// The host completes frames that have a part of their checksum only.
fn checksum(nic: &mut Nic<'_>, frames: u32) -> Result<(), DeviceError> {
    let start = usize::from(CHECKSUM_START);
    let mut header = [0; HEADER_BYTES];
    header[0] = NEEDS_CHECKSUM;
    header[6] = CHECKSUM_START;
    for sequence in 0..frames {
        let mut frame = [0; MAX_FRAME_BYTES];
        let length = nic.write_frame(&mut frame, nic.mac, sequence);
        frame[start..start + 2].fill(0);
        let mut packet = [0; MAX_PACKET_BYTES];
        let end = nic.echo_of(0, header, &frame[..length], &mut packet)?;
        let echo = &mut packet[HEADER_BYTES..end];
        // With the checksum in it, everything sums up to minus zero.
        let sum = echo_frame::sum(echo.get(start..length).unwrap_or_default());
        if sum != 0xffff {
            return Err(DeviceError::Mismatch {
                what: "sum of a frame with its checksum",
                expected: 0xffff,
                got: sum.into(),
            });
        }
        echo[start..start + 2].fill(0);
        if let Some(offset) = echo_frame::first_difference(&frame[..length], echo) {
            return Err(DeviceError::Mismatch {
                what: "first wrong byte of an echo",
                expected: length as u64,
                got: offset as u64,
            });
        }
    }
    Ok(())
}

fn set_pairs(nic: &mut Nic<'_>, pairs: u16) -> Result<bool, DeviceError> {
    nic.command(SET_PAIRS.0, SET_PAIRS.1, &pairs.to_le_bytes())
}

fn pairs(nic: &mut Nic<'_>, frames: u32) -> Result<(), DeviceError> {
    for wrong in [0, nic.max_pairs() + 1] {
        if set_pairs(nic, wrong)? {
            return Err(DeviceError::Refused("to refuse that many pairs"));
        }
    }
    for pairs in [2, 1, 2] {
        if !set_pairs(nic, pairs)? {
            return Err(DeviceError::Refused("pairs of queues that it has"));
        }
        for sequence in 0..frames {
            let lane = usize::try_from(sequence).unwrap_or(0) % usize::from(pairs);
            nic.exchange(lane, sequence)?;
        }
    }
    Ok(())
}

/// Frames for others do not come once that is said.
fn filter(nic: &mut Nic<'_>, clock: &Clock) -> Result<(), DeviceError> {
    let own = nic.mac;
    let other = [own[0], own[1], own[2], own[3], own[4], !own[5]];
    if !nic.command(SET_PROMISCUOUS.0, SET_PROMISCUOUS.1, &[0])? {
        return Err(DeviceError::Refused("to filter"));
    }
    nic.exchange(0, 0)?;
    if !nic.command(SET_ADDRESS.0, SET_ADDRESS.1, &other)? || nic.configured_mac() != other {
        return Err(DeviceError::Refused("another address"));
    }
    nic.mac = other;
    nic.exchange(0, 1)?;
    // The echo of this one goes to the address that the NIC has no more, and that of the next
    // behind it to the one it has.
    let mut frame = [0; MAX_FRAME_BYTES];
    let length = nic.write_frame(&mut frame, own, 2);
    nic.lane(0)?.send([0; HEADER_BYTES], &frame[..length])?;
    let length = nic.write_frame(&mut frame, other, 3);
    nic.lane(0)?.send([0; HEADER_BYTES], &frame[..length])?;
    let mut packet = [0; MAX_PACKET_BYTES];
    let deadline = clock.after_ms(OUTSIDE_TIMEOUT_MS);
    let echo = nic.next_echo(deadline, &mut packet)?;
    let frame = echo.and_then(|end| packet.get(HEADER_BYTES..end));
    match frame.and_then(echo_frame::sequence) {
        Some(3) => Ok(()),
        Some(got) => Err(DeviceError::Mismatch {
            what: "frame that passes the filter",
            expected: 3,
            got: got.into(),
        }),
        None => Err(DeviceError::Timeout("frame that passes the filter")),
    }
}

/// Waits until the status has these bits or not.
fn wait_status(nic: &Nic<'_>, clock: &Clock, bits: u16, wanted: bool) -> Result<(), DeviceError> {
    let deadline = clock.after_ms(OUTSIDE_TIMEOUT_MS);
    while (nic.status() & bits != 0) != wanted {
        if clock.now() > deadline {
            return Err(DeviceError::Timeout("change of the status"));
        }
        clock.sleep_until(clock.after_ms(1));
    }
    Ok(())
}

fn link(nic: &mut Nic<'_>, clock: &Clock) -> Result<(), DeviceError> {
    wait_status(nic, clock, LINK_UP, true)?;
    nic.exchange(0, 0)?;
    console_line!("TESTGUEST waiting for=link-down");
    wait_status(nic, clock, LINK_UP, false)?;
    // What is sent now is lost.
    let mut frame = [0; MAX_FRAME_BYTES];
    let length = nic.write_frame(&mut frame, nic.mac, 1);
    nic.lane(0)?.send([0; HEADER_BYTES], &frame[..length])?;
    console_line!("TESTGUEST waiting for=link-up");
    wait_status(nic, clock, LINK_UP, true)?;
    nic.exchange(0, 2)
}

fn announce(nic: &mut Nic<'_>, clock: &Clock) -> Result<(), DeviceError> {
    console_line!("TESTGUEST waiting for=announce");
    wait_status(nic, clock, ANNOUNCE, true)?;
    nic.exchange(0, 0)?;
    if !nic.command(ACKNOWLEDGE_ANNOUNCEMENT.0, ACKNOWLEDGE_ANNOUNCEMENT.1, &[])? {
        return Err(DeviceError::Refused("that it was announced"));
    }
    wait_status(nic, clock, ANNOUNCE, false)
}

/// Headers that make no sense cost their frame and nothing else.
fn hostile(nic: &mut Nic<'_>, frames: u32) -> Result<(), DeviceError> {
    // flags, gso_type, hdr_len, gso_size, csum_start, csum_offset, num_buffers.
    const HEADERS: [[u8; HEADER_BYTES]; 6] = [
        [0xff; HEADER_BYTES],
        [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        [1, 1, 0xff, 0xff, 0, 0, 34, 0, 16, 0, 0, 0],
        [1, 4, 54, 0, 1, 0, 0xf0, 0xff, 16, 0, 0, 0],
        [1, 5, 42, 0, 0xff, 0xff, 34, 0, 6, 0, 0, 0],
        [0, 0x81, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff],
    ];
    for (header, sequence) in HEADERS.into_iter().cycle().zip(0..frames) {
        let mut frame = [0; MAX_FRAME_BYTES];
        let length = nic.write_frame(&mut frame, nic.mac, sequence);
        nic.lane(0)?.send(header, &frame[..length])?;
        // A frame shorter than its header, and nothing at all.
        nic.lane(0)?.send(header, &frame[..1])?;
        nic.lane(0)?.send(header, &[])?;
        nic.exchange(0, sequence)?;
    }
    Ok(())
}

/// Many frames at once, which end when the test program lets them.
fn burst(nic: &mut Nic<'_>, clock: &Clock) -> Result<(), DeviceError> {
    let mut frame = [0; MAX_FRAME_BYTES];
    let length = nic.write_frame(&mut frame, nic.mac, 0);
    let lane = nic.lane(0)?;
    for head in 0..BURST {
        lane.submit(head, [0; HEADER_BYTES], &frame[..length]);
    }
    lane.transmit.kick();
    console_line!("TESTGUEST waiting for=limits");
    let deadline = clock.after_ms(OUTSIDE_TIMEOUT_MS);
    for _ in 0..BURST {
        nic.lane(0)?.transmit.wait_used(deadline, "burst")?;
    }
    Ok(())
}
