//! What comes on the control socket: frames, and the configuration of a machine in them.

use prost::Message;
use proto_vmm::payload::decode_exit_record;
use proto_vmm::v1::{Frame, MachineConfig};
use proto_vmm::{FRAME_HEADER_BYTES, FrameHeader};

/// Reads the bytes as each of them.
pub fn run(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>()
        && let Ok(header) = FrameHeader::decode(*header)
    {
        assert_eq!(
            header.encode(),
            bytes[..FRAME_HEADER_BYTES],
            "another header"
        );
    }
    if let Ok(frame) = Frame::decode(bytes) {
        let again = Frame::decode(frame.encode_to_vec().as_slice());
        assert_eq!(again, Ok(frame), "another frame");
    }
    if let Ok(config) = MachineConfig::decode(bytes) {
        let again = MachineConfig::decode(config.encode_to_vec().as_slice());
        assert_eq!(again, Ok(config), "another configuration");
    }
    // Refused or read.
    let _ = decode_exit_record(bytes);
}
