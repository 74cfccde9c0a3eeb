//! Admission: from what somebody wrote to a value that is safe to act on.
//!
//! Every rule is judged even when others failed, so that a caller sees all errors at once. Order:
//! the rules that descriptors state (`rules`), then meaning, part by part; defaults are filled
//! into the object on the way, in KubeVirt's order.

mod access;
pub(crate) mod admitted;
mod amount;
mod boot;
mod boot_order;
mod cdi;
mod claimed_devices;
mod clock;
mod cloud_init;
mod container_image;
mod cpu;
mod data_volume;
mod dedicated;
mod defaults;
mod disk_bus;
mod disk_options;
mod disks;
mod dns;
mod firmware;
mod hyperv;
mod identity;
pub(crate) mod image_reference;
mod launch_security;
mod life;
mod machine;
mod memory;
mod metadata;
mod metadata_volume;
mod network;
mod occasion;
mod path;
mod pci;
mod probes;
mod review;
mod rules;
mod scheduling;
mod sidecars;
mod unserved;
mod unserved_volumes;
mod unsupported;
mod virtual_machine;
mod volume_claim;
mod volumes;
mod without_effect;

use std::time::Duration;

use proto_node::vmi::{
    ContainerDiskSource, Devices, PanicDevice, VirtualMachineInstance, VirtualMachineInstanceSpec,
};

use self::metadata::{DEFAULT_NAMESPACE, Identity};
use self::occasion::ARCHITECTURE;
use self::review::Review;
use crate::caps::NodeCaps;
use crate::error::{Bound, FieldError, Rule};
use crate::vmi::{BaseBoard, Boot, ContainerDisk, CpuTopology, FirmwareBoot, Vmi};
pub use admitted::{Admitted, Remark};
pub(crate) use boot::MAX_CMDLINE_BYTES;
pub use defaults::{default_spec, default_vmi};
pub(crate) use disks::MAX_SERIAL_BYTES;
pub(crate) use identity::MAX_STRING_BYTES;
pub use metadata::check_metadata;
pub use network::NETWORK_WALLS_ANNOTATION;
pub use occasion::Occasion;
pub use unserved::{judge_claim, judge_data_volume, judge_metadata, judge_preset};
pub use virtual_machine::{AdmittedVirtualMachine, FindKit, admit_virtual_machine};

/// PCI functions that one guest can have: the slots of bus 0 but those of host bridge, LPC bridge and
/// the console, which every guest has for its agent.
const MAX_DEVICES: usize = 29;

/// Most queues of a virtio disk in this release.
const MAX_DISK_QUEUES: u32 = 64;

impl Vmi {
    /// Admits an object on a node. The server has set `metadata.uid` before.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn admit(
        object: VirtualMachineInstance,
        caps: &NodeCaps,
    ) -> Result<Admitted, Vec<FieldError>> {
        admit(object, Occasion::New(caps))
    }

    /// Admits an object for a node that has all that this release can use, for those who have no node
    /// to ask.
    ///
    /// # Errors
    /// Every rule that is broken.
    pub fn admit_anywhere(object: VirtualMachineInstance) -> Result<Admitted, Vec<FieldError>> {
        admit(object, Occasion::NewAnywhere)
    }

    /// The value of an object that was admitted before. What depends on the node is not judged again:
    /// a guest that runs must not be lost because the configuration changed.
    ///
    /// # Errors
    /// Every rule that is broken, as when the object was admitted by a release that knows more.
    pub fn restore(object: VirtualMachineInstance) -> Result<Admitted, Vec<FieldError>> {
        admit(object, Occasion::Stored)
    }
}

