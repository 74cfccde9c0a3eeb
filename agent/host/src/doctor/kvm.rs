//! KVM: whether it is there, what runs guests, and on what.

use std::path::Path;

use kvm_ioctls::{Cap, Kvm};

use super::finding::Finding;
use super::words::{reason_of, text_of};

/// The only version that there ever was.
const API_VERSION: i32 = 12;

/// What the VMM cannot do without.
const REQUIRED: [(Cap, &str); 9] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::Irqchip, "KVM_CAP_IRQCHIP"),
    (Cap::Irqfd, "KVM_CAP_IRQFD"),
    (Cap::Ioeventfd, "KVM_CAP_IOEVENTFD"),
    (Cap::IrqRouting, "KVM_CAP_IRQ_ROUTING"),
    (Cap::Pit2, "KVM_CAP_PIT2"),
    (Cap::SetTssAddr, "KVM_CAP_SET_TSS_ADDR"),
    (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT"),
    (Cap::X2ApicApi, "KVM_CAP_X2APIC_API"),
];

/// How to come to a KVM.
const LOAD: &str = "load kvm_intel or kvm_amd (modprobe), and switch virtualization on in the \
                    machine's firmware or, where the node is a virtual machine, in its host";

/// Whether machines can be made.
pub(super) fn usable(root: &Path) -> Finding {
    const CHECK: &str = "kvm";
    let device = root.join("dev/kvm");
    if !device.exists() {
        let message = format!("there is no {}: no guest can run", device.display());
        return Finding::fail(CHECK, message, LOAD);
    }
    let kvm = match Kvm::new() {
        Ok(kvm) => kvm,
        Err(error) => {
            let why = reason_of(&std::io::Error::from_raw_os_error(error.errno()));
            let message = format!("/dev/kvm cannot be opened ({why}): no guest can run");
            let way_out = "run as root, or as a member of the group that owns /dev/kvm";
            return Finding::fail(CHECK, message, way_out);
        }
    };
    let version = kvm.get_api_version();
    if version != API_VERSION {
        let message = format!("speaks API version {version}, not {API_VERSION}: no guest can run");
        return Finding::fail(CHECK, message, "run a kernel of this millennium");
    }
    let missing: Vec<&str> = REQUIRED
        .iter()
        .filter(|(cap, _)| !kvm.check_extension(*cap))
        .map(|(_, name)| *name)
        .collect();
    if !missing.is_empty() {
        let message = format!("lacks {}: no guest can run", missing.join(", "));
        return Finding::fail(CHECK, message, "run Linux 5.10 or later");
    }
    let vcpus = kvm.get_max_vcpus();
    Finding::ok(CHECK, format!("API {version}, up to {vcpus} vCPUs a guest"))
}

/// What executes guests' instructions.
pub(super) fn backend(root: &Path) -> Finding {
    const CHECK: &str = "cpu";
    let is_on =
        |path: &str| text_of(root, path).is_some_and(|text| matches!(text.as_str(), "Y" | "1"));
    let modules = root.join("sys/module");
    for (module, name, parameter) in [("kvm_amd", "AMD-V", "npt"), ("kvm_intel", "VT-x", "ept")] {
        if !modules.join(module).exists() {
            continue;
        }
        if is_on(&format!("sys/module/{module}/parameters/{parameter}")) {
            return Finding::ok(CHECK, format!("{name} with nested paging"));
        }
        return Finding::warn(
            CHECK,
            format!(
                "{name} without nested paging: guests' page tables are shadowed, which is slow"
            ),
            format!("load {module} with {parameter}=1, if the CPU has it"),
        );
    }
    if modules.join("kvm_pvm").exists() {
        return Finding::warn(
            CHECK,
            "KVM is software-emulated (kvm_pvm): guest kernels are interpreted, and stock kernels use \
             instructions that it does not know",
            "use a machine whose KVM is kvm_intel or kvm_amd",
        );
    }
    Finding::warn(
        CHECK,
        "neither kvm_intel nor kvm_amd is loaded: what executes guests is not known",
        LOAD,
    )
}

/// Whether the node is a guest itself.
pub(super) fn nesting(root: &Path) -> Finding {
    const CHECK: &str = "nesting";
    let cpus = text_of(root, "proc/cpuinfo").unwrap_or_default();
    let is_guest = cpus
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    if is_guest {
        return Finding::warn(
            CHECK,
            "this node is a virtual machine itself: each exit of a guest costs several of the node's",
            "run guests on a node of bare metal where speed counts",
        );
    }
    Finding::ok(CHECK, "the node is no virtual machine")
}

#[cfg(test)]
mod tests {
    use super::super::finding::Health;
    use super::super::tests::node;
    use super::*;

    #[test]
    fn a_node_without_kvm_runs_no_guest() {
        let node = node(&[]);
        let found = usable(node.path());
        assert_eq!(found.health, Health::Fail);
        assert!(found.way_out.contains("kvm_intel"), "{found:?}");
    }

    #[test]
    fn what_executes_guests_is_known_by_the_module() {
        type Files<'a> = &'a [(&'a str, &'a str)];
        let cases: [(Files<'_>, Health, &str); 5] = [
            (
                &[("sys/module/kvm_amd/parameters/npt", "1\n")],
                Health::Ok,
                "AMD-V with",
            ),
            (
                &[("sys/module/kvm_intel/parameters/ept", "Y\n")],
                Health::Ok,
                "VT-x with",
            ),
            (
                &[("sys/module/kvm_intel/parameters/ept", "N\n")],
                Health::Warn,
                "without nested paging",
            ),
            (
                &[("sys/module/kvm_pvm/refcnt", "0")],
                Health::Warn,
                "software-emulated",
            ),
            (&[], Health::Warn, "not known"),
        ];
        for (files, health, words) in cases {
            let found = backend(node(files).path());
            assert_eq!(found.health, health, "{found:?}");
            assert!(found.message.contains(words), "{found:?}");
        }
    }

    #[test]
    fn a_node_that_is_a_guest_is_reported() {
        let guest = node(&[(
            "proc/cpuinfo",
            "processor : 0\nflags : fpu hypervisor sse\n",
        )]);
        assert_eq!(nesting(guest.path()).health, Health::Warn);
        let metal = node(&[("proc/cpuinfo", "processor : 0\nflags : fpu sse\n")]);
        assert_eq!(nesting(metal.path()).health, Health::Ok);
    }
}
