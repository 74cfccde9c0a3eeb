//! Every kind of volume as a Linux guest sees it: label, contents, size, read-only, serial number.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use integration::agent::{Agent, IMAGES};
use integration::commands::Commands;
use integration::image::{container, ext4};
use integration::node::{Node, NodeSpec};
use integration::process;

/// Of the disk in the image.
const IMAGE_MIB: u64 = 4;

/// What the image's disk begins with, and the content of the one file of its file system.
const IMAGE_TEXT: &str = "a disk in an image";
/// The label of that file system.
const IMAGE_LABEL: &str = "an-image";

/// The node with an image that holds a disk.
pub(crate) fn with_image(spec: NodeSpec, directory: &Path) -> anyhow::Result<NodeSpec> {
    let tree = directory.join("tree");
    std::fs::create_dir_all(tree.join("disk"))?;
    let files = directory.join("files");
    std::fs::create_dir(&files)?;
    std::fs::write(files.join("file"), IMAGE_TEXT)?;
    let disk = tree.join("disk/disk.img");
    ext4::make(&disk, IMAGE_MIB, Some(&files))?;
    process::output(Command::new("/sbin/e2label").arg(&disk).arg(IMAGE_LABEL))?;
    // ext4 leaves the first KiB to others.
    let opened = std::fs::File::options().write(true).open(&disk)?;
    opened.write_all_at(IMAGE_TEXT.as_bytes(), 0)?;
    let layout = directory.join("layout");
    container::layout(&tree, &layout)?;
    Ok(spec.with(layout, "images/layout"))
}

/// What volumes name.
const OBJECTS: &str = r##"
apiVersion: v1
kind: Secret
metadata: {name: seed}
stringData: {userdata: "password: secret"}
---
apiVersion: v1
kind: Secret
metadata: {name: links}
stringData: {networkData: '{"links": []}'}
---
apiVersion: v1
kind: Secret
metadata: {name: product}
stringData: {Unattend.xml: "<key/>"}
---
apiVersion: v1
kind: Secret
metadata: {name: owners}
stringData:
  alice: "ssh-ed25519 AAAAalice alice@example\n"
  bob: "# laptop\nssh-ed25519 AAAAbob bob@example\n"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: app}
data: {app.conf: "colour = blue"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: answers}
data: {autounattend.xml: "<unattend/>"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot}
---
apiVersion: v1
kind: Secret
metadata:
  name: robot-token
  annotations: {kubernetes.io/service-account.name: robot}
type: kubernetes.io/service-account-token
stringData: {token: abc.def.ghi, ca.crt: PEM, other: unseen}
"##;

/// The volumes after the first, in the order of their disks.
const VOLUMES: &str = r#"      capacity: 16Mi
  - name: seed
    cloudInitNoCloud:
      secretRef: {name: seed}
      networkDataBase64: dmVyc2lvbjogMgo=
  - name: drive
    cloudInitConfigDrive:
      userDataBase64: IyEvYmluL3NoCg==
      networkDataSecretRef: {name: links}
  - name: app
    configMap: {name: app, volumeLabel: APP}
  - name: keys
    secret: {secretName: owners, volumeLabel: KEYS}
  - name: answers
    sysprep: {configMap: {name: answers}}
  - name: account
    serviceAccount: {serviceAccountName: robot}
  - name: meta
    downwardAPI:
      volumeLabel: META
      fields:
      - path: labels
        fieldRef: {fieldPath: metadata.labels}
      - path: of/team
        fieldRef: {fieldPath: "metadata.labels['team']"}
      - path: of/name
        fieldRef: {fieldPath: metadata.name}
  - name: unattend
    sysprep: {secret: {name: product}}
  - name: image
    containerDisk: {image: "oci:IMAGES/layout/layout"}
  - name: again
    containerDisk: {image: "oci:IMAGES/layout/layout"}
  - name: file
    hostDisk: {path: /var/lib/kvmlet/disks/default/file.img, type: DiskOrCreate, capacity: 2Mi}
  accessCredentials:
  - sshPublicKey:
      source: {secret: {secretName: owners}}
      propagationMethod: {noCloud: {}}
  - sshPublicKey:
      source: {secret: {secretName: owners}}
      propagationMethod: {configDrive: {}}
"#;

/// Disks that are more than a name. One says CD-ROM, as manifests often do.
const DISKS: &str = "      interfaces:
      - name: lan
";

/// Of the interface.
const TAG: &str = "uplink";

