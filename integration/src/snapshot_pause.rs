//! How long a snapshot holds its guest: RAM that is copied and summed up, disks that are synced.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::Context;
use proto_vmm::v1::{self, pci_device::Kind as Device, request::Kind};

use crate::testguest;
use crate::vmm_client::{VmmClient, VmmProcess};

const MIB: usize = 1 << 20;
const RAM_MIB: usize = 512;
/// What of RAM is no hole, in MiB.
pub const USED_MIB: usize = 256;
/// What the guest wrote and did not flush, in MiB.
pub const UNSYNCED_MIB: usize = 64;
/// Bytes that are looked at and summed up together, as by the VMM.
const BLOCK_BYTES: usize = 64 << 10;

/// Times of one round, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Pauses {
    /// Of a snapshot to a file on tmpfs, with nothing to sync.
    pub clean_ms: f64,
    /// The same with a disk that has [`UNSYNCED_MIB`] to sync.
    pub unsynced_ms: f64,
    /// Of checksums of as much RAM alone.
    pub checksums_ms: f64,
}

/// A paused machine on this machine's own KVM.
#[derive(Debug)]
pub struct PausedMachine {
    client: VmmClient,
    disk: File,
    content: Vec<u8>,
    _vmm: VmmProcess,
}

impl PausedMachine {
    /// Starts it, with RAM that is in use and a disk on this machine's disk.
    ///
    /// # Errors
    /// When it does not start.
    pub fn new() -> anyhow::Result<Self> {
        let content: Vec<u8> = (0..MIB)
            .map(|at| u8::try_from(at % 251).unwrap_or(0))
            .collect();
        let disk = tempfile::tempfile_in("/var/tmp")?;
        disk.set_len((UNSYNCED_MIB * MIB) as u64)?;
        disk.sync_all()?;
        let files = [
            File::options().read(true).write(true).open("/dev/kvm")?,
            File::open(testguest::elf()?)?,
            tempfile::tempfile()?,
        ];
        let [kvm, kernel, record] = &files;
        let vmm = VmmProcess::start()?;
        let mut client = vmm.connect()?;
        let descriptors: Vec<BorrowedFd<'_>> =
            [kvm, kernel, record, &disk].map(AsFd::as_fd).to_vec();
        let configure = Kind::Configure(v1::Configure {
            machine: Some(config()),
            snapshot_fd: None,
        });
        let answer = client.request(configure, &descriptors)?;
        anyhow::ensure!(answer.error.is_none(), "refused: {:?}", answer.error);
        client.must(Kind::Boot(v1::Boot {}))?;
        client.must(Kind::Pause(v1::Pause {}))?;
        use_ram(vmm.pid(), &content)?;
        Ok(Self {
            client,
            disk,
            content,
            _vmm: vmm,
        })
    }

    /// Measures once.
    ///
    /// # Errors
    /// When the VMM refuses.
    pub fn measure(&mut self) -> anyhow::Result<Pauses> {
        let clean_ms = self.save_ms()?;
        for at in 0..UNSYNCED_MIB {
            self.disk.write_all_at(&self.content, (at * MIB) as u64)?;
        }
        Ok(Pauses {
            clean_ms,
            unsynced_ms: self.save_ms()?,
            checksums_ms: checksums_ms(&self.content),
        })
    }

    /// How long the machine's thread is at a snapshot.
    fn save_ms(&mut self) -> anyhow::Result<f64> {
        let file = tempfile::tempfile_in("/dev/shm")?;
        let begun = Instant::now();
        let answer = self
            .client
            .request(Kind::Save(v1::Save {}), &[file.as_fd()])?;
        anyhow::ensure!(answer.error.is_none(), "refused: {:?}", answer.error);
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

fn config() -> v1::MachineConfig {
    let blk = v1::VirtioBlk {
        disk_fd: 3,
        ..v1::VirtioBlk::default()
    };
    v1::MachineConfig {
        vmi_uid: "bench".to_owned(),
        vmi_namespace: "default".to_owned(),
        vmi_name: "snapshot".to_owned(),
        incarnation: 1,
        cpus: Some(v1::Cpus {
            count: 1,
            sockets: 1,
            cores: 1,
            threads: 1,
            ..v1::Cpus::default()
        }),
        memory: Some(v1::Memory {
            size_bytes: (RAM_MIB * MIB) as u64,
            ..v1::Memory::default()
        }),
        kernel: Some(v1::KernelBoot {
            kernel_fd: 1,
            cmdline: "tests=none then=idle".to_owned(),
            ..v1::KernelBoot::default()
        }),
        kvm_fd: 0,
        exit_record_fd: 2,
        devices: vec![v1::PciDevice::at(0, 1, Device::Blk(blk))],
        ..v1::MachineConfig::default()
    }
}

/// Fills the upper half of a guest's RAM, which stands still.
fn use_ram(pid: u32, content: &[u8]) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        let target = std::fs::read_link(&path)?;
        if !target.to_string_lossy().starts_with("/memfd:") {
            continue;
        }
        let ram = File::options().write(true).open(&path)?;
        if ram.metadata()?.len() == (RAM_MIB * MIB) as u64 {
            for at in RAM_MIB - USED_MIB..RAM_MIB {
                ram.write_all_at(content, (at * MIB) as u64)?;
            }
            return Ok(());
        }
    }
    None.context("the VMM has no memfd of its guest's size")
}

fn checksums_ms(content: &[u8]) -> f64 {
    let begun = Instant::now();
    for _ in 0..USED_MIB {
        let mut sum = crc32fast::Hasher::new();
        for block in content.chunks(BLOCK_BYTES) {
            sum.update(block);
        }
        std::hint::black_box(sum.finalize());
    }
    begun.elapsed().as_secs_f64() * 1e3
}