/// A disk in an image, for those who want the image before there is a guest: judged as a `containerDisk` of the namespace.
///
/// # Errors
/// Every rule that is broken.
pub fn admit_container_disk(
    mut source: ContainerDiskSource,
    namespace: &str,
    caps: &NodeCaps,
) -> Result<ContainerDisk, Vec<FieldError>> {
    let mut review = Review::new(Occasion::New(caps));
    review.namespace = namespace.to_owned();
    if source.image.is_empty() {
        review.required("image", "names the image");
    }
    let policies = ["", "Always", "IfNotPresent", "Never"];
    if !policies.contains(&source.image_pull_policy.as_str()) {
        let policy = source.image_pull_policy.clone();
        review.invalid(
            "pullPolicy",
            &policy,
            "must be Always, IfNotPresent or Never",
        );
    }
    defaults::fill_image(&mut source);
    match volumes::container("containerDisk", &source, &mut review) {
        Some(disk) if review.errors.is_empty() => Ok(disk),
        _ => Err(review.errors),
    }
}

fn admit(
    mut object: VirtualMachineInstance,
    occasion: Occasion<'_>,
) -> Result<Admitted, Vec<FieldError>> {
    default_vmi(&mut object, occasion);
    let mut review = Review::new(occasion);
    // The status is the node's own.
    rules::check(&object, &["status"], &mut review);
    let identity = object
        .metadata
        .as_ref()
        .and_then(|metadata| metadata::judge(metadata, &mut review));
    let generation = object
        .metadata
        .as_ref()
        .map_or(0, |metadata| metadata.generation);
    let annotations = object
        .metadata
        .as_ref()
        .map(|metadata| &metadata.annotations);
    let base_board = annotations.map_or_else(BaseBoard::default, |annotations| {
        sidecars::base_board(annotations, &mut review)
    });
    let given = Given {
        identity: identity.as_ref(),
        generation,
        base_board,
        instance_type: annotations.and_then(cloud_init::instance_type),
        without_walls: annotations
            .is_some_and(|annotations| network::without_walls(annotations, &mut review)),
    };
    let vmi = object
        .spec
        .as_ref()
        .and_then(|spec| admit_spec(spec, given, &mut review));
    match vmi {
        Some(vmi) if review.errors.is_empty() => Ok(Admitted {
            vmi,
            object,
            warnings: review.warnings,
            ignored: review.ignored,
            substituted: review.substituted,
        }),
        _ => Err(review.errors),
    }
}

/// What metadata says of the machine.
struct Given<'a> {
    identity: Option<&'a Identity>,
    generation: i64,
    base_board: BaseBoard,
    instance_type: Option<String>,
    without_walls: bool,
}

/// Queues of each disk: one, or one for each vCPU as far as there are so many.
fn disk_queues(devices: &Devices, vcpus: u32) -> u32 {
    if devices.block_multi_queue.unwrap_or(false) {
        vcpus.clamp(1, MAX_DISK_QUEUES)
    } else {
        1
    }
}

