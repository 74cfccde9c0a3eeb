//! A configuration with its files, made by hand.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use integration::vmm_client::VmmClient;
use proto_vmm::payload::{PayloadError, decode_exit_record};
use proto_vmm::v1::{self, request::Kind};

/// What a VMM is configured with.
pub struct ByHand {
    pub config: v1::MachineConfig,
    dev_kvm: File,
    kernel: File,
    exit_record: File,
    pub log: File,
}

impl ByHand {
    /// One vCPU, 16 MiB, `kernel`, a console log of 64 KiB, both debug ports.
    pub fn new(kernel: File) -> Self {
        let dev_kvm = File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .expect("a KVM");
        let config = v1::MachineConfig {
            vmi_uid: "0000-1111".to_owned(),
            vmi_namespace: "default".to_owned(),
            vmi_name: "tiny".to_owned(),
            incarnation: 7,
            cpus: Some(v1::Cpus {
                count: 1,
                sockets: 1,
                cores: 1,
                threads: 1,
                ..v1::Cpus::default()
            }),
            memory: Some(v1::Memory {
                size_bytes: 16 << 20,
                ..v1::Memory::default()
            }),
            kernel: Some(v1::KernelBoot {
                kernel_fd: 1,
                ..v1::KernelBoot::default()
            }),
            kvm_fd: 0,
            exit_record_fd: 2,
            serial: Some(v1::Serial {
                log_fd: Some(3),
                log_max_bytes: 64 << 10,
            }),
            debug: Some(v1::Debug {
                boot_timestamp_port: true,
                debug_exit_port: true,
            }),
            ..v1::MachineConfig::default()
        };
        Self {
            config,
            dev_kvm,
            kernel,
            exit_record: tempfile::tempfile().expect("a file"),
            log: tempfile::tempfile().expect("a file"),
        }
    }

    /// The descriptors, in the order of the configuration.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [&self.dev_kvm, &self.kernel, &self.exit_record, &self.log].map(AsFd::as_fd)
    }

    /// The request that configures a VMM so.
    pub fn request(&self) -> Kind {
        Kind::Configure(v1::Configure {
            machine: Some(self.config.clone()),
            snapshot_fd: None,
        })
    }

    /// Configures the VMM, which must accept.
    pub fn configure(&self, client: &mut VmmClient) {
        self.configure_with(client, &[]);
    }

    /// Configures the VMM, which must accept, with `more` descriptors: the configuration calls the first of
    /// them 4.
    pub fn configure_with(&self, client: &mut VmmClient, more: &[BorrowedFd<'_>]) {
        let descriptors = [&self.descriptors(), more].concat();
        let response = client
            .request(self.request(), &descriptors)
            .expect("an answer");
        assert_eq!(response.error, None);
        assert_eq!(
            response.status.expect("a status").state(),
            v1::MachineState::Configured
        );
    }

    /// Configures, subscribes and boots.
    pub fn boot(&self, client: &mut VmmClient) {
        self.boot_with(client, &[]);
    }

    /// The same, with `more` descriptors, as [`Self::configure_with`].
    pub fn boot_with(&self, client: &mut VmmClient, more: &[BorrowedFd<'_>]) {
        self.configure_with(client, more);
        client
            .must(Kind::Subscribe(v1::Subscribe {}))
            .expect("subscribed");
        client.must(Kind::Boot(v1::Boot {})).expect("booted");
    }

    /// The exit record as it lies in its file.
    pub fn exit_record(&self) -> Result<v1::ExitRecord, PayloadError> {
        decode_exit_record(&content(&self.exit_record))
    }

    /// What the guest printed, as the log has it.
    pub fn printed(&self) -> String {
        String::from_utf8_lossy(&content(&self.log)).into_owned()
    }
}

/// Polls until `holds`, for conditions that nothing signals, such as text in a file. That takes a few seconds at
/// most, and longer on a crowded machine.
pub fn soon(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "it did not come true");
        // See above: nothing signals it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn content(file: &File) -> Vec<u8> {
    let length = file.metadata().expect("a size").len();
    let mut content = vec![0; usize::try_from(length).expect("small")];
    file.read_exact_at(&mut content, 0).expect("read");
    content
}
