//! What XSAVE keeps of a vCPU: x87, SSE, AVX and all that came after them.
//!
//! `KVM_GET_XSAVE` gives 4 KiB. States that do not fit there (those of AMX) come with `KVM_GET_XSAVE2`,
//! and `KVM_CAP_XSAVE2` of the VM says how many bytes that are (Documentation/virt/kvm/api.rst, 4.134).

use kvm_bindings::{Xsave, kvm_xsave};
use kvm_ioctls::Cap;
use zerocopy::IntoBytes;

use super::error::SavedStateError;
use super::raw;
use crate::error::KvmError;
use crate::vcpu::Vcpu;

/// `struct kvm_xsave` before Linux 5.17, and the beginning of it since.
const LEAST_BYTES: usize = 4096;
/// No CPU has so much: AMX's tiles, the largest state, take 8 KiB.
const MOST_BYTES: usize = 64 << 10;
const WORD_BYTES: usize = 4;

/// Checks the length.
pub(super) fn check(bytes: &[u8]) -> Result<(), SavedStateError> {
    let is_sound =
        (LEAST_BYTES..=MOST_BYTES).contains(&bytes.len()) && bytes.len().is_multiple_of(WORD_BYTES);
    if is_sound {
        Ok(())
    } else {
        Err(wrong_length(bytes, LEAST_BYTES))
    }
}

fn wrong_length(bytes: &[u8], expected: usize) -> SavedStateError {
    SavedStateError::Length {
        what: "kvm_xsave",
        bytes: bytes.len(),
        expected,
    }
}

impl Vcpu {
    pub(super) fn xsave(&self) -> Result<Vec<u8>, SavedStateError> {
        let Some(mut table) = self.xsave_table()? else {
            let xsave = self.fd().get_xsave();
            return Ok(raw::bytes(
                &xsave.map_err(KvmError::ioctl("KVM_GET_XSAVE"))?,
            ));
        };
        // SAFETY: the kernel writes as many bytes as KVM_CAP_XSAVE2 says at most, and the table has them.
        unsafe { self.fd().get_xsave2(&mut table) }.map_err(KvmError::ioctl("KVM_GET_XSAVE2"))?;
        let mut bytes = raw::bytes(&table.as_fam_struct_ref().xsave);
        bytes.extend_from_slice(table.as_slice().as_bytes());
        Ok(bytes)
    }

    /// Gives the vCPU the state. One that is shorter than this host's has nothing of what it lacks.
    pub(super) fn restore_xsave(&self, bytes: &[u8]) -> Result<(), SavedStateError> {
        let (first, rest) = bytes
            .split_at_checked(LEAST_BYTES)
            .ok_or_else(|| wrong_length(bytes, LEAST_BYTES))?;
        let xsave: kvm_xsave = raw::read("kvm_xsave", first)?;
        let failed = KvmError::ioctl("KVM_SET_XSAVE");
        let Some(mut table) = self.xsave_table()? else {
            if !rest.is_empty() {
                return Err(wrong_length(bytes, LEAST_BYTES));
            }
            // SAFETY: the kernel reads as many bytes as KVM_CAP_XSAVE2 says, which are no more than
            // the structure has.
            unsafe { self.fd().set_xsave(&xsave) }.map_err(failed)?;
            return Ok(());
        };
        let room = table.as_mut_slice().as_mut_bytes();
        let expected = LEAST_BYTES + room.len();
        let room = room
            .get_mut(..rest.len())
            .ok_or_else(|| wrong_length(bytes, expected))?;
        room.copy_from_slice(rest);
        // SAFETY: the length of the table stays.
        unsafe { table.as_mut_fam_struct() }.xsave.region = xsave.region;
        // SAFETY: the kernel reads as many bytes as KVM_CAP_XSAVE2 says, and the table has them.
        unsafe { self.fd().set_xsave2(&table) }.map_err(failed)?;
        Ok(())
    }

    /// A table for all that the host's KVM keeps; none where 4 KiB are enough.
    fn xsave_table(&self) -> Result<Option<Xsave>, KvmError> {
        // 0 where KVM does not have the capability.
        let bytes = self.vm().fd().check_extension_int(Cap::Xsave2);
        let beyond = usize::try_from(bytes)
            .unwrap_or(0)
            .saturating_sub(LEAST_BYTES);
        if beyond == 0 {
            return Ok(None);
        }
        let table = Xsave::new(beyond.div_ceil(WORD_BYTES));
        table.map(Some).map_err(|_| KvmError::TableTooLong {
            call: "KVM_GET_XSAVE2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_too_long_or_odd_is_refused() {
        for (bytes, is_sound) in [
            (0, false),
            (LEAST_BYTES - 1, false),
            (LEAST_BYTES, true),
            (LEAST_BYTES + 2, false),
            (11_008, true),
            (MOST_BYTES, true),
            (MOST_BYTES + WORD_BYTES, false),
        ] {
            assert_eq!(check(&vec![0; bytes]).is_ok(), is_sound, "{bytes}");
        }
    }
}
