//! Sets of tests and attacks, by their names on the command line.

/// A test of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetCase {
    /// Frames to the echo peer and back.
    Echo,
    /// The same with receive buffers that are shorter than frames.
    Merge,
    /// Frames whose checksum the host completes.
    Checksum,
    /// Two pairs of queues.
    Pairs,
    /// Receive filter and address.
    Filter,
    /// Somebody outside pulls the cable and puts it back.
    Link,
    /// Somebody outside asks for an announcement.
    Announce,
    /// Headers that make no sense.
    Hostile,
    /// Many frames at once.
    Burst,
}

impl NetCase {
    const ALL: [(&'static str, Self); 9] = [
        ("echo", Self::Echo),
        ("merge", Self::Merge),
        ("checksum", Self::Checksum),
        ("pairs", Self::Pairs),
        ("filter", Self::Filter),
        ("link", Self::Link),
        ("announce", Self::Announce),
        ("hostile", Self::Hostile),
        ("burst", Self::Burst),
    ];
}

/// Tests of a NIC, in the order in which they are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetCases(u16);

impl NetCases {
    pub(super) const ECHO: Self = Self(1);

    pub(super) fn parse(list: &str) -> Option<Self> {
        let mut cases = 0;
        for name in list.split(',') {
            let known = NetCase::ALL.iter();
            cases |= 1 << known.into_iter().position(|(known, _)| *known == name)?;
        }
        Some(Self(cases))
    }

    /// The cases.
    pub fn iter(self) -> impl Iterator<Item = NetCase> {
        let all = NetCase::ALL.into_iter().enumerate();
        all.filter(move |(index, _)| self.0 >> index & 1 != 0)
            .map(|(_, (_, case))| case)
    }
}

/// What the guest attacks before its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Disks.
    Blk,
    /// NICs.
    Net,
    /// Entropy sources.
    Rng,
    /// Consoles.
    Console,
    /// Balloons.
    Balloon,
    /// Socket devices.
    Vsock,
    /// What is no virtio device: chips at I/O ports, configuration space, addresses without anything.
    Chips,
    /// Root ports.
    Bridges,
    /// The machine as a whole, which ends of it.
    Execute,
    /// Nothing more: the frames of NICs are moved by vhost-net, whose kernel judges some rings otherwise.
    Vhost,
}

/// What the guest attacks, in the order in which it is declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attacks(u16);

impl Attacks {
    const ALL: [(&'static str, Attack); 10] = [
        ("blk", Attack::Blk),
        ("net", Attack::Net),
        ("rng", Attack::Rng),
        ("console", Attack::Console),
        ("balloon", Attack::Balloon),
        ("vsock", Attack::Vsock),
        ("chips", Attack::Chips),
        ("bridges", Attack::Bridges),
        ("execute", Attack::Execute),
        ("vhost", Attack::Vhost),
    ];

    pub(super) fn parse(list: &str) -> Option<Self> {
        let mut attacks = 0;
        for name in list.split(',') {
            if name == "all" {
                // All but the last two: the one that ends the machine, and what is no attack.
                attacks |= (1 << (Self::ALL.len() - 2)) - 1;
                continue;
            }
            attacks |= 1 << Self::ALL.iter().position(|(known, _)| *known == name)?;
        }
        Some(Self(attacks))
    }

    /// Whether this is attacked.
    pub fn contain(self, attack: Attack) -> bool {
        let mut all = Self::ALL.iter().enumerate();
        all.any(|(index, (_, known))| *known == attack && self.0 >> index & 1 != 0)
    }
}
