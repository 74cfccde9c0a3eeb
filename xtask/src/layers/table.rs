//! The table of rooms: what each crate may import, and what it must never reach.

/// One row.
pub(super) struct Room {
    /// The crate's name.
    pub name: &'static str,
    /// The crates of this workspace that it may import; `*` is all.
    pub imports: &'static [&'static str],
    /// Packages it must not name in its manifest.
    pub never_directly: &'static [&'static str],
    /// Packages that must not be in its dependency tree at all.
    pub never_at_all: &'static [&'static str],
    /// The end of the sentence that explains a refusal.
    pub because: &'static str,
    /// Most packages in its dependency tree, where that is bounded.
    pub most_packages: Option<usize>,
}

const PLAIN: Room = Room {
    name: "",
    imports: &[],
    never_directly: &[],
    never_at_all: &[],
    because: "is not for this room",
    most_packages: None,
};

/// What a pure room has no use for: runtimes, clocks, randomness, the system, logs.
const IMPURE: &[&str] = &[
    "tokio", "jiff", "chrono", "time", "rand", "uuid", "nix", "libc", "rustix", "tracing", "log",
    "redb", "tonic", "tempfile",
];

const RUNTIMES: &[&str] = &["tokio", "async-std", "smol", "tonic", "hyper"];

pub(super) const ROOMS: &[Room] = &[
    Room {
        name: "proto-machine",
        never_directly: IMPURE,
        because: "is no part of a pure room",
        ..PLAIN
    },
    Room {
        name: "proto-node",
        never_directly: &["tokio", "nix", "libc", "redb", "tracing"],
        because: "is I/O, and the API's definition does none",
        ..PLAIN
    },
    Room {
        name: "proto-vmm",
        never_at_all: &["proto-node", "tokio", "tonic"],
        because: "does not belong into the VMM's private protocol",
        ..PLAIN
    },
    Room {
        name: "agent-dhcp",
        never_directly: IMPURE,
        because: "is no part of a pure room",
        ..PLAIN
    },
    Room {
        name: "agent-confined",
        never_at_all: RUNTIMES,
        because: "is not for children that read what strangers wrote",
        ..PLAIN
    },
    Room {
        name: "agent-dhcp-server",
        imports: &["agent-confined", "agent-dhcp"],
        never_at_all: RUNTIMES,
        because: "is more than a server has use for that guests may take over",
        ..PLAIN
    },
    Room {
        name: "agent-domain",
        imports: &["proto-node", "proto-machine"],
        never_directly: IMPURE,
        because: "is no part of a pure room",
        ..PLAIN
    },
    Room {
        name: "agent-plan",
        imports: &["agent-domain"],
        never_directly: IMPURE,
        because: "is no part of a pure room",
        ..PLAIN
    },
    Room {
        name: "agent-objects",
        imports: &["agent-domain", "proto-node"],
        never_directly: IMPURE,
        because: "is no part of a pure room",
        ..PLAIN
    },
    Room {
        name: "agent-controllers",
        imports: &["agent-objects", "agent-domain", "proto-node"],
        never_directly: IMPURE,
        because: "is no part of a pure room",
        ..PLAIN
    },
    Room {
        name: "agent-store",
        imports: &["agent-plan", "agent-domain"],
        ..PLAIN
    },
    Room {
        name: "agent-images",
        never_at_all: &["tonic", "hyper", "reqwest", "agent-domain"],
        because: "is network or policy, and formats need neither",
        ..PLAIN
    },
    Room {
        name: "agent-host",
        imports: &[
            "agent-plan",
            "agent-domain",
            "agent-confined",
            "agent-dhcp",
            "agent-dhcp-server",
            "agent-images",
            "proto-machine",
            "proto-vmm",
        ],
        never_directly: &["tonic", "redb"],
        because: "belongs to sources or store",
        ..PLAIN
    },
    Room {
        name: "agent-sources",
        imports: &["agent-objects", "agent-domain", "proto-node"],
        never_directly: &["redb", "kvm-ioctls", "rtnetlink"],
        because: "belongs to store or host",
        ..PLAIN
    },
    Room {
        name: "agent-daemon",
        imports: &[
            "agent-domain",
            "agent-plan",
            "agent-store",
            "agent-images",
            "agent-host",
            "agent-sources",
            "agent-objects",
            "agent-controllers",
            // The messages that it carries between sources and the store.
            "proto-node",
        ],
        never_directly: &["redb", "rtnetlink", "kvm-ioctls"],
        because: "belongs to store or host",
        ..PLAIN
    },
    Room {
        name: "agent-cli",
        // `validate` and `explain` ask the table of kinds, as a node does.
        imports: &["proto-node", "agent-domain", "agent-objects"],
        never_at_all: &["agent-plan", "agent-store", "agent-host", "redb"],
        because: "is no business of a client",
        ..PLAIN
    },
    Room {
        name: "vmm-memory",
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    Room {
        name: "vmm-kvm",
        imports: &["vmm-memory", "proto-machine"],
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    Room {
        name: "vmm-sys",
        imports: &["vmm-memory"],
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    Room {
        name: "vmm-devices",
        imports: &["vmm-memory", "vmm-sys"],
        never_directly: &["kvm-ioctls", "kvm-bindings", "nix", "libc"],
        never_at_all: RUNTIMES,
        because: "is KVM or the system: devices get both through what is handed to them",
        ..PLAIN
    },
    Room {
        name: "vmm-machine",
        imports: &[
            "vmm-memory",
            "vmm-kvm",
            "vmm-sys",
            "vmm-devices",
            "proto-machine",
        ],
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    Room {
        name: "vmm-monitor",
        imports: &[
            "proto-machine",
            "vmm-machine",
            "vmm-memory",
            "vmm-kvm",
            "vmm-sys",
            "vmm-devices",
            "proto-vmm",
        ],
        never_directly: &["tokio"],
        never_at_all: &[
            "tokio",
            "async-std",
            "smol",
            "tonic",
            "hyper",
            "proto-node",
            "agent-domain",
        ],
        because: "is no part of a VMM",
        // The budget of docs: the goal is 70.
        most_packages: Some(90),
    },
    Room {
        name: "vmm-fuzz",
        imports: &[
            // Images are hostile before there is a guest of them, and so are a guest's requests for addresses.
            "agent-images",
            "agent-dhcp",
            "vmm-machine",
            "vmm-memory",
            "vmm-sys",
            "vmm-devices",
            "proto-vmm",
        ],
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    Room {
        name: "test-skip",
        ..PLAIN
    },
    Room {
        name: "integration",
        imports: &["*"],
        ..PLAIN
    },
    Room {
        name: "xtask",
        imports: &["*"],
        ..PLAIN
    },
];
