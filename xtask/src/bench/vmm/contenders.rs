//! Command lines of the hypervisors: the same machine for each, as far as it can be had.

use integration::vmm_bench::{CMDLINE, Contender, DISK, TAP};

/// Guest memory.
pub const GUEST_MIB: u32 = 256;

/// Where the node has what guests boot from.
pub const DIRECTORY: &str = "/run/bench";

/// Ours, in tables.
pub const KVMLET: &str = "kvmlet";
/// QEMU without PCI.
pub const MICROVM: &str = "qemu-microvm";
/// QEMU with PCI.
pub const Q35: &str = "qemu-q35";

/// Kernels that guests boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kernel {
    /// The small one of `guest-images/bench`, an ELF image.
    Bench,
    /// Debian's cloud kernel, likewise unpacked.
    Stock,
}

impl Kernel {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bench => "bench kernel",
            Self::Stock => "Debian's cloud kernel",
        }
    }

    /// Its file in [`DIRECTORY`].
    pub fn file(self) -> &'static str {
        match self {
            Self::Bench => "vmlinux",
            Self::Stock => "stock-vmlinux",
        }
    }
}

/// All hypervisors: 1 vCPU, serial console, disk, NIC, entropy device.
pub fn contenders(kernel: Kernel) -> Vec<Contender> {
    let kernel = format!("{DIRECTORY}/{}", kernel.file());
    vec![
        kvmlet(&kernel),
        qemu(
            MICROVM,
            &kernel,
            "microvm,accel=kvm,x-option-roms=off,pit=off,pic=off,rtc=off",
            "device",
        ),
        qemu(Q35, &kernel, "q35,accel=kvm", "pci"),
    ]
}

fn kvmlet(kernel: &str) -> Contender {
    let words = format!(
        "{DIRECTORY}/vmm-front run --vmm {DIRECTORY}/kvmlet-vmm --kernel {kernel} \
         --initrd {DIRECTORY}/initrd --memory {GUEST_MIB}M --disk {DISK} --net {TAP} --rng \
         --no-reboot --cmdline {CMDLINE}"
    );
    contender(KVMLET, &words)
}

fn qemu(name: &str, kernel: &str, machine: &str, bus: &str) -> Contender {
    let words = format!(
        "/usr/bin/qemu-system-x86_64 -M {machine} -cpu host -m {GUEST_MIB} -nodefaults -no-user-config \
         -nographic -no-reboot -serial stdio -kernel {kernel} -initrd {DIRECTORY}/initrd \
         -global virtio-mmio.force-legacy=false \
         -drive id=disk,file={DISK},format=raw,if=none -device virtio-blk-{bus},drive=disk \
         -netdev tap,id=nic,ifname={TAP},script=no,downscript=no -device virtio-net-{bus},netdev=nic{} \
         -device virtio-rng-{bus} -append {CMDLINE}",
        // Its boot ROM is not needed and not there.
        if bus == "pci" { ",romfile=" } else { "" },
    );
    contender(name, &words)
}

fn contender(name: &str, words: &str) -> Contender {
    Contender {
        name: name.to_owned(),
        command: words.split_whitespace().map(str::to_owned).collect(),
    }
}
