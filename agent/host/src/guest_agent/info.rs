//! All that an agent in a guest says of the guest, for people.

use agent_plan::GuestOs;
use serde_json::{Value, json};

use super::conversation::{GuestAgent, GuestAgentError, one_line, unless_refused};

/// Commands, users, file systems and disks of one that a guest may have; what follows is not looked at.
const MAX_COMMANDS: usize = 256;
const MAX_USERS: usize = 256;
const MAX_FILE_SYSTEMS: usize = 256;
const MAX_DISKS: usize = 16;

/// All that an agent says of its guest. What it does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestInfo {
    /// Release of the agent.
    pub agent_version: String,
    /// What it can be asked, and whether nobody has switched that off in the guest.
    pub commands: Vec<(String, bool)>,
    /// Host name as the guest has set it; empty when the agent does not report it.
    pub hostname: String,
    /// Operating system.
    pub os: Option<GuestOs>,
    /// Name of the time zone, and seconds by which it is ahead of UTC: `CET, 3600`.
    pub timezone: String,
    /// Who is logged in.
    pub users: Vec<GuestUser>,
    /// File systems that are mounted.
    pub file_systems: Vec<GuestFileSystem>,
    /// They are held for a copy of the disks.
    pub is_frozen: bool,
}

/// Somebody who is logged in to a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestUser {
    /// Login name.
    pub name: String,
    /// Domain of Windows.
    pub domain: String,
    /// When, in seconds since 1970.
    pub login_time: i64,
}

/// A file system that is mounted in a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestFileSystem {
    /// Device or volume.
    pub name: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Type, such as `ext4`.
    pub kind: String,
    /// Bytes that are used.
    pub used_bytes: i64,
    /// Bytes that it has.
    pub total_bytes: i64,
    /// Serial numbers and buses of the disks that it is on.
    pub disks: Vec<(String, String)>,
}

impl GuestAgent {
    /// Everything that it answers; what it refuses is left out.
    ///
    /// # Errors
    /// It has stopped answering.
    pub(crate) async fn info(&mut self) -> Result<GuestInfo, GuestAgentError> {
        let about = self.unless_refused("guest-info").await?;
        let host = self.unless_refused("guest-get-host-name").await?;
        let os = unless_refused(self.os().await)?;
        let zone = self.unless_refused("guest-get-timezone").await?;
        let users = self.unless_refused("guest-get-users").await?;
        let file_systems = self.unless_refused("guest-get-fsinfo").await?;
        let frozen = self.unless_refused("guest-fsfreeze-status").await?;
        let commands = items(about.get("supported_commands"), MAX_COMMANDS);
        let users = items(Some(&users), MAX_USERS);
        let file_systems = items(Some(&file_systems), MAX_FILE_SYSTEMS);
        Ok(GuestInfo {
            agent_version: text(&about, "version"),
            commands: commands.map(command).collect(),
            hostname: text(&host, "host-name"),
            os,
            timezone: timezone(&zone),
            users: users.map(user).collect(),
            file_systems: file_systems.map(file_system).collect(),
            is_frozen: frozen == "frozen",
        })
    }

    /// The answer to a question without arguments; null when the agent does not answer that one.
    async fn unless_refused(&mut self, command: &str) -> Result<Value, GuestAgentError> {
        let answer = unless_refused(self.ask(command, &json!({})).await)?;
        Ok(answer.unwrap_or_default())
    }
}

fn items(list: Option<&Value>, most: usize) -> impl Iterator<Item = &Value> {
    let list = list.and_then(Value::as_array);
    list.into_iter().flatten().take(most)
}

fn text(said: &Value, name: &str) -> String {
    one_line(said.get(name).and_then(Value::as_str).unwrap_or_default())
}

fn command(said: &Value) -> (String, bool) {
    let is_enabled = said.get("enabled").and_then(Value::as_bool) == Some(true);
    (text(said, "name"), is_enabled)
}

/// As KubeVirt shows it: `CET, 3600`.
fn timezone(said: &Value) -> String {
    let Some(offset) = said.get("offset").and_then(Value::as_i64) else {
        return String::new();
    };
    format!("{}, {offset}", text(said, "zone"))
}

fn user(said: &Value) -> GuestUser {
    let login = said.get("login-time").and_then(Value::as_f64);
    GuestUser {
        name: text(said, "user"),
        domain: text(said, "domain"),
        login_time: login.map_or(0, whole_seconds),
    }
}