/// The manifest with a volume of every kind, and an interface with a tag.
pub(crate) fn with_volumes(manifest: &str) -> String {
    let named = "      - name: app
        serial: S-APP
      - name: keys
        cdrom: {bus: sata}
      - name: image
        serial: S-IMAGE
        disk: {bus: scsi}
      - name: file
        serial: S-FILE
      - name: again
        serial: S-AGAIN
        disk: {readonly: true}
";
    manifest
        .replacen(
            "      capacity: 16Mi\n",
            &VOLUMES.replace("IMAGES", IMAGES),
            1,
        )
        .replacen(DISKS, &format!("{named}{DISKS}"), 1)
        .replacen(
            "        bridge: {}\n",
            &format!("        bridge: {{}}\n        tag: {TAG}\n"),
            1,
        )
        .replacen(
            "metadata:\n  name: web\n",
            "metadata:\n  name: web\n  labels: {team: \"infra\", tier: web}\n",
            1,
        )
}

/// Creates what the volumes name.
pub(crate) fn make_objects(agent: &Agent<'_, Node>) -> anyhow::Result<()> {
    agent.add_image("/opt/payload/images/layout", "layout")?;
    agent.apply(OBJECTS)
}

/// A volume that is made for the guest: its disk, its label, and what is in its files.
struct Made {
    name: &'static str,
    disk: &'static str,
    label: &'static str,
    files: Vec<(&'static str, String)>,
}

fn made(
    (name, disk): (&'static str, &'static str),
    label: &'static str,
    files: &[(&'static str, &str)],
) -> Made {
    let files = files.iter();
    Made {
        name,
        disk,
        label,
        files: files
            .map(|(path, text)| (*path, (*text).to_owned()))
            .collect(),
    }
}

/// What cloud-init would find. `nic` is the place of the interface with the tag, and its hardware address.
fn for_cloud_init(uuid: &str, nic: (&str, &str)) -> [Made; 2] {
    let keys =
        r#"{"0":"ssh-ed25519 AAAAalice alice@example","1":"ssh-ed25519 AAAAbob bob@example"}"#;
    let no_cloud =
        format!(r#"{{"instance-id":"{uuid}","local-hostname":"web","public-keys":{keys}}}"#);
    let (address, mac) = nic;
    let devices = format!(
        r#"[{{"type":"nic","bus":"pci","address":"{address}","mac":"{mac}","tags":["{TAG}"]}}]"#
    );
    let drive = format!(
        r#"{{"instance_id":"web.default","hostname":"web","uuid":"{uuid}","devices":{devices},"public_keys":{keys}}}"#
    );
    [
        made(
            ("seed", "vdg"),
            "cidata",
            &[
                ("meta-data", &no_cloud),
                ("network-config", "version: 2"),
                ("user-data", "password: secret"),
            ],
        ),
        made(
            ("drive", "vdh"),
            "config-2",
            &[
                ("openstack/latest/meta_data.json", &drive),
                ("openstack/latest/network_data.json", r#"{"links": []}"#),
                ("openstack/latest/user_data", "#!/bin/sh"),
            ],
        ),
    ]
}

/// Data of other objects, and metadata. The disks that the manifest names come first.
fn of_objects() -> [Made; 6] {
    let keys = [
        ("alice", "ssh-ed25519 AAAAalice"),
        ("bob", "ssh-ed25519 AAAAbob"),
    ];
    let account = [
        ("ca.crt", "PEM"),
        ("namespace", "default"),
        ("token", "abc.def.ghi"),
    ];
    let meta = [
        ("labels", "team=\"infra\"\r\ntier=\"web\""),
        ("of/name", "web"),
        ("of/team", "infra"),
    ];
    [
        made(("app", "vdb"), "APP", &[("app.conf", "colour = blue")]),
        made(("keys", "vdc"), "KEYS", &keys),
        made(
            ("answers", "vdi"),
            "unattendCD",
            &[("autounattend.xml", "<unattend/>")],
        ),
        made(("account", "vdj"), "cfgdata", &account),
        made(("meta", "vdk"), "META", &meta),
        made(
            ("unattend", "vdl"),
            "unattendCD",
            &[("Unattend.xml", "<key/>")],
        ),
    ]
}

/// Linux reads what KubeVirt's volumes would give it.
pub(crate) fn try_volumes(
    agent: &Agent<'_, Node>,
    node: &Node,
    answer: &mut impl FnMut(&str) -> anyhow::Result<String>,
    uuid: &str,
) -> anyhow::Result<()> {
    answer("cd /lib/modules && insmod cdrom.ko; insmod isofs.ko; cd /")?;
    let uid = agent.value("web", ".metadata.uid")?;
    let nic =
        answer("cd /sys/class/net/eth0 && basename $(readlink -f device/..); cat address; cd /")?;
    let lines = || nic.lines().map(str::trim);
    let place = lines().find(|line| line.starts_with("0000:"));
    let mac = lines().find(|line| line.matches(':').count() == 5);
    let nic = (place.unwrap_or_default(), mac.unwrap_or_default());
    for volume in for_cloud_init(uuid, nic).into_iter().chain(of_objects()) {
        let Made {
            name,
            disk,
            label,
            files,
        } = volume;
        // The label stands in the primary volume descriptor.
        let printed = answer(&format!(
            "mkdir -p /mnt/{name} && mount -t iso9660 -o ro /dev/{disk} /mnt/{name} && cd /mnt/{name} && \
             find . -type f | sort | sed s:^./:FILE=: && cd / && \
             echo \"LABEL=$(dd if=/dev/{disk} bs=1 skip=32808 count=32 2>/dev/null | sed 's/ *$//')=\" && \
             echo SIZE=$(blockdev --getsize64 /dev/{disk}) RO=$(blockdev --getro /dev/{disk}) \
             SERIAL=$(cat /sys/block/{disk}/serial)="
        ))?;
        let bytes = node.sh(&format!(
            "stat -c %s /var/lib/kvmlet/host/disks/{uid}/{name}.iso"
        ))?;
        let serial = if name == "app" { "S-APP" } else { "" };
        for words in [
            format!("LABEL={label}="),
            format!("SIZE={} RO=1 SERIAL={serial}=", bytes.trim()),
        ] {
            ensure!(
                printed.contains(&words),
                "{name}: {words} is not in {printed}"
            );
        }
        let found = printed
            .lines()
            .filter(|line| line.starts_with("FILE="))
            .count();
        ensure!(found == files.len(), "{name} has other files: {printed}");
        for (path, text) in files {
            let printed = answer(&format!("cat /mnt/{name}/{path}; echo"))?;
            ensure!(
                printed.contains(&text),
                "{name}/{path}: {text:?} is not in {printed:?}"
            );
        }
    }
    try_disks(node, answer)
}

/// Disks whose bytes are the user's: of an image, on the host, and empty.
fn try_disks(
    node: &Node,
    answer: &mut impl FnMut(&str) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let printed = answer(
        "for disk in vda vdd vde vdf; do echo \"$disk $(blockdev --getsize64 /dev/$disk) \
         $(blockdev --getro /dev/$disk) $(cat /sys/block/$disk/serial)=\"; done",
    )?;
    for words in [
        format!("vda {} 0 S1=", 16 << 20),
        format!("vdd {} 0 S-IMAGE=", IMAGE_MIB << 20),
        format!("vde {} 0 S-FILE=", 2 << 20),
        format!("vdf {} 1 S-AGAIN=", IMAGE_MIB << 20),
    ] {
        ensure!(printed.contains(&words), "{words} is not in {printed}");
    }
    // The guest's /init has mounted what carries ext4. An empty disk holds nothing.
    let printed = answer(
        "echo FILE=$(cat /mnt/vdd/file)= LABEL=$(dd if=/dev/vdd bs=1 skip=1144 count=16 2>/dev/null | tr -d '\\000')= && \
         grep -c '/mnt/vdd ext4 rw' /proc/mounts && umount /mnt/vdd && echo REST=$(tr -d '\\000' </dev/vda | wc -c)=",
    )?;
    for words in [
        format!("FILE={IMAGE_TEXT}="),
        format!("LABEL={IMAGE_LABEL}="),
        "REST=0=".to_owned(),
    ] {
        ensure!(printed.contains(&words), "{words} is not in {printed}");
    }
    // What is written over an image's disk is the guest's alone; a file of the host has it.
    let printed = answer(
        "head -c 18 /dev/vdd; for disk in vdd vde; do echo written | dd of=/dev/$disk bs=512 count=1 conv=sync,notrunc \
         2>/dev/null; done; sync; echo 3 >/proc/sys/vm/drop_caches; head -c 7 /dev/vdd; head -c 7 /dev/vde",
    )?;
    ensure!(printed.contains(IMAGE_TEXT), "{printed}");
    ensure!(printed.contains("writtenwritten"), "{printed}");
    // Nobody writes to the image itself, not even over a disk that is read-only.
    let printed = answer(
        "dd if=/dev/zero of=/dev/vdf bs=512 count=1 conv=notrunc 2>/dev/null || echo REFUSED$((1+1)); head -c 18 /dev/vdf",
    )?;
    for words in ["REFUSED2", IMAGE_TEXT] {
        ensure!(printed.contains(words), "{words} is not in {printed}");
    }
    let host = node.sh(
        "head -c 7 /var/lib/kvmlet/disks/default/file.img; head -c 18 /var/lib/kvmlet/host/images/sha256/*.raw",
    )?;
    ensure!(host == format!("written{IMAGE_TEXT}"), "{host}");
    Ok(())
}
