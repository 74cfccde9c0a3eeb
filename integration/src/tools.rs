//! Programs that the harness needs, the Debian packages that hold them, and getting those.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::process;

/// A program and the Debian package it comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tool {
    /// The program's absolute path, or the name looked up in `PATH`.
    pub program: &'static str,
    /// The package of Debian 12.
    pub package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// What booting a node needs.
pub const NODE: &[Tool] = &[
    tool("qemu-system-x86_64", "qemu-system-x86"),
    tool("qemu-img", "qemu-utils"),
    tool("mke2fs", "e2fsprogs"),
    tool("setpriv", "util-linux"),
];

/// What a corner of this machine needs.
pub const HOST: &[Tool] = &[
    tool("unshare", "util-linux"),
    tool("setpriv", "util-linux"),
    tool("ip", "iproute2"),
    tool("nft", "nftables"),
];

/// What making the images needs.
pub const IMAGES: &[Tool] = &[
    tool("/bin/busybox", "busybox-static"),
    tool("mmdebstrap", "mmdebstrap"),
    tool("mke2fs", "e2fsprogs"),
    tool("dpkg-deb", "dpkg"),
    tool("xz", "xz-utils"),
];

/// Firmware, and what disks that it boots are made with.
pub const FIRMWARE: &[Tool] = &[
    tool("/usr/share/seabios/bios-256k.bin", "seabios"),
    tool("/usr/share/OVMF/OVMF_CODE_4M.fd", "ovmf"),
    tool("/usr/lib/grub/i386-pc/boot.img", "grub-pc-bin"),
    tool("/usr/lib/grub/x86_64-efi/kernel.img", "grub-efi-amd64-bin"),
    tool("grub-mkimage", "grub-common"),
    tool("/sbin/sgdisk", "gdisk"),
    tool("/sbin/mkfs.vfat", "dosfstools"),
    tool("mcopy", "mtools"),
];

/// What building the benchmark kernel needs, beyond the above.
pub const KERNEL_BUILD: &[Tool] = &[
    tool("gcc", "gcc"),
    tool("make", "make"),
    tool("flex", "flex"),
    tool("bison", "bison"),
    tool("bc", "bc"),
    tool("xz", "xz-utils"),
    tool("/usr/include/libelf.h", "libelf-dev"),
    tool("objcopy", "binutils"),
];

/// What building QEMU for nodes needs.
pub const QEMU_BUILD: &[Tool] = &[
    tool("gcc", "gcc"),
    tool("dpkg-source", "dpkg-dev"),
    tool("patch", "patch"),
    tool("meson", "meson"),
    tool("ninja", "ninja-build"),
    tool("pkg-config", "pkg-config"),
    tool("/usr/include/glib-2.0/glib.h", "libglib2.0-dev"),
    tool("/usr/include/pixman-1/pixman.h", "libpixman-1-dev"),
    tool("/usr/include/libfdt.h", "libfdt-dev"),
];

/// Where Kubernetes keeps its objects, which the agent's store is measured beside.
pub const ETCD: &[Tool] = &[tool("etcd", "etcd-server")];

/// What serves images in tests.
pub const REGISTRY: Tool = tool("docker-registry", "docker-registry");

/// What makes an image of a disk as people do, and what takes it.
pub const CONTAINER_BUILD: &[Tool] = &[
    tool("buildah", "buildah"),
    tool("openssl", "openssl"),
    REGISTRY,
];

/// Makes devices out of others, and has them fail.
pub const DMSETUP: &str = "/usr/sbin/dmsetup";

/// What tests compare with or make their files with, beyond the above.
pub const TESTS: &[Tool] = &[
    tool("openssl", "openssl"),
    tool("lz4", "lz4"),
    tool("perl", "perl-base"),
    tool("promtool", "prometheus"),
    tool("isoinfo", "genisoimage"),
    tool("xorriso", "xorriso"),
    REGISTRY,
    tool("skopeo", "skopeo"),
    tool("/usr/sbin/qemu-ga", "qemu-guest-agent"),
    tool("dhclient", "isc-dhcp-client"),
    tool(DMSETUP, "dmsetup"),
    tool("ping", "iputils-ping"),
    // Images of tests lie on it, too.
    tool("/sbin/mkfs.xfs", "xfsprogs"),
    // The reference readers of tables that firmware and kernel get.
    tool("iasl", "acpica-tools"),
    tool("dmidecode", "dmidecode"),
];

/// What the client examples need, and hooks of tests.
pub const EXAMPLES: &[Tool] = &[
    tool("/usr/bin/python3", "python3"),
    tool(
        "/usr/lib/python3/dist-packages/grpc/__init__.py",
        "python3-grpcio",
    ),
    tool("protoc", "protobuf-compiler"),
    tool("/usr/bin/grpc_python_plugin", "protobuf-compiler-grpc"),
];

/// What running every test needs.
#[must_use]
pub fn all() -> Vec<Tool> {
    [IMAGES, NODE, HOST, TESTS].concat()
}

/// Whether `program` can be started.
#[must_use]
pub fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Not everybody has the administrator's directories in the search path; Debian keeps mke2fs there.
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .any(|directory| directory.join(program).is_file())
}

/// Those of `tools` that are missing, by package.
#[must_use]
pub fn missing(tools: &[Tool]) -> BTreeSet<&'static str> {
    tools
        .iter()
        .filter(|tool| !is_there(tool.program))
        .map(|tool| tool.package)
        .collect()
}

/// How to install `packages` by hand.
#[must_use]
pub fn advice(packages: &BTreeSet<&'static str>) -> String {
    let list: Vec<&str> = packages.iter().copied().collect();
    format!(
        "missing packages; install them as root and try again:\n  apt-get install --no-install-recommends {}",
        list.join(" ")
    )
}

/// Whether [`ensure`] can install what is missing.
#[must_use]
pub fn can_install() -> bool {
    nix::unistd::geteuid().is_root() && is_there("apt-get")
}

/// Installs through apt what is missing of `tools`, saying so; without root says what to install.
///
/// # Errors
/// When packages are missing and cannot be installed.
pub fn ensure(tools: &[Tool]) -> anyhow::Result<()> {
    let missing = missing(tools);
    if missing.is_empty() {
        return Ok(());
    }
    anyhow::ensure!(can_install(), advice(&missing));
    let packages: Vec<&str> = missing.into_iter().collect();
    let list = packages.join(" ");
    eprintln!("installing by apt: {list}");
    let _one_at_a_time = crate::cache::lock("apt")?;
    let install = |packages: &[&str]| {
        process::output(
            Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args([
                    "install",
                    "--yes",
                    "--no-install-recommends",
                    "-o",
                    "DPkg::Lock::Timeout=300",
                ])
                .args(packages),
        )
    };
    if install(&packages).is_err() {
        eprintln!("refreshing apt's package lists");
        update_lists()?;
        install(&packages)?;
    }
    Ok(())
}

/// `apt-get update`.
///
/// # Errors
/// When `apt-get update` fails.
pub fn update_lists() -> anyhow::Result<()> {
    process::output(Command::new("apt-get").args(["update", "-o", "DPkg::Lock::Timeout=300"]))
        .map(drop)
}
