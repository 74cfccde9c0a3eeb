//! What can be typed after `create vm`, `create instancetype` and `create preference`: the flags of `virtctl`.
//!
//! Values stay texts here: their errors have `virtctl`'s words, not clap's.

use clap::{Args, Subcommand};

/// Manifests that are written of flags.
#[derive(Subcommand)]
pub enum Manifest {
    /// Write the manifest of a VirtualMachine
    Vm(Box<CreateVm>),
    /// Write the manifest of a VirtualMachineClusterInstancetype or VirtualMachineInstancetype
    Instancetype(CreateInstancetype),
    /// Write the manifest of a VirtualMachineClusterPreference or VirtualMachinePreference
    Preference(CreatePreference),
}

#[derive(Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  kvmctl create vm --name web --volume-containerdisk src:registry.example/debian:12\n  kvmctl create vm --instancetype u1.medium --preference debian --volume-pvc src:root\n  kvmctl create vm --name web --user me --ssh-key \"$(cat id.pub)\" | kvmctl apply -f -\n\nWithout a boot order volumes boot in the order containerdisk, pvc, datasource, clone, blank, import.\nNothing is asked of an agent: kvmctl validate -f - says what a node would say of it."
)]
pub struct CreateVm {
    /// Name of the VM [default: vm- and five random letters]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Always, Manual, Halted, Once or RerunOnFailure [default: Always]
    #[arg(long, value_name = "STRATEGY")]
    pub run_strategy: Option<String>,
    /// Seconds for the guest to shut down [default: 180]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub termination_grace_period: Option<String>,
    #[command(flatten)]
    pub size: Size,
    #[command(flatten)]
    pub volumes: Volumes,
    #[command(flatten)]
    pub login: Login,
}

/// How large the machine is, and what it prefers.
#[derive(Args)]
pub struct Size {
    /// Memory of the guest [default: 512Mi]
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Instance type: NAME or virtualmachineinstancetype/NAME, for one of the namespace
    #[arg(long, value_name = "[KIND/]NAME")]
    pub instancetype: Option<String>,
    /// Take the instance type from the labels of the volume that boots first
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub infer_instancetype: Option<String>,
    /// Take the instance type from the labels of this volume
    #[arg(long, value_name = "VOLUME")]
    pub infer_instancetype_from: Option<String>,
    /// Preference: NAME or virtualmachinepreference/NAME, for one of the namespace
    #[arg(long, value_name = "[KIND/]NAME")]
    pub preference: Option<String>,
    /// Take the preference from the labels of the volume that boots first
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub infer_preference: Option<String>,
    /// Take the preference from the labels of this volume
    #[arg(long, value_name = "VOLUME")]
    pub infer_preference_from: Option<String>,
}

/// The machine's volumes; each of these may be repeated.
#[derive(Args)]
pub struct Volumes {
    /// Disk in an image of a registry: src:IMAGE,name:NAME,bootorder:NUMBER
    #[arg(long, value_name = "PARAMS")]
    pub volume_containerdisk: Vec<String>,
    /// PersistentVolumeClaim: src:NAME,name:NAME,bootorder:NUMBER
    #[arg(long, value_name = "PARAMS")]
    pub volume_pvc: Vec<String>,
    /// DataVolume: type:TYPE and the parameters of the type, which is blank (size, name, bootorder),
    /// gcs, http, imageio, pvc, registry, s3, vddk, snapshot or ds
    #[arg(
        long,
        value_name = "PARAMS",
        long_help = "DataVolume, with parameters by its type:\n  type:blank     size,name,bootorder\n  type:gcs       secretref,url,size,name,bootorder\n  type:http      certconfigmap,extraheaders,secretextraheaders,secretref,url,size,name,bootorder\n  type:imageio   certconfigmap,diskid,secretref,url,size,name,bootorder\n  type:pvc       src,size,name,bootorder\n  type:registry  certconfigmap,imagestream,pullmethod,secretref,url,size,name,bootorder\n  type:s3        certconfigmap,secretref,url,size,name,bootorder\n  type:vddk      backingfile,initimageurl,secretref,thumbprint,url,uuid,size,name,bootorder\n  type:snapshot  src,size,name,bootorder\n  type:ds        src,size,name,bootorder"
    )]
    pub volume_import: Vec<String>,
    /// Answers for Windows' setup: src:NAME,type:configmap or src:NAME,type:secret
    #[arg(long, value_name = "PARAMS")]
    pub volume_sysprep: Option<String>,
    /// Deprecated: --volume-import with type:ds
    #[arg(long, value_name = "PARAMS")]
    pub volume_datasource: Vec<String>,
    /// Deprecated: --volume-import with type:pvc
    #[arg(long, value_name = "PARAMS")]
    pub volume_clone_pvc: Vec<String>,
    /// Deprecated: --volume-import with type:blank
    #[arg(long, value_name = "PARAMS")]
    pub volume_blank: Vec<String>,
}

