//! A server of the Network Block Device protocol, as much of it as QEMU needs: the fixed newstyle handshake,
//! simple replies, reads, writes, flushes and FUA.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use super::content::SECTOR_BYTES;
use super::shared::Disk;

const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// Fixed newstyle, and no zeros after the handshake.
const HANDSHAKE_FLAGS: u16 = 1 | 2;
const OPT_ABORT: u32 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERR_UNSUP: u32 = 1 << 31 | 1;
const INFO_EXPORT: u16 = 0;
/// `HAS_FLAGS`, `SEND_FLUSH`, `SEND_FUA`.
const TRANSMISSION_FLAGS: u16 = 1 | 4 | 8;

const CMD_READ: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const FLAG_FUA: u16 = 1;
const EINVAL: u32 = 22;

/// QEMU asks for no more at once.
const MAX_BYTES: u32 = 32 << 20;

/// Serves one client after the other: a node that starts again connects anew.
pub(super) fn serve(listener: &UnixListener, bytes: u64, disk: &Disk) {
    for stream in listener.incoming() {
        // A QEMU that was killed ends its connection as it likes.
        let ended = stream.and_then(|stream| serve_one(stream, bytes, disk));
        if let Err(error) = ended
            && error.kind() != io::ErrorKind::UnexpectedEof
            && error.kind() != io::ErrorKind::ConnectionReset
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            disk.fail(&error);
            return;
        }
    }
}

fn serve_one(mut stream: UnixStream, bytes: u64, disk: &Disk) -> io::Result<()> {
    let _client = disk.client();
    if !shake_hands(&mut stream, bytes)? {
        return Ok(());
    }
    while let Some(request) = Request::read(&mut stream)? {
        let reply = request.carry_out(disk);
        let (error, data) = match reply {
            Ok(data) => (0, data),
            Err(error) => (error, Vec::new()),
        };
        let mut answer = SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        answer.extend(error.to_be_bytes());
        answer.extend(request.handle);
        answer.extend(data);
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// False when the client wants nothing.
fn shake_hands(stream: &mut UnixStream, bytes: u64) -> io::Result<bool> {
    let mut hello = NBDMAGIC.to_be_bytes().to_vec();
    hello.extend(IHAVEOPT.to_be_bytes());
    hello.extend(HANDSHAKE_FLAGS.to_be_bytes());
    stream.write_all(&hello)?;
    read_u32(stream)?;
    loop {
        expect(read_u64(stream)?, IHAVEOPT)?;
        let option = read_u32(stream)?;
        let length = read_u32(stream)?;
        read_bytes(stream, length)?;
        match option {
            OPT_ABORT => {
                reply(stream, option, REP_ACK, &[])?;
                return Ok(false);
            }
            OPT_GO => {
                let mut info = INFO_EXPORT.to_be_bytes().to_vec();
                info.extend(bytes.to_be_bytes());
                info.extend(TRANSMISSION_FLAGS.to_be_bytes());
                reply(stream, option, REP_INFO, &info)?;
                reply(stream, option, REP_ACK, &[])?;
                return Ok(true);
            }
            _ => reply(stream, option, REP_ERR_UNSUP, &[])?,
        }
    }
}

fn reply(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    let length = u32::try_from(data.len()).map_err(io::Error::other)?;
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

struct Request {
    flags: u16,
    kind: u16,
    handle: [u8; 8],
    offset: u64,
    length: u32,
    data: Vec<u8>,
}

impl Request {
    /// The next one; `None` when the client says goodbye.
    fn read(stream: &mut UnixStream) -> io::Result<Option<Self>> {
        expect(read_u32(stream)?.into(), REQUEST_MAGIC.into())?;
        let words = read_u32(stream)?.to_be_bytes();
        let handle = read_u64(stream)?.to_be_bytes();
        let offset = read_u64(stream)?;
        let length = read_u32(stream)?;
        let kind = u16::from_be_bytes([words[2], words[3]]);
        let data = match kind {
            CMD_DISC => return Ok(None),
            CMD_WRITE => read_bytes(stream, length)?,
            _ => Vec::new(),
        };
        Ok(Some(Self {
            flags: u16::from_be_bytes([words[0], words[1]]),
            kind,
            handle,
            offset,
            length,
            data,
        }))
    }

    /// What was read, or the number of an error.
    fn carry_out(&self, disk: &Disk) -> Result<Vec<u8>, u32> {
        let in_sectors = |bytes: u64| bytes.is_multiple_of(SECTOR_BYTES);
        if !in_sectors(self.offset) || !in_sectors(self.length.into()) || self.length > MAX_BYTES {
            return Err(EINVAL);
        }
        let first = self.offset / SECTOR_BYTES;
        let done = disk.request(|disk| {
            let end = self.offset.checked_add(self.length.into());
            if end.is_none_or(|end| end > disk.bytes) {
                return Err(EINVAL);
            }
            match self.kind {
                CMD_READ => {
                    let mut data = vec![0; self.length as usize];
                    disk.read(first, &mut data);
                    Ok(data)
                }
                CMD_WRITE => {
                    disk.write(first, &self.data, self.flags & FLAG_FUA != 0);
                    Ok(Vec::new())
                }
                CMD_FLUSH => {
                    disk.flush();
                    Ok(Vec::new())
                }
                _ => Err(EINVAL),
            }
        });
        done.unwrap_or(Err(EINVAL))
    }
}

fn expect(found: u64, wanted: u64) -> io::Result<()> {
    if found == wanted {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "NBD: {found:#x} stands where {wanted:#x} belongs"
        )))
    }
}

fn read_u32(stream: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_u64(stream: &mut UnixStream) -> io::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

fn read_bytes(stream: &mut UnixStream, length: u32) -> io::Result<Vec<u8>> {
    if length > MAX_BYTES {
        return Err(io::Error::other(format!("NBD: {length} bytes at once")));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
