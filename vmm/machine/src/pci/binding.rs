//! MSI-X vectors of one function, bound to KVM by irqfds and GSI routes.
//!
//! A route that changes has KVM build its whole table anew and wait for readers of the old one; one that is
//! taken away has it wait for the interrupt's work. A guest that rewrites its vectors all the time is held
//! back, or it would have the host do nothing else.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use vmm_devices::{MsiBinding, MsiError, MsiMessage};
use vmm_kvm::{GsiPool, InterruptRouter, KvmError};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::change_limiter::ChangeLimiter;
use crate::route_failures::RouteFailures;

/// Vectors whose changes are held to a limit, which all functions of a machine share, as they do the count
/// of those that fail.
pub(crate) struct PacedBinding {
    inner: Arc<dyn MsiBinding>,
    limiter: Arc<ChangeLimiter>,
    failures: RouteFailures,
}

impl PacedBinding {
    pub(crate) fn new(
        inner: Arc<dyn MsiBinding>,
        limiter: Arc<ChangeLimiter>,
        failures: RouteFailures,
    ) -> Self {
        Self {
            inner,
            limiter,
            failures,
        }
    }
}

impl MsiBinding for PacedBinding {
    fn vector_event(&self, vector: u16) -> Result<Arc<EventFd>, MsiError> {
        self.inner.vector_event(vector)
    }

    fn route(&self, vector: u16, message: MsiMessage) -> Result<(), MsiError> {
        self.limiter.wait(1);
        self.failures.note(self.inner.route(vector, message))
    }

    fn unroute(&self, vector: u16) -> Result<(), MsiError> {
        self.limiter.wait(1);
        self.failures.note(self.inner.unroute(vector))
    }
}

/// GSIs are given out when a vector is first routed, so that large tables cost nothing.
pub(crate) struct VectorBinding {
    router: InterruptRouter,
    pool: Arc<Mutex<GsiPool>>,
    vectors: Mutex<BTreeMap<u16, Vector>>,
}

struct Vector {
    event: Arc<EventFd>,
    gsi: Option<u32>,
    message: Option<MsiMessage>,
    connected: bool,
}

impl VectorBinding {
    pub(crate) fn new(router: InterruptRouter, pool: Arc<Mutex<GsiPool>>) -> Self {
        Self {
            router,
            pool,
            vectors: Mutex::new(BTreeMap::new()),
        }
    }

    /// Runs `change` on the vector, which is made when it is not there.
    fn with<T>(
        &self,
        vector: u16,
        change: impl FnOnce(&mut Vector) -> Result<T, MsiError>,
    ) -> Result<T, MsiError> {
        // A vector is whole after each step below, whatever happened to another holder of the lock.
        let mut vectors = self.vectors.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = match vectors.entry(vector) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let event =
                    EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK).map_err(failed(vector, "eventfd"))?;
                entry.insert(Vector {
                    event: Arc::new(event),
                    gsi: None,
                    message: None,
                    connected: false,
                })
            }
        };
        change(entry)
    }
}

impl MsiBinding for VectorBinding {
    fn vector_event(&self, vector: u16) -> Result<Arc<EventFd>, MsiError> {
        self.with(vector, |state| Ok(Arc::clone(&state.event)))
    }

    fn route(&self, vector: u16, message: MsiMessage) -> Result<(), MsiError> {
        self.with(vector, |state| {
            let gsi = match state.gsi {
                Some(gsi) => gsi,
                None => self.next_gsi(vector)?,
            };
            state.gsi = Some(gsi);
            if state.message != Some(message) {
                self.router
                    .set_message(gsi, message.address, message.data)
                    .map_err(refused(vector, "KVM_SET_GSI_ROUTING"))?;
                state.message = Some(message);
            }
            if !state.connected {
                self.router
                    .connect(&state.event, gsi)
                    .map_err(refused(vector, "KVM_IRQFD"))?;
                state.connected = true;
            }
            Ok(())
        })
    }

    fn unroute(&self, vector: u16) -> Result<(), MsiError> {
        self.with(vector, |state| {
            if let (true, Some(gsi)) = (state.connected, state.gsi) {
                self.router
                    .disconnect(&state.event, gsi)
                    .map_err(refused(vector, "KVM_IRQFD"))?;
                state.connected = false;
            }
            Ok(())
        })
    }
}

impl VectorBinding {
    fn next_gsi(&self, vector: u16) -> Result<u32, MsiError> {
        self.pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next_gsi()
            .ok_or_else(|| {
                let error = io::Error::other("all interrupt routes of the VM are in use");
                failed(vector, "GSI allocation")(error)
            })
    }
}

fn failed(vector: u16, call: &'static str) -> impl FnOnce(io::Error) -> MsiError {
    move |source| MsiError {
        vector,
        call,
        source,
    }
}

fn refused(vector: u16, call: &'static str) -> impl FnOnce(KvmError) -> MsiError {
    move |error| failed(vector, call)(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use vmm_devices::virtio::rate::RateLimit;

    use super::*;

    /// Counts changes.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl MsiBinding for Counted {
        fn vector_event(&self, _: u16) -> Result<Arc<EventFd>, MsiError> {
            Ok(Arc::new(EventFd::new(EFD_CLOEXEC).unwrap()))
        }

        fn route(&self, _: u16, _: MsiMessage) -> Result<(), MsiError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn unroute(&self, _: u16) -> Result<(), MsiError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// A host that refuses everything.
    struct Refusing;

    impl MsiBinding for Refusing {
        fn vector_event(&self, vector: u16) -> Result<Arc<EventFd>, MsiError> {
            Err(failed(vector, "eventfd")(io::Error::other("no")))
        }

        fn route(&self, vector: u16, _: MsiMessage) -> Result<(), MsiError> {
            Err(failed(vector, "KVM_IRQFD")(io::Error::other("no")))
        }

        fn unroute(&self, vector: u16) -> Result<(), MsiError> {
            Err(failed(vector, "KVM_IRQFD")(io::Error::other("no")))
        }
    }

    #[test]
    fn vectors_that_the_host_refuses_are_counted_over_all_functions() {
        let failures = RouteFailures::default();
        let limiter = Arc::new(ChangeLimiter::default());
        for _ in 0..2 {
            let binding =
                PacedBinding::new(Arc::new(Refusing), Arc::clone(&limiter), failures.clone());
            let message = MsiMessage {
                address: 0xfee0_0000,
                data: 0,
            };
            binding.route(0, message).unwrap_err();
            binding.unroute(0).unwrap_err();
        }
        assert_eq!(failures.count(), 4);
    }

    #[test]
    fn vectors_that_change_all_the_time_wait_and_none_is_lost() {
        let counted = Arc::new(Counted::default());
        let limiter = Arc::new(ChangeLimiter::new(RateLimit {
            per_second: 1000,
            burst: 10,
        }));
        let one = |limiter| {
            PacedBinding::new(Arc::clone(&counted) as _, limiter, RouteFailures::default())
        };
        // The limiter is the machine's, not the function's.
        let functions = [one(Arc::clone(&limiter)), one(limiter)];
        let begun = Instant::now();
        for data in 0..30 {
            for function in &functions {
                let message = MsiMessage {
                    address: 0xfee0_0000,
                    data,
                };
                function.route(0, message).unwrap();
                function.unroute(0).unwrap();
            }
        }
        assert_eq!(counted.0.load(Ordering::Relaxed), 120);
        assert!(begun.elapsed() >= Duration::from_millis(100));
    }
}