/// Options for the user that cloud-init makes.
#[derive(Args)]
pub struct Login {
    /// User that cloud-init creates
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
    /// File with the user's password, which everybody can read in the VM
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<String>,
    /// Public keys of the user, with commas between them; may be repeated
    #[arg(long, value_name = "KEYS")]
    pub ssh_key: Vec<String>,
    /// Have cloud-init allow the guest agent to write keys, where SELinux would not
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub ga_manage_ssh: Option<String>,
    /// Keys or password from a Secret: type:ssh|password,src:SECRET,method:ga|nocloud|configdrive,user:USER;
    /// may be repeated
    #[arg(long, value_name = "PARAMS")]
    pub access_cred: Vec<String>,
    /// Data source of cloud-init: nocloud, configdrive or none [default: nocloud]
    #[arg(long, value_name = "SOURCE")]
    pub cloud_init: Option<String>,
    /// User data for cloud-init, in base64
    #[arg(long, value_name = "BASE64")]
    pub cloud_init_user_data: Option<String>,
    /// Network data for cloud-init, in base64
    #[arg(long, value_name = "BASE64")]
    pub cloud_init_network_data: Option<String>,
}

#[derive(Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  kvmctl create instancetype --cpu 2 --memory 256Mi\n  kvmctl create instancetype --namespaced --name small --cpu 1 --memory 512Mi | kvmctl apply -f -"
)]
pub struct CreateInstancetype {
    /// Name [default: clusterinstancetype- or instancetype-, and five random letters]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Number of vCPUs
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub cpu: Option<String>,
    /// Memory of the guest
    #[arg(long, value_name = "QUANTITY", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Threads for disks: auto or shared
    #[arg(long, value_name = "POLICY")]
    pub iothreadspolicy: Option<String>,
    /// One of the namespace, instead of one for all
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub namespaced: Option<String>,
    /// GPU: name:NAME,devicename:RESOURCE; may be repeated
    #[arg(long, value_name = "PARAMS")]
    pub gpu: Vec<String>,
    /// Device of the host: name:NAME,devicename:RESOURCE; may be repeated
    #[arg(long, value_name = "PARAMS")]
    pub hostdevice: Vec<String>,
}

#[derive(Args)]
#[command(
    args_override_self = true,
    after_help = "Examples:\n  kvmctl create preference --cpu-topology sockets\n  kvmctl create preference --namespaced --name old --machine-type q35 | kvmctl apply -f -"
)]
pub struct CreatePreference {
    /// Name [default: clusterpreference- or preference-, and five random letters]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// One of the namespace, instead of one for all
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub namespaced: Option<String>,
    /// Storage class of volumes that name none
    #[arg(long, value_name = "NAME")]
    pub volume_storage_class: Option<String>,
    /// Machine type
    #[arg(long, value_name = "TYPE")]
    pub machine_type: Option<String>,
    /// How vCPUs are shown to the guest: sockets, cores, threads or spread
    #[arg(long, value_name = "TOPOLOGY")]
    pub cpu_topology: Option<String>,
}
