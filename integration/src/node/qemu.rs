//! The QEMU process of a node and the files it is started from.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::spec::{Console, Emulation, Flavour, NodeSpec};
use crate::image::{busybox, ext4, kernel, qemu, rootfs};
use crate::process::{self, Bound};
use crate::wire::PORT;
use crate::{artifacts, image::cpio::Archive};

/// Virtual size of a busybox node's disk; the file is sparse.
const STATE_MIB: u64 = 4096;

/// What gives nested SVM under TCG. With XSAVE, a nested kernel warns that its XSAVE area does not suit
/// its XCR0, as if the node's KVM had not seen its XSETBV; it would then not save the vector registers
/// of its processes. Without, it uses FXSAVE.
const CPU: &str = "max,+svm,+npt,-erms,-mpx,-xsave";

pub(super) fn agent_socket(directory: &Path) -> PathBuf {
    directory.join("agent.sock")
}

pub(super) fn console_log(directory: &Path) -> PathBuf {
    directory.join("console.log")
}

/// What QEMU itself prints.
pub(super) fn messages(directory: &Path) -> PathBuf {
    directory.join("qemu.log")
}

/// Makes the node's disks and initramfs in `directory`.
pub(super) fn prepare(spec: &NodeSpec, directory: &Path) -> anyhow::Result<()> {
    let kernel = kernel::stock()?;
    let initrd = directory.join("initrd");
    fs::copy(busybox::node(&kernel)?, &initrd)?;
    let mut archive = Archive::default();
    let agent = artifacts::program("node-agent")?;
    archive.file("bin/node-agent", 0o755, &fs::read(&agent)?)?;
    // Archives may follow each other; the kernel unpacks them in turn.
    OpenOptions::new()
        .append(true)
        .open(&initrd)?
        .write_all(&archive.finish()?)?;
    payload_disk(spec, &agent, directory)?;
    match spec.flavour {
        Flavour::Busybox => ext4::make(&directory.join("state.raw"), STATE_MIB, None),
        Flavour::Systemd => {
            let base = rootfs::systemd(&kernel)?;
            process::output(
                Command::new("qemu-img")
                    .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
                    .arg(base)
                    .arg(directory.join("state.qcow2")),
            )
            .map(drop)
        }
    }
}

fn payload_disk(spec: &NodeSpec, agent: &Path, directory: &Path) -> anyhow::Result<()> {
    let tree = directory.join("payload");
    let mut bytes = 0;
    fs::create_dir_all(tree.join("bin"))?;
    for (from, to) in spec
        .payload
        .iter()
        .map(|(from, to)| (from.as_path(), to.as_str()))
        .chain([(agent, "bin/node-agent")])
    {
        let target = tree.join(to);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        bytes += tree_bytes(from).with_context(|| format!("payload {}", from.display()))?;
        // The node sees exactly this content later, even when a build replaces the file meanwhile.
        process::output(
            Command::new("cp")
                .args(["-rL", "--reflink=auto"])
                .arg(from)
                .arg(&target),
        )?;
    }
    ext4::make(
        &directory.join("payload.raw"),
        (bytes >> 20) * 9 / 8 + 16,
        Some(&tree),
    )?;
    fs::remove_dir_all(&tree)?;
    Ok(())
}

fn tree_bytes(path: &Path) -> anyhow::Result<u64> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += tree_bytes(&entry?.path())?;
    }
    Ok(bytes)
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split_whitespace().map(str::to_owned)
}

fn emulation(emulation: Emulation) -> String {
    match emulation {
        Emulation::Parallel => "-accel tcg,thread=multi".to_owned(),
        Emulation::Counted { seed } => {
            format!("-accel tcg,thread=single -icount shift=0,sleep=off -rtc clock=vm -seed {seed}")
        }
    }
}

/// Which QEMU it is; the mended one gets the directory of Debian's firmware files.
fn program(spec: &NodeSpec, arguments: &mut Vec<String>) -> anyhow::Result<String> {
    if !spec.is_mended {
        return Ok("qemu-system-x86_64".to_owned());
    }
    arguments.extend(words("-L /usr/share/qemu -L /usr/share/seabios"));
    Ok(qemu::mended()?.display().to_string())
}

/// Starts QEMU on what [`prepare`] made; it dies with this process.
pub(super) fn start(spec: &NodeSpec, directory: &Path) -> anyhow::Result<Bound> {
    let flavour = match spec.flavour {
        Flavour::Busybox => "busybox",
        Flavour::Systemd => "systemd",
    };
    let shell = if spec.console == Console::Terminal {
        "yes"
    } else {
        "no"
    };
    // What is run again is found where it was before, and QEMU has it translated already: norandmaps.
    // On a CPU with AES and without XSAVE the self-tests of aesni_intel execute an invalid opcode. The thread that does
    // so is gone with the FPU in its hands, and who loads a module for the CPU waits for it for good.
    let append = format!(
        "console=ttyS0 loglevel=4 panic=-1 no_timer_check mitigations=off norandmaps tsc=reliable \
         module_blacklist=aesni_intel node.flavour={flavour} node.shell={shell}"
    );
    let serial = match spec.console {
        Console::Log => "-serial chardev:log -chardev file,id=log,path=console.log,append=on",
        Console::Terminal => "-serial mon:stdio",
    };
    let state = match spec.flavour {
        Flavour::Busybox => "state.raw,format=raw",
        Flavour::Systemd => "state.qcow2,format=qcow2",
    };
    let mut arguments: Vec<String> = words("-M q35 -nographic -nodefaults -no-reboot").collect();
    arguments.extend(words(&emulation(spec.emulation)));
    let aes = if spec.has_aes { "" } else { ",-aes" };
    arguments.extend(["-cpu".to_owned(), format!("{CPU}{aes}")]);
    arguments.extend(words(&format!("-smp {} -m {}", spec.cpus, spec.memory_mib)));
    arguments.extend(words(serial));
    arguments.extend([
        "-kernel".to_owned(),
        kernel::stock()?.vmlinux().display().to_string(),
    ]);
    arguments.extend(["-append".to_owned(), append]);
    arguments.extend(words(
        "-initrd initrd -device virtio-rng-pci -device virtio-serial-pci",
    ));
    arguments.extend(words(&format!(
        "-chardev socket,id=agent,path=agent.sock,server=on,wait=off \
         -device virtserialport,chardev=agent,name={PORT} \
         -drive if=none,id=state,file={state},cache=writeback \
         -device virtio-blk-pci,drive=state,serial=state \
         -drive if=none,id=payload,file=payload.raw,format=raw,read-only=on \
         -device virtio-blk-pci,drive=payload,serial=payload"
    )));
    arguments.extend(spec.qemu_arguments.iter().cloned());
    if agent_socket(directory).exists() {
        fs::remove_file(agent_socket(directory))?;
    }
    let messages = fs::File::create(messages(directory))?;
    let program = program(spec, &mut arguments)?;
    Bound::start(&program, &arguments, |command| {
        command.current_dir(directory);
        if spec.console == Console::Log {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(messages);
        }
    })
}
