//! Sockets, cores and threads, and the APIC ids that follow from them.

/// Largest id of an xAPIC. Ids have 8 bits there, and 255 is the broadcast address.
const MAX_XAPIC_ID: u32 = 254;

/// Most vCPUs that any host's KVM can be built for (`CONFIG_KVM_MAX_NR_VCPUS`). Two levels that are
/// rounded up to powers of two make APIC ids below four times as many, which fits the 15 bits that
/// interrupt messages have for them (`KVM_FEATURE_MSI_EXT_DEST_ID`).
const MAX_VCPUS: u32 = 4096;

/// Sockets, cores and threads of a guest, those of vCPUs that are not there yet included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTopology {
    max_sockets: u32,
    sockets: u32,
    cores: u32,
    threads: u32,
}

/// A topology that cannot be.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TopologyError {
    /// One of the three is zero.
    #[error("a topology of {sockets} sockets, {cores} cores and {threads} threads has no vCPU")]
    Empty {
        /// Sockets of the machine.
        sockets: u32,
        /// Cores of a socket.
        cores: u32,
        /// Threads of a core.
        threads: u32,
    },
    /// More than any host's KVM takes.
    #[error(
        "a topology of {sockets} sockets, {cores} cores and {threads} threads has more than {MAX_VCPUS} vCPUs"
    )]
    TooLarge {
        /// Sockets of the machine.
        sockets: u32,
        /// Cores of a socket.
        cores: u32,
        /// Threads of a core.
        threads: u32,
    },
    /// More sockets at power-on than there ever will be.
    #[error("{sockets} sockets are more than the {max_sockets} that there may ever be")]
    MoreThanEver {
        /// Sockets at power-on.
        sockets: u32,
        /// Sockets of the topology.
        max_sockets: u32,
    },
}

impl CpuTopology {
    /// A topology with at least one vCPU, all of them there at power-on.
    ///
    /// # Errors
    /// When it has no vCPU or too many.
    pub fn new(sockets: u32, cores: u32, threads: u32) -> Result<Self, TopologyError> {
        if sockets == 0 || cores == 0 || threads == 0 {
            return Err(TopologyError::Empty {
                sockets,
                cores,
                threads,
            });
        }
        let small = [sockets, cores, threads].iter().all(|n| *n <= MAX_VCPUS);
        let product = [sockets, cores, threads].into_iter().map(u64::from);
        if !small || product.product::<u64>() > u64::from(MAX_VCPUS) {
            return Err(TopologyError::TooLarge {
                sockets,
                cores,
                threads,
            });
        }
        Ok(Self {
            max_sockets: sockets,
            sockets,
            cores,
            threads,
        })
    }

    /// The same with only the first `sockets` there at power-on.
    ///
    /// # Errors
    /// When these are none, or more than the topology has.
    pub fn with_boot_sockets(self, sockets: u32) -> Result<Self, TopologyError> {
        let Self {
            max_sockets,
            cores,
            threads,
            ..
        } = self;
        if sockets == 0 {
            return Err(TopologyError::Empty {
                sockets,
                cores,
                threads,
            });
        }
        if sockets > max_sockets {
            return Err(TopologyError::MoreThanEver {
                sockets,
                max_sockets,
            });
        }
        Ok(Self { sockets, ..self })
    }

    /// Number of vCPUs at power-on. They are those with the lowest indexes.
    #[must_use]
    pub fn count(self) -> u32 {
        self.sockets * self.cores * self.threads
    }

    /// Number of vCPUs that there may ever be.
    #[must_use]
    pub fn max_count(self) -> u32 {
        self.max_sockets * self.cores * self.threads
    }

    /// APIC id of vCPU `index`: thread, core and socket number, each in as many bits as it needs.
    #[must_use]
    pub fn apic_id(self, index: u32) -> u32 {
        let thread = index % self.threads;
        let core = index / self.threads % self.cores;
        self.socket(index) << self.package_bits() | core << self.thread_bits() | thread
    }

