//! Settings of a NIC's tap: offloads and attached queues.
//!
//! Each change takes the one lock of all the host's interfaces (RTNL), and a queue that leaves has the host
//! wait for all its CPUs. So nothing is set twice, and a driver that asks for too many changes is refused.

use std::time::Instant;

use vmm_sys::tap::{TapError, TapOffloads};

use super::backend::PacketBackend;
use crate::virtio::rate::{RateLimit, TokenBucket};

/// A driver that starts changes offloads twice and each of its pairs of queues twice, of which there are 32 at
/// most: three such starts in a row.
const PACE: RateLimit = RateLimit {
    per_second: 10,
    burst: 200,
};

/// The tap keeps its settings.
#[derive(Debug, thiserror::Error)]
pub(super) enum HostError {
    /// The driver asks too often.
    #[error("more changes of the tap than {} a second", PACE.per_second)]
    TooMany,
    /// The host refuses.
    #[error("the tap refuses")]
    Tap(#[from] TapError),
}

/// The settings of a NIC's tap.
pub(super) struct Host {
    /// Unknown at first, and after the host refused.
    offloads: Option<TapOffloads>,
    pairs: Option<usize>,
    bucket: Option<TokenBucket>,
    /// The bucket's clock starts here.
    made: Instant,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            offloads: None,
            pairs: None,
            bucket: TokenBucket::new(PACE, 0),
            made: Instant::now(),
        }
    }
}

impl Host {
    /// Sets the tap's offloads: what it may leave undone in packets that the NIC receives.
    ///
    /// # Errors
    /// The driver asks too often, or the host cannot do that.
    pub(super) fn set_offloads(
        &mut self,
        backends: &[impl PacketBackend],
        offloads: TapOffloads,
    ) -> Result<(), HostError> {
        if self.offloads == Some(offloads) {
            return Ok(());
        }
        self.take(1)?;
        self.offloads = None;
        if let Some(backend) = backends.first() {
            backend.set_offloads(offloads)?;
        }
        self.offloads = Some(offloads);
        Ok(())
    }

    /// Attaches the first `pairs` backends, and detaches the others.
    ///
    /// # Errors
    /// The driver asks too often, or the host refuses; then all is as before, as far as the host lets us.
    pub(super) fn set_pairs(
        &mut self,
        backends: &[impl PacketBackend],
        pairs: usize,
    ) -> Result<(), HostError> {
        if self.admit_pairs(backends, pairs)? {
            self.attach_pairs(backends, pairs)?;
        }
        Ok(())
    }

    /// Whether [`Self::attach_pairs`] is to come next: not where the tap has these pairs already.
    ///
    /// # Errors
    /// The driver asks too often.
    pub(super) fn admit_pairs(
        &mut self,
        backends: &[impl PacketBackend],
        pairs: usize,
    ) -> Result<bool, HostError> {
        if self.pairs == Some(pairs) {
            return Ok(false);
        }
        self.take(pairs.abs_diff(self.pairs.unwrap_or(backends.len())))?;
        Ok(true)
    }

    /// As [`Self::set_pairs`], without the limit on changes, and also where the tap has these pairs already.
    ///
    /// # Errors
    /// The host refuses; then all is as before, as far as the host lets us.
    pub(super) fn attach_pairs(
        &mut self,
        backends: &[impl PacketBackend],
        pairs: usize,
    ) -> Result<(), TapError> {
        let before = self.pairs.take();
        if let Err(error) = attach(backends, pairs) {
            self.pairs = before.filter(|pairs| attach(backends, *pairs).is_ok());
            return Err(error);
        }
        self.pairs = Some(pairs);
        Ok(())
    }

    /// Makes room for `changes`, if there is any.
    fn take(&mut self, changes: usize) -> Result<(), HostError> {
        let Some(bucket) = &mut self.bucket else {
            return Ok(());
        };
        let now_ns = u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if bucket.wait_ns(now_ns) > 0 {
            return Err(HostError::TooMany);
        }
        bucket.take(u64::try_from(changes).unwrap_or(u64::MAX));
        Ok(())
    }
}

fn attach(backends: &[impl PacketBackend], pairs: usize) -> Result<(), TapError> {
    for (index, backend) in backends.iter().enumerate() {
        backend.set_attached(index < pairs)?;
    }
    Ok(())
}
