//! What is refused: with a reason, without a crash, and with the destination as it was.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use integration::{skip, skip_if};

use super::made::{Chance, Images, disk};

#[test]
fn features_that_cannot_be_read_are_named() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.qemu_img("create -f qcow2 -o data_file=secret,data_file_raw=on data 1M");
    images.qemu_img(
        "create -f qcow2 --object secret,id=s,data=x -o encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10 luks 1M",
    );
    for (image, what) in [
        ("data", "external data file 'secret'"),
        ("luks", "encrypted (LUKS)"),
    ] {
        let text = images.refusal(&format!("convert {image} out"));
        assert!(text.contains(what) && text.contains(image), "{text}");
    }
    for format in ["vmdk", "vdi", "vhdx", "vpc", "qed"] {
        images.qemu_img(&format!("create -f {format} other 1M"));
        let text = images.refusal("convert other out");
        assert!(
            text.contains("convert it with qemu-img"),
            "{format}: {text}"
        );
    }
    assert!(!images.names().contains(&"out".to_owned()));
}

#[test]
fn nothing_of_the_host_is_read_through_a_name_in_an_image() {
    skip_if!(skip::without_node());
    let images = Images::new();
    let secret = b"a secret of this host ".repeat(100);
    images.write("secret", &secret);
    let place = images.path("secret");
    let place = place.display();
    images.qemu_img(&format!("create -f qcow2 -F raw -b {place} overlay 1M"));
    images.qemu_img(&format!(
        "create -f qcow2 -F qcow2 -b json:{{\"driver\":\"raw\",\"file.filename\":\"{place}\"}} -u json 1M"
    ));
    for image in ["overlay", "json"] {
        let text = images.refusal(&format!("convert {image} out"));
        assert!(
            text.contains("never opened") && text.contains("--backing"),
            "{text}"
        );
        assert!(text.contains(&place.to_string()), "{text}");
        assert!(!text.contains("a secret of"), "{text}");
        let info = images.kvmlet(&format!("info {image}"));
        assert!(info.status.success());
        assert!(!String::from_utf8_lossy(&info.stdout).contains("a secret of"));
    }
    // What the caller gives is what is read, whatever the image's name for it is.
    images.write("mine", &[5; 1 << 20]);
    let output = images.kvmlet("convert overlay out --backing mine");
    assert!(output.status.success());
    assert_eq!(images.read("out"), [5; 1 << 20]);
}

#[test]
fn damaged_images_neither_crash_nor_hang_and_leave_nothing() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.write("disk", &disk(1 << 20, 6));
    let mut chance = Chance(7);
    for options in ["cluster_size=512", "cluster_size=64k,compression_type=zstd"] {
        images.qemu_img(&format!("convert -c -f raw -O qcow2 -o {options} disk it"));
        let sound = images.read("it");
        for round in 0..40 {
            let mut image = sound.clone();
            for _ in 0..=chance.below(4) {
                // Most of what matters is at the front.
                let range = if chance.below(2) == 0 {
                    4096
                } else {
                    image.len()
                };
                let at = chance.below(range);
                image[at] = u8::try_from(chance.below(256)).expect("a byte");
            }
            if round % 4 == 0 {
                image.truncate(chance.below(image.len()));
            }
            images.write("damaged", &image);
            let start = Instant::now();
            let output = images.kvmlet("convert -f qcow2 damaged out");
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "{options} {round}"
            );
            let text = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => fs::remove_file(images.path("out")).expect("whole"),
                Some(1) => assert!(
                    text.contains("damaged") && text.contains("is not converted"),
                    "{options} {round}: {text}"
                ),
                _ => panic!("{options} {round}: {} {text}", output.status),
            }
            assert_eq!(images.names(), ["damaged", "disk", "it"], "{round}");
        }
    }
}

#[test]
fn a_small_image_of_a_large_disk_costs_little() {
    skip_if!(skip::without_node());
    let images = Images::new();
    // Every cluster of the disk is in the file, compressed a thousand times.
    images.write("disk", &vec![b'a'; 64 << 20]);
    images.qemu_img("convert -c -f raw -O qcow2 disk bomb");
    let text = images.refusal("convert --max-size 63M bomb out");
    assert!(
        text.contains("67108864") && text.contains("--max-size"),
        "{text}"
    );
    images.assert_same("bomb", &[]);
    images.qemu_img("create -f qcow2 -o cluster_size=2M empty 900G");
    assert!(images.kvmlet("convert empty out").status.success());
    let meta = fs::metadata(images.path("out")).expect("there");
    assert_eq!(meta.len(), 900 << 30);
    assert!(meta.blocks() < 1000, "{} blocks", meta.blocks());
    assert_eq!(meta.mode() & 0o777, 0o600);
}

#[test]
fn a_destination_that_is_there_stays_unless_it_is_to_be_replaced() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.write("disk", &disk(1 << 20, 8));
    images.write("out", b"old");
    let text = images.refusal("convert disk out");
    assert!(text.contains("--force"), "{text}");
    let text = images.refusal("convert --force disk disk");
    assert!(text.contains("is one of the images"), "{text}");
    let text = images.refusal("convert --force disk /dev/null");
    assert!(text.contains("no regular file"), "{text}");
    let text = images.refusal("convert --force -f qcow2 disk out");
    assert!(text.contains("no qcow2 image"), "{text}");
    assert_eq!(images.read("out"), b"old");
    assert!(
        images
            .kvmlet("convert --force -p disk out")
            .status
            .success()
    );
    assert_eq!(images.read("out"), images.read("disk"));
    let text = images.refusal("convert missing out2");
    assert!(text.contains("missing cannot be opened"), "{text}");
    let text = images.refusal("convert /dev/zero out2");
    assert!(text.contains("neither a regular file"), "{text}");
    assert_eq!(images.names(), ["disk", "out"]);
}

#[test]
fn a_full_file_system_is_an_error_and_nothing_stays_behind() {
    skip_if!(skip::without_node());
    if !nix::unistd::geteuid().is_root() {
        skip::report("a file system of its own takes root");
        return;
    }
    let images = Images::new();
    images.write("disk", &disk(8 << 20, 9));
    fs::create_dir(images.path("small")).expect("made");
    let convert = images.command("convert disk small/out");
    let script = "mount -t tmpfs -o size=1m none small && \"$@\"; code=$?; ls -A small; exit $code";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]);
    command.arg(convert.get_program()).args(convert.get_args());
    let output = command
        .current_dir(images.path(""))
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(output.status.signal().is_none());
    assert!(text.contains("no space left for the disk"), "{text}");
    assert!(text.contains("free some"), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}
