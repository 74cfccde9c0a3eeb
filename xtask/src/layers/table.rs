//! The table of crates: what each crate may import, and what it must never reach.

/// One row.
pub(super) struct CrateRules {
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

const PLAIN: CrateRules = CrateRules {
    name: "",
    imports: &[],
    never_directly: &[],
    never_at_all: &[],
    because: "is not for this crate",
    most_packages: None,
};

/// What a pure crate has no use for: runtimes, clocks, randomness, the system, logs.
const IMPURE: &[&str] = &[
    "tokio", "jiff", "chrono", "time", "rand", "uuid", "nix", "libc", "rustix", "tracing", "log",
    "redb", "tonic", "tempfile",
];

const RUNTIMES: &[&str] = &["tokio", "async-std", "smol", "tonic", "hyper"];

pub(super) const CRATES: &[CrateRules] = &[
    CrateRules {
        name: "proto-machine",
        never_directly: IMPURE,
        because: "is no part of a pure crate",
        ..PLAIN
    },
    CrateRules {
        name: "proto-node",
        never_directly: &["tokio", "nix", "libc", "redb", "tracing"],
        because: "is I/O, and the API's definition does none",
        ..PLAIN
    },
    CrateRules {
        name: "proto-vmm",
        never_at_all: &["proto-node", "tokio", "tonic"],
        because: "does not belong into the VMM's private protocol",
        ..PLAIN
    },
    CrateRules {
        name: "agent-dhcp",
        never_directly: IMPURE,
        because: "is no part of a pure crate",
        ..PLAIN
    },
    CrateRules {
        name: "agent-confined",
        never_at_all: RUNTIMES,
        because: "is not for children that read what strangers wrote",
        ..PLAIN
    },
    CrateRules {
        name: "agent-dhcp-server",
        imports: &["agent-confined", "agent-dhcp"],
        never_at_all: RUNTIMES,
        because: "is more than a server has use for that guests may take over",
        ..PLAIN
    },
    CrateRules {
        name: "agent-domain",
        imports: &["proto-node", "proto-machine"],
        never_directly: IMPURE,
        because: "is no part of a pure crate",
        ..PLAIN
    },
    CrateRules {
        name: "agent-plan",
        imports: &["agent-domain"],
        never_directly: IMPURE,
        because: "is no part of a pure crate",
        ..PLAIN
    },
    CrateRules {
        name: "agent-objects",
        imports: &["agent-domain", "proto-node"],
        never_directly: IMPURE,
        because: "is no part of a pure crate",
        ..PLAIN
    },
    CrateRules {
        name: "agent-controllers",
        imports: &["agent-objects", "agent-domain", "proto-node"],
        never_directly: IMPURE,
        because: "is no part of a pure crate",
        ..PLAIN
    },
    CrateRules {
        name: "agent-store",
        imports: &["agent-plan", "agent-domain"],
        ..PLAIN
    },
    CrateRules {
        name: "agent-images",
        never_at_all: &["tonic", "hyper", "reqwest", "agent-domain"],
        because: "is network or policy, and formats need neither",
        ..PLAIN
    },
    CrateRules {
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
    CrateRules {
        name: "agent-sources",
        imports: &["agent-objects", "agent-domain", "proto-node"],
        never_directly: &["redb", "kvm-ioctls", "rtnetlink"],
        because: "belongs to store or host",
        ..PLAIN
    },
    CrateRules {
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
    CrateRules {
        name: "agent-cli",
        // `validate` and `explain` ask the table of kinds, as a node does.
        imports: &["proto-node", "agent-domain", "agent-objects"],
        never_at_all: &["agent-plan", "agent-store", "agent-host", "redb"],
        because: "is no business of a client",
        ..PLAIN
    },
    CrateRules {
        name: "vmm-memory",
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    CrateRules {
        name: "vmm-kvm",
        imports: &["vmm-memory", "proto-machine"],
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    CrateRules {
        name: "vmm-sys",
        imports: &["vmm-memory"],
        never_at_all: RUNTIMES,
        because: "is no part of a VMM",
        ..PLAIN
    },
    CrateRules {
        name: "vmm-devices",
        imports: &["vmm-memory", "vmm-sys"],
        never_directly: &["kvm-ioctls", "kvm-bindings", "nix", "libc"],
        never_at_all: RUNTIMES,
        because: "is KVM or the system: devices get both through what is handed to them",
        ..PLAIN
    },
    CrateRules {
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
    CrateRules {
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
    CrateRules {
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
    CrateRules {
        name: "test-skip",
        ..PLAIN
    },
    CrateRules {
        name: "integration",
        imports: &["*"],
        ..PLAIN
    },
    CrateRules {
        name: "xtask",
        imports: &["*"],
        ..PLAIN
    },
];