    /// Whether some vCPU has an APIC id that only an x2APIC can have.
    #[must_use]
    pub fn needs_x2apic(self) -> bool {
        self.apic_id(self.max_count() - 1) > MAX_XAPIC_ID
    }

    /// Socket of vCPU `index`.
    #[must_use]
    pub fn socket(self, index: u32) -> u32 {
        index / self.threads / self.cores
    }

    /// Sockets that are there at power-on: those with the lowest numbers.
    #[must_use]
    pub fn sockets(self) -> u32 {
        self.sockets
    }

    /// Sockets that there may ever be.
    #[must_use]
    pub fn max_sockets(self) -> u32 {
        self.max_sockets
    }

    /// Cores of a socket.
    #[must_use]
    pub fn cores(self) -> u32 {
        self.cores
    }

    /// Threads of a core.
    #[must_use]
    pub fn threads(self) -> u32 {
        self.threads
    }

    /// Bits of the APIC id that number threads.
    pub(crate) fn thread_bits(self) -> u32 {
        bits_for(self.threads)
    }

    /// Bits of the APIC id below the socket's number.
    pub(crate) fn package_bits(self) -> u32 {
        self.thread_bits() + bits_for(self.cores)
    }
}

/// Bits that number `count` things from 0.
fn bits_for(count: u32) -> u32 {
    count.next_power_of_two().trailing_zeros()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn apic_ids_are_distinct_and_keep_levels_in_bits_of_their_own() {
        let topology = CpuTopology::new(2, 3, 2).unwrap();
        let ids: Vec<u32> = (0..topology.count()).map(|i| topology.apic_id(i)).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]);
    }

    #[test]
    fn impossible_topologies_are_refused() {
        assert!(matches!(
            CpuTopology::new(0, 1, 1),
            Err(TopologyError::Empty { .. })
        ));
        assert!(matches!(
            CpuTopology::new(4097, 1, 1),
            Err(TopologyError::TooLarge { .. })
        ));
        assert!(CpuTopology::new(4096, 1, 1).is_ok());
        assert!(matches!(
            CpuTopology::new(u32::MAX, u32::MAX, 2),
            Err(TopologyError::TooLarge { .. })
        ));
        let topology = CpuTopology::new(4, 1, 1).unwrap();
        assert!(matches!(
            topology.with_boot_sockets(5),
            Err(TopologyError::MoreThanEver { .. })
        ));
        assert!(matches!(
            topology.with_boot_sockets(0),
            Err(TopologyError::Empty { .. })
        ));
    }

    #[test]
    fn ids_from_255_up_need_an_x2apic() {
        assert!(!CpuTopology::new(255, 1, 1).unwrap().needs_x2apic());
        assert!(CpuTopology::new(256, 1, 1).unwrap().needs_x2apic());
        // 43 sockets of 5 cores are 215 vCPUs, but a socket takes 8 ids.
        assert!(CpuTopology::new(43, 5, 1).unwrap().needs_x2apic());
        // vCPUs that are yet to come count.
        let topology = CpuTopology::new(300, 1, 1).unwrap();
        let topology = topology.with_boot_sockets(2).unwrap();
        assert_eq!((topology.count(), topology.max_count()), (2, 300));
        assert!(topology.needs_x2apic());
    }

    proptest! {
        #[test]
        fn ids_of_every_topology_rise_and_fit(
            sockets in 1u32..300, cores in 1u32..70, threads in 1u32..5
        ) {
            if let Ok(topology) = CpuTopology::new(sockets, cores, threads) {
                let ids: Vec<u32> = (0..topology.count()).map(|i| topology.apic_id(i)).collect();
                prop_assert!(ids.is_sorted_by(|a, b| a < b));
                prop_assert!(ids.iter().all(|id| *id < 1 << 15));
                for (index, id) in (0..).zip(&ids) {
                    prop_assert_eq!(id >> topology.package_bits(), topology.socket(index));
                }
            }
        }
    }
}
