//! What `qemu-img` makes is read as `qemu-img` reads it.

use integration::{skip, skip_if};

use super::made::{Chance, Images, disk};

const CLUSTERS: [&str; 5] = ["512", "1k", "4k", "64k", "2M"];

#[test]
fn images_of_every_cluster_size_version_and_compression_are_the_disks_they_are() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.write("disk", &disk((5 << 20) + 3 * 512, 1));
    for cluster in CLUSTERS {
        for options in [
            "compat=0.10",
            "compat=1.1",
            "compat=1.1,refcount_bits=1",
            "compat=1.1,refcount_bits=64,lazy_refcounts=on",
        ] {
            images.qemu_img(&format!(
                "convert -f raw -O qcow2 -o cluster_size={cluster},{options} disk it"
            ));
            images.assert_same("it", &[]);
        }
        for options in [
            "compat=0.10",
            "compression_type=zlib",
            "compression_type=zstd",
        ] {
            images.qemu_img(&format!(
                "convert -c -f raw -O qcow2 -o cluster_size={cluster},{options} disk it"
            ));
            images.assert_same("it", &[]);
        }
    }
    for packed in ["", "-c"] {
        for cluster in ["16k", "128k"] {
            images.qemu_img(&format!(
                "convert {packed} -f raw -O qcow2 -o cluster_size={cluster},extended_l2=on disk it"
            ));
            images.assert_same("it", &[]);
        }
    }
    images.assert_same("disk", &[]);
}

#[test]
fn preallocated_grown_and_empty_images_are_the_disks_they_are() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.write("disk", &disk(3 << 20, 2));
    for how in ["off", "metadata", "falloc", "full"] {
        images.qemu_img(&format!("create -f qcow2 -o preallocation={how} it 3M"));
        images.assert_same("it", &[]);
        images.qemu_io("it", &["write -P 7 100k 300k".to_owned()]);
        images.assert_same("it", &[]);
    }
    images.qemu_img("create -f qcow2 it 0");
    images.assert_same("it", &[]);
    images.qemu_img("convert -f raw -O qcow2 disk it");
    images.qemu_img("resize it 40M");
    images.assert_same("it", &[]);
    images.qemu_img("resize --shrink it 1M");
    images.assert_same("it", &[]);
}

#[test]
fn the_present_of_an_image_with_snapshots_is_converted() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.write("disk", &disk(2 << 20, 3));
    images.qemu_img("convert -f raw -O qcow2 -o cluster_size=4k disk it");
    for (number, name) in ["first", "second-with-a-longer-name"]
        .into_iter()
        .enumerate()
    {
        images.qemu_img(&format!("snapshot -c {name} it"));
        let at = 100 + number * 400;
        images.qemu_io("it", &[format!("write -P 9 {at}k 64k")]);
        images.assert_same("it", &[]);
    }
    images.qemu_img("snapshot -d first it");
    images.assert_same("it", &[]);
}

/// Writes, zeros and holes anywhere.
fn changes(chance: &mut Chance, sectors: usize) -> Vec<String> {
    let mut one = |_| {
        let start = chance.below(sectors);
        let count = 1 + chance.below((sectors - start).min(200));
        let place = format!("{} {}", start * 512, count * 512);
        match chance.below(4) {
            0 => format!("write -z {place}"),
            1 => format!("discard {place}"),
            _ => format!("write -P {} {place}", chance.below(255) + 1),
        }
    };
    (0..25).map(&mut one).collect()
}

#[test]
fn chains_of_any_clusters_and_sizes_are_the_disks_they_are() {
    skip_if!(skip::without_node());
    let images = Images::new();
    let mut chance = Chance(4);
    let mebibyte = 2048;
    for round in 0..10 {
        images.write("base.raw", &disk(2 << 20, round));
        let is_raw = chance.below(2) == 0;
        if !is_raw {
            images.qemu_img("convert -c -f raw -O qcow2 base.raw base");
        }
        let mut below = vec![if is_raw { "base.raw" } else { "base" }];
        let mut format = if is_raw { "raw" } else { "qcow2" };
        for name in ["one", "two", "three"] {
            let cluster = match chance.below(6) {
                4 => "16k,extended_l2=on",
                5 => "64k,extended_l2=on",
                plain => CLUSTERS[plain],
            };
            // Smaller than what lies below, as large, or larger.
            let sectors = mebibyte + chance.below(3 * mebibyte);
            images.qemu_img(&format!(
                "create -f qcow2 -o cluster_size={cluster} -F {format} -b {} {name} {}",
                below[0],
                sectors * 512
            ));
            images.qemu_io(name, &changes(&mut chance, sectors));
            images.assert_same(name, &below);
            below.insert(0, name);
            format = "qcow2";
        }
    }
}

#[test]
fn an_image_is_described_as_qemu_img_describes_it() {
    skip_if!(skip::without_node());
    let images = Images::new();
    images.write("base.raw", &disk(1 << 20, 5));
    images.qemu_img(
        "create -f qcow2 -o cluster_size=8k,compression_type=zstd -F raw -b base.raw it 5G",
    );
    for name in ["it", "base.raw"] {
        let parse = |text: &str| -> serde_json::Value { serde_json::from_str(text).expect("JSON") };
        let theirs = parse(&images.qemu_img(&format!("info --output json {name}")));
        let ours = images.kvmlet(&format!("info --output json {name}"));
        let ours = parse(&String::from_utf8_lossy(&ours.stdout));
        for key in [
            "filename",
            "format",
            "virtual-size",
            "actual-size",
            "cluster-size",
            "backing-filename",
            "backing-filename-format",
        ] {
            assert_eq!(ours[key], theirs[key], "{key} of {name}");
        }
        for key in ["compat", "compression-type", "refcount-bits"] {
            let of = |info: &serde_json::Value| info["format-specific"]["data"][key].clone();
            if name == "it" {
                assert_eq!(of(&ours), of(&theirs), "{key}");
            }
        }
    }
    let text = String::from_utf8(images.kvmlet("info it").stdout).expect("text");
    assert!(
        text.contains("virtual size: 5 GiB (5368709120 bytes)"),
        "{text}"
    );
    assert!(text.contains("backing file: base.raw"), "{text}");
}
