//! The `Host` trait and its Linux side: images, disks, network, cgroups and the VMM client.

#![forbid(unsafe_code)]

mod beneath;
mod bridge_walls;
pub mod child;
mod config;
mod config_disks;
mod container_disks;
mod control;
mod dialer;
pub mod disk_images;
mod disks;
mod doctor;
mod ends;
mod facility;
mod failure;
mod firmware;
mod free_space;
mod guest_agent;
mod helpers;
mod hook_program;
mod http_probe;
mod image_defaults;
mod kernels;
mod launch_file;
mod layout;
mod linux;
mod logs;
mod machine_config;
mod neighbours;
mod netfilter;
mod node;
mod oom_score;
mod os_error;
mod pod;
mod probe_error;
mod process;
mod process_usage;
mod programs;
mod registry;
mod resolver;
mod sandbox;
mod scope;
#[cfg(test)]
#[path = "../../domain/tests/common/small_vmi.rs"]
mod small_vmi;
mod taps;
#[cfg(test)]
mod test_namespace;
mod usage;
mod users;
mod vsock;
mod work;
mod zone;

pub use config::{KnownPaths, LinuxHostConfig, NamedAddresses};
pub use config_disks::meta_data;
pub use container_disks::{
    ImportProgress, ImportStage, PullProgress, RemoveImageError, StoreUsage, StoredImage,
};
pub use dialer::Dialer;
pub use doctor::{Finding, Health, Patient, examine};
pub use ends::longest_wait_for_turns;
pub use facility::{
    ConsoleError, ConsoleRequest, ConsoleStream, GuestLink, GuestPort, Host, ImageStore,
    ObserveInput, ReachError, Reached, ReachedPhase, VerbError, Wake,
};
pub use firmware::{
    EfiFiles, FirmwareFinder, FirmwareSettings, KeptVariables, RemoveError, kept_variables,
    remove_kept_variables,
};
pub use free_space::ImageStoreLimits;
pub use guest_agent::{GuestCredentials, GuestFileSystem, GuestInfo, GuestUser};
pub use helpers::HELPER_MEMORY_BYTES;
pub use hook_program::{HookPoint, HookProgramError, hook_programs, run_hook_program};
pub use image_defaults::ImageDefaults;
pub use linux::{LinuxHost, StartHostError};
pub use logs::{LogReader, LogsError, Piece, Printed, Run};
pub use machine_config::DebugIoPorts;
pub use netfilter::Restored;
pub use node::{KvmFacts, NodeFacts, SystemFacts, huge_pages};
pub use oom_score::offer_first;
pub use pod::{Egress, PodNetworkConfig};
pub use programs::{DHCP_PROGRAM, find_program};
pub use registry::{EVERY_REGISTRY, RegistryHost, RegistryProxy, RegistrySettings};
pub use usage::{
    DhcpUsage, DiskUsage, GuestMemory, InterfaceUsage, MachineUsage, NicUsage, ProcessUsage,
    RefusedUsage, RequestUsage, TrafficUsage, Usage, VcpuUsage, VmmReply,
};
pub use users::USER_BASES;
pub use work::WorkSeen;