/// Judges the whole spec. Without an identity there is no value, but all errors all the same.
fn admit_spec(
    spec: &VirtualMachineInstanceSpec,
    given: Given<'_>,
    review: &mut Review<'_>,
) -> Option<Vmi> {
    let identity = given.identity;
    let namespace = identity.map_or(DEFAULT_NAMESPACE, |identity| identity.namespace.as_str());
    review.namespace = namespace.to_owned();
    architecture(spec, review);
    metadata::check_names(spec, review);
    unsupported::check(spec, review);
    let termination_grace_period = grace_period(spec, review);
    let start_paused = life::start_paused(spec, review);
    let disks = disks::judge(spec, review);
    let access_credentials = access::credentials(&spec.access_credentials, &spec.volumes, review);
    let mut interfaces = network::judge(spec, review);
    let probes = probes::judge(spec, review);
    let names = dns::names(spec, review);
    let spec_hostname = spec.hostname.clone();
    let domain = spec.domain.as_ref()?;
    machine::machine_type(domain, review);
    let resources = machine::resources(domain, review);
    let memory_bytes = machine::memory(domain, review);
    let memory = memory_bytes.and_then(|bytes| memory::options(domain, bytes, review));
    let cpus = machine::cpus(domain, review);
    let cpu = cpus.and_then(|cpus| cpu::options(domain, cpus, &resources, review));
    let clock = clock::options(domain, review);
    let mut machine_identity = identity::judge(domain, review);
    machine_identity.base_board = given.base_board;
    let boot = boot::boot(domain, review);
    let devices = domain.devices.clone().unwrap_or_default();
    let watchdog = life::watchdog(&devices, review);
    let panic_devices = life::panic_devices(&devices, review);
    let order = boot_order::order(&devices, boot.as_ref(), review);
    check_device_count(&devices, review);
    pci::check(&devices, review);
    let vcpus = cpus.map_or(1, CpuTopology::count);
    if devices.network_interface_multiqueue.unwrap_or(false) {
        network::share_queues(&mut interfaces, vcpus);
    }
    Some(Vmi {
        uid: identity?.uid.clone(),
        namespace: identity?.namespace.clone(),
        name: identity?.name.clone(),
        hostname: metadata::hostname(&spec_hostname, identity?.name.as_str()),
        instance_type: given.instance_type,
        without_walls: given.without_walls,
        generation: given.generation,
        cpus: cpus?,
        cpu: cpu?,
        clock,
        memory_bytes: memory_bytes?,
        memory: memory?,
        resources,
        boot: match boot? {
            boot::Booted::Kernel(kernel) => Boot::Kernel(kernel),
            boot::Booted::By(bootloader) => Boot::Firmware(FirmwareBoot { bootloader, order }),
        },
        identity: machine_identity,
        disks,
        interfaces,
        names,
        access_credentials,
        disk_queues: disk_queues(&devices, vcpus),
        rng: devices.rng.is_some(),
        balloon: devices.autoattach_mem_balloon.unwrap_or(true),
        vsock: devices.autoattach_vsock.unwrap_or(false),
        watchdog,
        panic_devices,
        start_paused,
        probes,
        reboot_policy: machine::reboot_policy(domain),
        termination_grace_period,
    })
}

/// Refuses another architecture than the node's.
fn architecture(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    let (here, whose) = match review.occasion {
        Occasion::New(caps) => (
            caps.architecture.clone(),
            format!("node {:?} is {}", caps.node_name, caps.architecture),
        ),
        Occasion::NewAnywhere => (
            ARCHITECTURE.to_owned(),
            format!("this release runs on {ARCHITECTURE}"),
        ),
        Occasion::Stored => return,
    };
    if spec.architecture != here {
        let error = FieldError::new("spec.architecture", Rule::Invalid, whose)
            .value(&spec.architecture)
            .fix("apply it to a node of that architecture, or leave it out")
            .beyond(Bound::Node);
        review.push(error);
    }
}

fn grace_period(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> Duration {
    let seconds = spec
        .termination_grace_period_seconds
        .unwrap_or(defaults::GRACE_SECONDS);
    u64::try_from(seconds).map_or_else(
        |_| {
            review.unable(
                "spec.terminationGracePeriodSeconds",
                &seconds.to_string(),
                "must be greater than or equal to 0",
            );
            Duration::ZERO
        },
        Duration::from_secs,
    )
}

fn check_device_count(devices: &Devices, review: &mut Review<'_>) {
    let panic_function = |device: &PanicDevice| device.model == "pvpanic";
    let singles = [
        devices.rng.is_some(),
        devices.autoattach_mem_balloon.unwrap_or(true),
        devices.autoattach_vsock.unwrap_or(false),
        devices.watchdog.is_some(),
        devices.panic_devices.iter().any(panic_function),
    ];
    let singles: usize = singles.into_iter().map(usize::from).sum();
    let count = devices.disks.len() + devices.interfaces.len() + singles;
    if count > MAX_DEVICES {
        review.push(FieldError::new(
            "spec.domain.devices",
            Rule::Invalid,
            format!("{count} disks, interfaces, rng, balloon, vsock, watchdog and panic device: a machine has room for {MAX_DEVICES}"),
        )
        .beyond(Bound::Release));
    }
}
