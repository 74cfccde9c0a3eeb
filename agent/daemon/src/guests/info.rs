//! What agents in guests say of them, for whoever asks.

use agent_host::{GuestFileSystem, GuestInfo, GuestUser, Host, VerbError};
use agent_plan::Phase;
use agent_sources::{ApiError, ObjectRef};
use proto_node::vmi::{
    GuestAgentCommandInfo, VirtualMachineInstanceFileSystem, VirtualMachineInstanceFileSystemDisk,
    VirtualMachineInstanceFileSystemInfo, VirtualMachineInstanceGuestAgentInfo,
    VirtualMachineInstanceGuestOsUser,
};

use super::Guests;
use super::verbs::conflict;
use crate::object;
use crate::status::guest_os;

impl<H: Host> Guests<H> {
    /// Asks the agent in a guest.
    pub(super) async fn ask_guest(
        &self,
        target: &ObjectRef,
        uid: &str,
    ) -> Result<VirtualMachineInstanceGuestAgentInfo, ApiError> {
        let (row, record) = self.present(target)?;
        object::check_uid(target, uid, &row)?;
        if record.phase() != Phase::Running {
            return Err(conflict(target, "VMI is not running"));
        }
        let answered = self.host.guest_info(&record).await;
        answered.map(wire).map_err(|error| match error {
            VerbError::NotRunning => conflict(target, "VMI is not running"),
            VerbError::NoGuestAgent(why) | VerbError::GuestRefused(why) => conflict(
                target,
                &format!(
                    "VMI does not have guest agent connected ({why}: install qemu-guest-agent in the guest)"
                ),
            ),
            VerbError::Vmm(_) => ApiError::Unavailable(error.to_string()),
        })
    }
}

/// As KubeVirt shows it.
fn wire(info: GuestInfo) -> VirtualMachineInstanceGuestAgentInfo {
    let commands = info.commands.into_iter();
    let disks = info.file_systems.into_iter().map(file_system).collect();
    VirtualMachineInstanceGuestAgentInfo {
        guest_agent_version: info.agent_version,
        supported_commands: commands
            .map(|(name, enabled)| GuestAgentCommandInfo { name, enabled })
            .collect(),
        hostname: info.hostname,
        os: info.os.as_ref().map(guest_os),
        timezone: info.timezone,
        user_list: info.users.into_iter().map(user).collect(),
        fs_info: Some(VirtualMachineInstanceFileSystemInfo { disks }),
        fs_freeze_status: if info.is_frozen { "frozen" } else { "" }.to_owned(),
    }
}

fn user(user: GuestUser) -> VirtualMachineInstanceGuestOsUser {
    VirtualMachineInstanceGuestOsUser {
        user_name: user.name,
        domain: user.domain,
        login_time: user.login_time,
    }
}

fn file_system(file_system: GuestFileSystem) -> VirtualMachineInstanceFileSystem {
    let disks = file_system.disks.into_iter();
    VirtualMachineInstanceFileSystem {
        disk_name: file_system.name,
        mount_point: file_system.mount_point,
        file_system_type: file_system.kind,
        used_bytes: file_system.used_bytes,
        total_bytes: file_system.total_bytes,
        disk: disks
            .map(|(serial, bus_type)| VirtualMachineInstanceFileSystemDisk { serial, bus_type })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::GuestOs;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_guest_says_has_the_names_that_kubevirt_gives_it() {
        let owned = |text: &str| text.to_owned();
        let info = GuestInfo {
            agent_version: owned("7.2.17"),
            commands: vec![(owned("guest-exec"), true)],
            hostname: owned("dev"),
            os: Some(GuestOs {
                version_id: owned("12"),
                ..GuestOs::default()
            }),
            timezone: owned("CET, 3600"),
            users: vec![GuestUser {
                name: owned("debian"),
                domain: String::new(),
                login_time: 1_764_041_581,
            }],
            file_systems: vec![GuestFileSystem {
                name: owned("vda1"),
                mount_point: owned("/"),
                kind: owned("ext4"),
                used_bytes: 7,
                total_bytes: 1 << 40,
                disks: vec![(owned("system"), owned("virtio"))],
            }],
            is_frozen: true,
        };
        let wanted = json!({
            "guestAgentVersion": "7.2.17",
            "supportedCommands": [{"name": "guest-exec", "enabled": true}],
            "hostname": "dev",
            "os": {"versionId": "12"},
            "timezone": "CET, 3600",
            "userList": [{"userName": "debian", "loginTime": 1_764_041_581}],
            "fsInfo": {"disks": [{
                "diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4",
                "usedBytes": 7, "totalBytes": 1_u64 << 40,
                "disk": [{"serial": "system", "busType": "virtio"}],
            }]},
            "fsFreezeStatus": "frozen",
        });
        assert_eq!(proto_node::to_json(&wire(info)), wanted);
    }
}
