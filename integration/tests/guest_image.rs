//! The busybox guest does what its page says, seen under QEMU, which is known to be right.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use integration::image::busybox::{self, GuestImage};
use integration::image::ext4;
use integration::process::Bound;
use integration::{skip, skip_if};

/// Runs the guest with `words` on its command line, a disk with ext4, a raw disk and a NIC, until
/// it powers off, and gives what it printed.
fn console_of(image: &GuestImage, words: &str, script: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("tree")).expect("made");
    fs::write(path("tree/hello"), "from the host\n").expect("written");
    ext4::make(&path("data"), 16, Some(&path("tree"))).expect("a file system");
    fs::write(path("script"), script).expect("written");
    let script = fs::OpenOptions::new()
        .write(true)
        .open(path("script"))
        .expect("opened");
    script.set_len(4096).expect("whole sectors");
    let arguments = format!(
        "-accel tcg -M q35 -cpu max -m 256 -nographic -nodefaults -no-reboot -serial file:console \
         -kernel {} -initrd {} -drive if=none,id=a,file=data,format=raw -device virtio-blk-pci,drive=a \
         -drive if=none,id=b,file=script,format=raw -device virtio-blk-pci,drive=b -device virtio-rng-pci \
         -netdev user,id=n,restrict=on -device virtio-net-pci,netdev=n",
        image.kernel().display(),
        image.initrd().display()
    );
    let mut arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    arguments.extend([
        "-append".to_owned(),
        format!("console=ttyS0 panic=-1 {words}"),
    ]);
    let mut qemu = Bound::start("qemu-system-x86_64", &arguments, |command| {
        command.current_dir(directory.path()).stdin(Stdio::null());
    })
    .expect("QEMU starts");
    let until = Instant::now() + Duration::from_secs(180);
    while qemu.ended().expect("asked").is_none() {
        assert!(
            Instant::now() < until,
            "the guest does not power off:\n{}",
            text(&path("console"))
        );
        // A wait without a limit would hang as long as QEMU does.
        std::thread::sleep(Duration::from_millis(50));
    }
    text(&path("console"))
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).expect("the console's output")).into_owned()
}

#[test]
fn the_guest_mounts_disks_has_an_address_and_runs_the_script_on_a_disk() {
    skip_if!(skip::without_node());
    let image = busybox::guest().expect("the image");
    let script = "cat /mnt/vda/hello; ip -o -4 addr show dev eth0; cat /sys/class/misc/hw_random/rng_current; exit 3\n";
    let console = console_of(
        &image,
        "kvmlet.ip=10.0.2.15/24,10.0.2.2 kvmlet.script=/dev/vdb",
        script,
    );
    for expected in [
        "from the host",
        "inet 10.0.2.15/24",
        "virtio_rng",
        "guest: script ended with 3",
        "guest: powering off",
    ] {
        assert!(console.contains(expected), "no {expected:?} in:\n{console}");
    }
}
