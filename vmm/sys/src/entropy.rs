//! Random bytes from the host kernel.

use std::io;

/// Fills `buffer` from `getrandom(2)`: the pool behind `/dev/urandom`, initialised.
///
/// # Errors
/// The kernel's; none is expected after the host's pool is initialised.
pub fn fill_random(mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        // SAFETY: the kernel writes at most `buffer.len()` bytes to the memory of `buffer`.
        let got = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(got) {
            Ok(count) => buffer = buffer.get_mut(count..).unwrap_or_default(),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_longer_than_one_call_gives_is_filled_to_its_end() {
        let mut buffer = vec![0u8; 1 << 20];
        fill_random(&mut buffer).unwrap();
        for chunk in buffer.chunks(64) {
            assert!(chunk.iter().any(|byte| *byte != 0));
        }
    }
}
