//! What a VMI means once it has been admitted: newtypes, defaults, admission.
//!
//! A [`Vmi`] is a value that needs no further question: every name is legal, every size is a number of
//! bytes, every default is filled in. The only way to one is [`Vmi::admit`] (or [`Vmi::restore`] for
//! what was admitted before), or its three steps by themselves: [`default_vmi`], [`judge_vmi`], [`convert_vmi`]. No I/O, no clock, no random numbers: what a default needs is derived
//! from the VMI's uid.

#![forbid(unsafe_code)]

mod access;
mod admit;
mod backoff;
mod caps;
mod change;
mod cloud_init;
mod cpu;
mod date;
mod derive;
mod disk;
mod error;
mod hooked;
mod instancetype;
mod name;
mod object_source;
mod paths;
mod pod;
mod probe;
mod pull_credentials;
mod quantity;
mod run_strategy;
mod single_device;
mod vmi;

pub use access::{AccessCredential, Propagation};
pub use admit::{
    Absence, AdmissionPurpose, Admitted, AdmittedVirtualMachine, Defaulted, JudgedVmi, Judgement,
    MachineAdvice, NETWORK_WALLS_ANNOTATION, Remark, admit_container_disk, admit_virtual_machine,
    check_metadata, convert_vmi, default_spec, default_virtual_machine, default_vmi, is_mirror,
    is_registry, judge_claim, judge_data_volume, judge_metadata, judge_preset,
    judge_virtual_machine, judge_vmi,
};
pub use backoff::back_off;
pub use caps::{Lack, MissingFirmware, NodeCaps};
pub use change::ChangeKind;
pub use cloud_init::{
    CloudInit, CloudInitData, CloudInitKind, DataKind, DataVolume, DataVolumeSource, MetadataField,
    MetadataFile,
};
pub use cpu::{
    ClockOptions, ClockTime, CpuFeature, CpuOptions, DedicatedCpus, HypervOptions, KvmOptions,
};
pub use date::{parse_rfc3339, rfc3339};
pub use derive::{generated_name, name_suffix, spread};
pub use disk::{DiskBlocks, DiskCache, DiskErrors, DiskOptions};
pub use error::{Bound, FieldError, Rule};
pub use hooked::{cloud_init_volumes, describe, with_cloud_init, with_machine};
pub use instancetype::{
    CommonRelease, FindKit, Kit, Named, RELEASE_LABEL, STORED_VERSION as KIT_VERSION, Shortfall,
    Sort, apply as apply_kit, check_matcher_changes, check_requirements, check_spread,
    expand as expand_machine, judge_instancetype, judge_preference,
    later_fields as later_kit_fields, named, upgrade as upgrade_kit,
};
pub use name::{MacAddress, Name, Namespace, NetworkName, Uid};
pub use object_source::{ObjectSource, SOURCE_ANNOTATION};
pub use paths::{
    EVERY_NAMESPACE, PathGrant, PathRecord, PathRecords, PathRefusal, PathRules, PathUse,
};
pub use pod::{
    Attachment, DhcpOptions, GuestNames, GuestNetwork, OpenPorts, PodBinding, PodInterface,
    PodPool, Transport,
};
pub use probe::{Endpoint, HttpQuestion, Probe, Probes, Question};
pub use pull_credentials::PullCredentials;
pub use run_strategy::RunStrategy;
pub use single_device::SingleDevice;
// For rooms that do not import the API: texts of others reach people through them, too.
pub use proto_node::tame;
pub use vmi::{
    Boot, BootDevice, Bootloader, ContainerDisk, ContainerImage, CpuTopology, Disk, DiskSource,
    FirmwareBoot, HugepageSize, ImageArchive, ImageLocation, Interface, KernelBoot, MemoryOptions,
    PanicDevices, PciAddress, PullPolicy, RebootPolicy, RegistryImage, Resources, Vmi,
    WatchdogAction,
};