/// Seconds since 1970 without their fraction; nothing that makes no sense.
fn whole_seconds(seconds: f64) -> i64 {
    let text = format!("{:.0}", seconds.floor());
    text.parse().unwrap_or_default()
}

fn file_system(said: &Value) -> GuestFileSystem {
    let bytes = |name: &str| said.get(name).and_then(Value::as_i64).unwrap_or_default();
    let disks = items(said.get("disk"), MAX_DISKS);
    GuestFileSystem {
        name: text(said, "name"),
        mount_point: text(said, "mountpoint"),
        kind: text(said, "type"),
        used_bytes: bytes("used-bytes"),
        total_bytes: bytes("total-bytes"),
        disks: disks
            .map(|disk| (text(disk, "serial"), text(disk, "bus-type")))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::conversation::tests::{greets, guest};
    use super::super::real_agent::RealAgent;
    use super::*;

    async fn asked(answers: impl Fn(&str) -> Value + Send + 'static) -> GuestInfo {
        let socket = guest(move |request| {
            let answer = || Some(format!("{}\n", answers(request["execute"].as_str()?)));
            greets(request).or_else(answer)
        });
        let mut agent = GuestAgent::greet(socket).await.unwrap();
        agent.info().await.unwrap()
    }

    #[tokio::test]
    async fn what_a_guest_says_is_read_member_by_member() {
        let said = asked(|command| match command {
            "guest-info" => json!({"return": {"version": "7.2.17", "supported_commands": [
                {"name": "guest-exec", "enabled": true, "success-response": true},
                {"name": "guest-file-open", "enabled": false, "success-response": true},
            ]}}),
            "guest-get-host-name" => json!({"return": {"host-name": "dev"}}),
            "guest-get-osinfo" => json!({"return": {"id": "debian", "version-id": "12"}}),
            "guest-get-timezone" => json!({"return": {"zone": "CET", "offset": 3600}}),
            "guest-get-users" => json!({"return": [{"user": "debian", "login-time": 1_764_041_581.25}]}),
            "guest-get-fsinfo" => json!({"return": [{
                "name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 7, "total-bytes": 1_u64 << 40,
                "disk": [{"serial": "system", "bus-type": "virtio", "bus": 0, "dev": "/dev/vda1"}],
            }]}),
            "guest-fsfreeze-status" => json!({"return": "thawed"}),
            other => panic!("{other} was asked"),
        })
        .await;
        let owned = |text: &str| text.to_owned();
        let wanted = GuestInfo {
            agent_version: owned("7.2.17"),
            commands: vec![
                (owned("guest-exec"), true),
                (owned("guest-file-open"), false),
            ],
            hostname: owned("dev"),
            os: Some(GuestOs {
                id: owned("debian"),
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
            is_frozen: false,
        };
        assert_eq!(said, wanted);
    }

    #[tokio::test]
    async fn what_a_guest_refuses_is_left_out_and_what_it_repeats_ends() {
        let said = asked(|command| match command {
            "guest-get-users" => {
                json!({"return": vec![json!({"user": "x", "login-time": 1e300}); 999]})
            }
            "guest-get-fsinfo" => json!({"return": [{"disk": vec![json!({"serial": 7}); 99]}]}),
            "guest-fsfreeze-status" => json!({"return": "frozen"}),
            _ => json!({"error": {"class": "CommandNotFound", "desc": "no"}}),
        })
        .await;
        assert_eq!(said.users.len(), MAX_USERS);
        assert_eq!(
            (said.users[0].name.as_str(), said.users[0].login_time),
            ("x", 0)
        );
        assert_eq!(said.file_systems[0].disks.len(), MAX_DISKS);
        assert!(said.is_frozen && said.os.is_none() && said.hostname.is_empty());
    }

    #[tokio::test]
    async fn a_real_agent_says_all_of_it() {
        let Some(real) = RealAgent::start() else {
            test_skip::report("qemu-guest-agent is not installed, or this is not root");
            return;
        };
        let said = real.greet().await.info().await.unwrap();
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(said.hostname, name.trim());
        assert!(
            said.agent_version
                .starts_with(|first: char| first.is_ascii_digit())
        );
        let exec = ("guest-exec".to_owned(), true);
        assert!(said.commands.contains(&exec), "{said:?}");
        assert!(said.timezone.contains(", "), "{said:?}");
        assert!(!said.is_frozen);
        assert_eq!(said.os.unwrap().id, "debian");
    }
}
