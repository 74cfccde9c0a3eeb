//! Linux' search for the I/O ports of configuration space (`pci_check_type1` in arch/x86/pci/direct.c).
//!
//! Linux uses memory for what lies in conventional configuration space only where it finds no I/O ports. It
//! writes 1 to I/O port 0xCFB, which nobody else does, then the address with nothing but its enable bit, and
//! looks whether it can read that back. Uses of the I/O ports without this search are not followed here.

/// Of I/O port 0xCFB within the I/O ports.
const FIRST_WRITE: (u64, &[u8]) = (3, &[1]);
/// The address, enabled, of register 0 of the host bridge.
const SECOND_WRITE: (u64, &[u8]) = (0, &[0, 0, 0, 0x80]);

/// How far a search is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Search {
    #[default]
    Idle,
    Begun,
    Asked,
}

impl Search {
    /// Notes a write to the I/O ports.
    pub(super) fn follow(&mut self, offset: u64, data: &[u8]) {
        *self = match *self {
            _ if (offset, data) == FIRST_WRITE => Self::Begun,
            Self::Begun if (offset, data) == SECOND_WRITE => Self::Asked,
            _ => Self::Idle,
        };
    }

    /// Whether the address, which is read now, is what the search looks for. It is over then.
    pub(super) fn ends(&mut self) -> bool {
        let ends = *self == Self::Asked;
        if ends {
            *self = Self::Idle;
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENABLE: [u8; 4] = [0, 0, 0, 0x80];

    #[test]
    fn linux_searches_by_two_writes() {
        let mut search = Search::default();
        search.follow(3, &[1]);
        // The address is read to be brought back later.
        assert!(!search.ends());
        search.follow(0, &ENABLE);
        assert!(search.ends());
        assert!(!search.ends());
    }

    #[test]
    fn who_reads_registers_does_not_search() {
        let mut search = Search::default();
        search.follow(0, &ENABLE);
        assert!(!search.ends());
        for other in [(3, [0].as_slice()), (0, &[0, 0, 1, 0x80]), (4, &[1])] {
            search.follow(3, &[1]);
            search.follow(other.0, other.1);
            search.follow(0, &ENABLE);
            assert!(!search.ends(), "{other:?}");
        }
    }
}
