//! A guest that sends whatever frames whoever sits at its console names, and tells which ones come.

use testguest_lib::bytes::from_hex;
use testguest_lib::command_line::Settings;
use testguest_lib::echo_frame::MAX_FRAME_BYTES;

use super::nic::{Nic, Wanted};
use super::packet::{BUFFER_BYTES, FrameBuffer, HEADER_BYTES, MAX_PACKET_BYTES};
use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::console_lines::ConsoleLines;
use crate::power;
use crate::report::Mac;
use crate::serial::console_line;
use crate::virtio::{DeviceError, Kind, functions, kind};

/// How often the console is looked at while no frame comes.
const POLL_MS: u64 = 10;

/// Serves the console until the machine ends. Switches the power off when the NIC does not do as a device should.
pub fn run(acpi: Option<&Acpi>, clock: &Clock, settings: &Settings) -> ! {
    let Err(error) = serve(acpi, clock, settings);
    console_line!("TESTGUEST frames FAIL error=\"{error}\"");
    power::off()
}

fn serve(
    acpi: Option<&Acpi>,
    clock: &Clock,
    settings: &Settings,
) -> Result<core::convert::Infallible, DeviceError> {
    let ecam = functions(acpi)?;
    let wanted = Wanted {
        features: 0,
        buffer_bytes: BUFFER_BYTES,
        pairs: 1,
    };
    let mut opened = None;
    ecam.for_each(|function| {
        if opened.is_none() && kind(&function) == Some(Kind::Net) {
            opened = Some(Nic::open(&function, clock, settings, &wanted));
        }
    });
    let mut nic = opened.ok_or(DeviceError::Missing("network device"))??;
    console_line!("TESTGUEST frames mac={}", Mac(nic.mac));
    let mut lines = ConsoleLines::new();
    let mut packet = [0; MAX_PACKET_BYTES];
    loop {
        let mut sent = Ok(());
        let lane = nic.lane(0)?;
        let was_line = lines.poll(|text| {
            let mut frame = [0; MAX_FRAME_BYTES];
            sent = match from_hex(text, &mut frame) {
                Some(length) => {
                    let sent =
                        lane.send([0; HEADER_BYTES], frame.get(..length).unwrap_or_default());
                    console_line!("TESTGUEST sent bytes={length}");
                    sent
                }
                None => {
                    console_line!("TESTGUEST sent nothing: no frame");
                    Ok(())
                }
            };
        });
        sent?;
        if !receive(&mut nic, &mut packet)? && !was_line {
            nic.lane(0)?.wait(clock.after_ms(POLL_MS));
        }
    }
}

/// Tells of a frame that has come, by its addresses and type; whether there was one.
fn receive(nic: &mut Nic<'_>, packet: &mut FrameBuffer) -> Result<bool, DeviceError> {
    let Some((length, _)) = nic.lane(0)?.poll(packet)? else {
        return Ok(false);
    };
    let frame = packet.get(HEADER_BYTES..length).unwrap_or_default();
    if let Some((&[_, _, _, _, _, _, a, b, c, d, e, f, high, low], _)) = frame.split_first_chunk() {
        console_line!(
            "TESTGUEST received from={} type={high:02x}{low:02x} bytes={}",
            Mac([a, b, c, d, e, f]),
            frame.len()
        );
    }
    Ok(true)
}
