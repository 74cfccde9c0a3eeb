//! On which of the host's NUMA nodes guest memory lies.

use std::collections::BTreeSet;
use std::io;

use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::guest_ram::{GuestRam, RamError};
use crate::layout::Window;

/// One more than the largest number of a node that a kernel can be built for (`NODES_SHIFT` 10).
pub const MAX_HOST_NODES: u32 = 1024;

const WORD_BITS: usize = libc::c_ulong::BITS as usize;
const WORDS: usize = MAX_HOST_NODES as usize / WORD_BITS;
/// `maxnode`: kernels look at one bit less (mbind(2), bugs).
const MASK_BITS: libc::c_ulong = MAX_HOST_NODES as libc::c_ulong + 1;

/// `MPOL_F_MEMS_ALLOWED` of `linux/mempolicy.h`.
const MEMS_ALLOWED: libc::c_ulong = 1 << 2;

/// How the host picks a node for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// One of the nodes, and no other even if they are full.
    Bind,
    /// The one node if it has room.
    Preferred,
    /// The nodes in turn.
    Interleave,
}

/// Where pages of guest memory are to lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlacement {
    /// How a node is picked.
    pub policy: HostPolicy,
    /// Nodes of the host, each below [`MAX_HOST_NODES`].
    pub nodes: BTreeSet<u32>,
}

/// Says where the pages of `range` are to lie, before any of them is touched.
///
/// # Errors
/// When the range is not RAM, or the host does not have such nodes or no NUMA at all.
pub fn place_ram(ram: &GuestRam, range: Window, placement: &HostPlacement) -> Result<(), RamError> {
    let failed = RamError::system("mbind", range.bytes);
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let mode = libc::c_long::from(match placement.policy {
        HostPolicy::Preferred => libc::MPOL_PREFERRED,
        HostPolicy::Bind => libc::MPOL_BIND,
        HostPolicy::Interleave => libc::MPOL_INTERLEAVE,
    });
    let no_flags: libc::c_ulong = 0;
    let Some(mask) = mask_of(&placement.nodes) else {
        return Err(failed(invalid()));
    };
    let length = usize::try_from(range.bytes).map_err(|_| RamError::AddressSpace(range.bytes))?;
    // One region, or the address would lead out of its mapping.
    let Some(start) = ram
        .find_region(GuestAddress(range.base))
        .filter(|region| range.end() - region.start_addr().0 <= region.len())
        .and_then(|region| ram_pointer(region, range.base))
    else {
        return Err(failed(invalid()));
    };
    // SAFETY: the range lies within a live mapping, whose content a policy does not change; the mask
    // has the bits that the kernel reads.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            length,
            mode,
            mask.as_ptr(),
            MASK_BITS,
            no_flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(failed(io::Error::last_os_error()))
    }
}

fn ram_pointer(region: &crate::guest_ram::Region, address: u64) -> Option<*mut u8> {
    let offset = usize::try_from(address.checked_sub(region.start_addr().0)?).ok()?;
    Some(region.as_ptr().wrapping_add(offset))
}

/// The nodes of the host that this process may take memory of.
///
/// # Errors
/// The kernel's; it may have been built without NUMA.
pub fn allowed_host_nodes() -> io::Result<BTreeSet<u32>> {
    let mut mask: [libc::c_ulong; WORDS + 1] = [0; WORDS + 1];
    let nowhere: libc::c_ulong = 0;
    // SAFETY: the mask has room for the bits that the kernel writes; no policy is asked for, so the
    // other pointers may be null.
    let result = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            std::ptr::null_mut::<libc::c_int>(),
            mask.as_mut_ptr(),
            MASK_BITS,
            nowhere,
            MEMS_ALLOWED,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |node: &u32| {
        let node = *node as usize;
        let word = mask.get(node / WORD_BITS).copied().unwrap_or(0);
        word >> (node % WORD_BITS) & 1 != 0
    };
    Ok((0..MAX_HOST_NODES).filter(is_set).collect())
}

/// `None` when a node is beyond what kernels know, or there is none.
fn mask_of(nodes: &BTreeSet<u32>) -> Option<[libc::c_ulong; WORDS + 1]> {
    let mut mask = [0; WORDS + 1];
    for node in nodes {
        let node = *node as usize;
        // The last word is for the bit that kernels do not look at.
        *mask.get_mut(..WORDS)?.get_mut(node / WORD_BITS)? |= 1 << (node % WORD_BITS);
    }
    (!nodes.is_empty()).then_some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, create_ram};

    fn placement(policy: HostPolicy, node: u32) -> HostPlacement {
        HostPlacement {
            policy,
            nodes: BTreeSet::from([node]),
        }
    }

    /// The policy of the mapping that begins at `address`, as the kernel tells it.
    fn policy_at(address: u64) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
        let line = maps
            .lines()
            .find(|line| line.starts_with(&format!("{address:x} ")))?;
        line.split_whitespace().nth(1).map(str::to_owned)
    }

    #[test]
    fn ranges_lie_where_they_are_put() {
        let allowed = match allowed_host_nodes() {
            Ok(allowed) => allowed,
            Err(error) => {
                test_skip::report(&format!("this kernel has no NUMA: {error}"));
                return;
            }
        };
        let node = *allowed.first().expect("memory is somewhere");
        let layout = Layout::new(64 << 20, 40).unwrap();
        let ram = create_ram(&layout).unwrap();
        let policies = [
            (HostPolicy::Bind, format!("bind:{node}")),
            (HostPolicy::Interleave, format!("interleave:{node}")),
            (HostPolicy::Preferred, format!("prefer:{node}")),
        ];
        let start = ram.iter().next().unwrap().as_ptr() as u64;
        for (base, (policy, text)) in (0u64..).step_by(16 << 20).zip(policies) {
            let bytes = 16 << 20;
            place_ram(&ram, Window { base, bytes }, &placement(policy, node)).unwrap();
            assert_eq!(policy_at(start + base), Some(text));
        }
        let none = MAX_HOST_NODES - 1;
        if !allowed.contains(&none) {
            let whole = layout.low_ram();
            let refused = place_ram(&ram, whole, &placement(HostPolicy::Bind, none));
            assert!(matches!(
                refused,
                Err(RamError::System { call: "mbind", .. })
            ));
        }
    }

    #[test]
    fn what_is_not_ram_and_nodes_that_cannot_be_are_refused() {
        let ram = create_ram(&Layout::new(64 << 20, 40).unwrap()).unwrap();
        let beyond = Window {
            base: 48 << 20,
            bytes: 32 << 20,
        };
        place_ram(&ram, beyond, &placement(HostPolicy::Bind, 0)).unwrap_err();
        let within = Window {
            base: 0,
            bytes: 4096,
        };
        let absurd = placement(HostPolicy::Bind, MAX_HOST_NODES);
        place_ram(&ram, within, &absurd).unwrap_err();
        let nowhere = HostPlacement {
            policy: HostPolicy::Bind,
            nodes: BTreeSet::new(),
        };
        place_ram(&ram, within, &nowhere).unwrap_err();
    }
}
