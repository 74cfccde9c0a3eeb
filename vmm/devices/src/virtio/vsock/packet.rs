//! Packets as they lie in the queues (`struct virtio_vsock_hdr`, VIRTIO 1.2, 5.10.6).

/// Length of a header.
pub(super) const HEADER_BYTES: usize = 44;

/// Longest payload in either direction. A guest that announces more breaks its connection: no driver
/// sends longer ones, and what is taken at once is memory and time of others.
pub(super) const MAX_PAYLOAD_BYTES: usize = 64 << 10;

/// The host's CID.
pub(super) const HOST_CID: u64 = 2;

/// `VIRTIO_VSOCK_TYPE_STREAM`.
pub(super) const STREAM: u16 = 1;

/// `VIRTIO_VSOCK_SHUTDOWN_F_RECEIVE`: the sender takes no more.
pub(super) const TAKES_NO_MORE: u32 = 1;
/// `VIRTIO_VSOCK_SHUTDOWN_F_SEND`: the sender sends no more.
pub(super) const SENDS_NO_MORE: u32 = 2;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Request = 1,
    Response = 2,
    Reset = 3,
    Shutdown = 4,
    Data = 5,
    CreditUpdate = 6,
    CreditRequest = 7,
}

impl Operation {
    pub(super) fn from_number(number: u16) -> Option<Self> {
        [
            Self::Request,
            Self::Response,
            Self::Reset,
            Self::Shutdown,
            Self::Data,
            Self::CreditUpdate,
            Self::CreditRequest,
        ]
        .into_iter()
        .find(|operation| operation.number() == number)
    }

    pub(super) fn number(self) -> u16 {
        self as u16
    }
}

/// `struct virtio_vsock_hdr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) source_cid: u64,
    pub(super) destination_cid: u64,
    pub(super) source_port: u32,
    pub(super) destination_port: u32,
    pub(super) payload_bytes: u32,
    pub(super) socket_type: u16,
    /// A number of [`Operation`], if the sender keeps to the specification.
    pub(super) operation: u16,
    /// Of a shutdown: [`TAKES_NO_MORE`], [`SENDS_NO_MORE`].
    pub(super) flags: u32,
    /// `buf_alloc`: the sender's buffer for this connection.
    pub(super) buf_alloc: u32,
    /// `fwd_cnt`: bytes that have left that buffer since the connection began, wrapping.
    pub(super) fwd_cnt: u32,
}

impl Header {
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let mut rest = &bytes[..];
        Self {
            source_cid: u64::from_le_bytes(take(&mut rest)),
            destination_cid: u64::from_le_bytes(take(&mut rest)),
            source_port: u32::from_le_bytes(take(&mut rest)),
            destination_port: u32::from_le_bytes(take(&mut rest)),
            payload_bytes: u32::from_le_bytes(take(&mut rest)),
            socket_type: u16::from_le_bytes(take(&mut rest)),
            operation: u16::from_le_bytes(take(&mut rest)),
            flags: u32::from_le_bytes(take(&mut rest)),
            buf_alloc: u32::from_le_bytes(take(&mut rest)),
            fwd_cnt: u32::from_le_bytes(take(&mut rest)),
        }
    }

    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let fields: [&[u8]; 10] = [
            &self.source_cid.to_le_bytes(),
            &self.destination_cid.to_le_bytes(),
            &self.source_port.to_le_bytes(),
            &self.destination_port.to_le_bytes(),
            &self.payload_bytes.to_le_bytes(),
            &self.socket_type.to_le_bytes(),
            &self.operation.to_le_bytes(),
            &self.flags.to_le_bytes(),
            &self.buf_alloc.to_le_bytes(),
            &self.fwd_cnt.to_le_bytes(),
        ];
        let mut bytes = [0; HEADER_BYTES];
        for (byte, value) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *byte = *value;
        }
        bytes
    }

    /// The reset that answers this packet: from where it was sent to, in its own type.
    pub(super) fn reset(&self) -> Self {
        Self {
            source_cid: self.destination_cid,
            destination_cid: self.source_cid,
            source_port: self.destination_port,
            destination_port: self.source_port,
            socket_type: self.socket_type,
            operation: Operation::Reset.number(),
            ..Self::default()
        }
    }
}

/// The first bytes of `rest`, which has them: both callers' arrays are as long as all fields.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    match rest.split_first_chunk::<N>() {
        Some((first, later)) => {
            *rest = later;
            *first
        }
        None => [0; N],
    }
}
