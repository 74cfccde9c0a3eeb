//! VMMs without a guest: started, adopted, killed.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_domain::Vmi;
use agent_host::{ConsoleError, ConsoleRequest, Host, LinuxHost};
use agent_plan::{
    Action, Completed, Enforcement, Failure, FailureClass, MachineState, Observation, Observed,
    VmmIdentity,
};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto_vmm::v1;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use crate::support::{
    HostDirs, Outcome, UID, built, eventually, execute, launched, observe, record, release, skip,
    trial,
};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "nothing_is_absent_and_releasing_nothing_is_success",
            nothing,
        ),
        trial("a_vmm_that_cannot_start_says_why", bad_program),
        trial(
            "a_vmm_that_hangs_before_its_first_word_is_given_up",
            hanging_program,
        ),
        trial("a_started_vmm_is_seen_adopted_and_killed", start_adopt_kill),
        trial(
            "a_process_that_only_has_the_number_of_a_vmm_is_never_taken_for_it",
            reused_number,
        ),
        trial(
            "a_process_that_a_vmm_says_it_is_is_never_taken_for_it",
            false_identity,
        ),
        trial(
            "a_start_that_was_not_noted_is_found_by_its_socket",
            lost_note,
        ),
        trial(
            "a_vmm_that_does_not_answer_is_unknown_and_not_absent",
            stopped,
        ),
        trial(
            "a_vmm_runs_as_a_user_of_its_own_without_capabilities",
            unprivileged,
        ),
        trial("a_vmm_is_within_limits_or_the_log_says_why_not", limits),
        trial(
            "a_vmm_that_takes_no_more_connections_is_busy_and_not_gone",
            busy,
        ),
        trial(
            "those_who_follow_a_console_leave_connections_to_others",
            many_followers,
        ),
        trial("late_actions_are_fenced", fenced),
    ]
}

fn states(observed: &Observed) -> Vec<Option<MachineState>> {
    let vmms = observed.vmms.present().into_iter().flatten();
    vmms.map(|vmm| vmm.machine.present().map(|machine| machine.state))
        .collect()
}

pub async fn start(host: &LinuxHost, vmi: &Vmi, incarnation: u64) -> VmmIdentity {
    match execute(host, vmi, incarnation, Action::StartVmm { incarnation }).await {
        Ok(Completed::Started(identity)) => identity,
        other => panic!("{other:?}"),
    }
}

async fn nothing() -> Outcome {
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let observed = observe(&host, &record(UID, 0)).await;
    assert!(observed.boot_id.present().is_some());
    assert_eq!(observed.vmms, Observation::Absent);
    assert_eq!(observed.exit, Observation::Absent);
    assert_eq!(observed.holdings, Observation::Absent);
    release(&host, &vmi, 7).await.unwrap();
    let stop = Action::StopVmm {
        incarnation: 1,
        reason: "Test".to_owned(),
    };
    execute(&host, &vmi, 1, stop).await.unwrap();
    let failure = execute(&host, &vmi, 1, Action::BootVmm { incarnation: 1 })
        .await
        .unwrap_err();
    assert_eq!(
        (failure.class, failure.reason.as_str()),
        (FailureClass::Retry, "VmmGone")
    );
    let request = ConsoleRequest {
        force: false,
        replay_from: None,
        client: "test".to_owned(),
    };
    let error = host
        .attach_console(&record(UID, 1), request)
        .await
        .unwrap_err();
    assert!(matches!(error, ConsoleError::NotRunning), "{error:?}");
    Ok(())
}

async fn bad_program() -> Outcome {
    let dirs = HostDirs::new();
    let mut config = dirs.config();
    config.vmm_program = PathBuf::from("/nonexistent/kvmlet-vmm");
    let host = LinuxHost::start(config).await.unwrap();
    let vmi = dirs.vmi(UID, &[]);
    let failure = execute(&host, &vmi, 1, Action::StartVmm { incarnation: 1 })
        .await
        .unwrap_err();
    assert!(
        failure.message.contains("/nonexistent/kvmlet-vmm"),
        "{failure:?}"
    );
    assert_eq!(
        observe(&host, &record(UID, 1)).await.vmms,
        Observation::Absent
    );
    release(&host, &vmi, 1).await.unwrap();
    assert_eq!(
        observe(&host, &record(UID, 1)).await.holdings,
        Observation::Absent
    );
    Ok(())
}

/// Why a VMM was not started, which is to be tried again.
async fn start_in_vain(host: &LinuxHost, vmi: &Vmi) -> Failure {
    let failure = execute(host, vmi, 1, Action::StartVmm { incarnation: 1 })
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Retry);
    failure
}

/// Opening a pipe waits for its other end, as a program on a dead file server does for the server.
async fn hanging_program() -> Outcome {
    let dirs = HostDirs::new();
    let mut config = dirs.config();
    let pipe = config.state_dir.join("a-program-that-never-comes");
    std::fs::create_dir_all(&config.state_dir)?;
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU)?;
    config.vmm_program.clone_from(&pipe);
    config.launch_limit = Duration::from_millis(500);
    let host = LinuxHost::start(config).await.unwrap();
    let vmi = dirs.vmi(UID, &[]);
    for _ in 0..2 {
        let mut failure = start_in_vain(&host, &vmi).await;
        // The one before may just be ending, which is no reason to start another: it is looked at again.
        for _ in 0..50 {
            if failure.reason != "VmmUnknown" {
                break;
            }
            // The VMM is no child of this process, and its end is observed by looking again.
            tokio::time::sleep(Duration::from_millis(20)).await;
            failure = start_in_vain(&host, &vmi).await;
        }
        assert!(failure.message.contains("within 500ms"), "{failure:?}");
        // Whoever still waits for the program is let go on by its writer, and ends all the same.
        eventually("nobody waits for the program", async || {
            let flags = nix::fcntl::OFlag::O_WRONLY | nix::fcntl::OFlag::O_NONBLOCK;
            let opened = nix::fcntl::open(&pipe, flags, nix::sys::stat::Mode::empty());
            opened.err() == Some(nix::errno::Errno::ENXIO)
        })
        .await;
    }
    assert_eq!(
        observe(&host, &record(UID, 1)).await.vmms,
        Observation::Absent
    );
    release(&host, &vmi, 1).await.unwrap();
    Ok(())
}

/// A process that has nothing to do with any VMM.
struct Bystander(std::process::Child);

impl Bystander {
    fn new() -> Self {
        Self(
            std::process::Command::new("sleep")
                .arg("600")
                .spawn()
                .unwrap(),
        )
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The VMM ended at once, and its number is another process's when the agent reads it.
async fn reused_number() -> Outcome {
    let mut bystander = Bystander::new();
    let dirs = HostDirs::new();
    let mut config = dirs.config();
    std::fs::create_dir_all(&config.state_dir)?;
    config.helper_program = config.state_dir.join("launcher");
    let script = format!("#!/bin/sh\necho {}\n", bystander.0.id());
    std::fs::write(&config.helper_program, script)?;
    std::fs::set_permissions(&config.helper_program, Permissions::from_mode(0o755))?;
    let host = LinuxHost::start(config).await.unwrap();
    let vmi = dirs.vmi(UID, &[]);
    let failure = execute(&host, &vmi, 1, Action::StartVmm { incarnation: 1 })
        .await
        .unwrap_err();
    assert!(bystander.lives(), "{failure:?}");
    assert!(
        failure.message.contains("its launcher failed"),
        "{failure:?}"
    );
    Ok(())
}

/// A VMM that was taken over names another process as itself, by all that identifies one.
async fn false_identity() -> Outcome {
    let bystander = Bystander::new();
    let pid = bystander.0.id();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').unwrap().1;
    let start_time_ticks = fields.split_whitespace().nth(19).unwrap().parse()?;
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let dir = dirs.run().join("vmm").join(UID).join("1");
    std::fs::create_dir_all(&dir)?;
    let listener = std::os::unix::net::UnixListener::bind(dir.join("control.sock"))?;
    let hello = v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        identity: Some(v1::Identity {
            pid,
            boot_id: boot_id.trim().to_owned(),
            start_time_ticks,
            ..v1::Identity::default()
        }),
        status: Some(v1::MachineStatus {
            state: v1::MachineState::Unconfigured.into(),
            ..v1::MachineStatus::default()
        }),
        ..v1::Hello::default()
    };
    let frame = v1::Frame {
        body: Some(v1::frame::Body::Hello(hello)),
    };
    let bytes = proto_vmm::encode_frame(&frame, 0)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            // The agent hangs up when it has read that.
            if stream.write_all(&bytes).is_ok() {
                drop(stream.read(&mut [0; 64]));
            }
        }
    });
    let observed = observe(&host, &record(UID, 1)).await;
    let Observation::Unknown { why, .. } = &observed.vmms else {
        panic!("{observed:?}");
    };
    assert!(why.contains("which process listens"), "{why}");
    Ok(())
}

async fn start_adopt_kill() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let identity = start(&host, &vmi, 1).await;
    assert_eq!(start(&host, &vmi, 1).await, identity);

    let observed = observe(&host, &launched(UID, 1, &identity)).await;
    assert_eq!(
        states(&observed),
        [Some(MachineState::Unconfigured)],
        "{observed:?}"
    );
    assert_eq!(observed.vmms.present().unwrap()[0].identity, identity);
    let failure = release(&host, &vmi, 1).await.unwrap_err();
    assert_eq!(failure.reason, "VmmRuns");

    // Another agent knows nothing but the directories.
    drop(host);
    let host = dirs.host().await;
    let observed = observe(&host, &record(UID, 1)).await;
    assert_eq!(
        states(&observed),
        [Some(MachineState::Unconfigured)],
        "{observed:?}"
    );
    let failure = execute(&host, &vmi, 2, Action::StartVmm { incarnation: 2 })
        .await
        .unwrap_err();
    assert_eq!(failure.reason, "OlderVmmRuns");

    let wake = Arc::new(Notify::new());
    host.watch(&launched(UID, 1, &identity), wake.clone());
    let action = Action::KillVmm {
        incarnation: 1,
        identity: identity.clone(),
    };
    execute(&host, &vmi, 2, action.clone()).await.unwrap();
    eventually("gone", || async {
        observe(&host, &launched(UID, 1, &identity)).await.vmms == Observation::Absent
    })
    .await;
    tokio::time::timeout(Duration::from_secs(5), wake.notified()).await?;
    execute(&host, &vmi, 2, action).await.unwrap();
    release(&host, &vmi, 2).await.unwrap();
    assert_eq!(
        observe(&host, &record(UID, 2)).await.holdings,
        Observation::Absent
    );
    Ok(())
}

async fn lost_note() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let identity = start(&host, &vmi, 1).await;
    let note = dirs.run().join("vmm").join(UID).join("1/launch.json");
    std::fs::remove_file(&note).unwrap();
    let observed = observe(&host, &record(UID, 1)).await;
    assert_eq!(observed.vmms.present().unwrap()[0].identity, identity);
    assert_eq!(start(&host, &vmi, 1).await, identity);
    assert!(note.exists());
    std::fs::remove_file(&note).unwrap();
    kill(Pid::from_raw(i32::try_from(identity.pid)?), Signal::SIGKILL)?;
    eventually("gone", || async {
        observe(&host, &record(UID, 1)).await.vmms == Observation::Absent
    })
    .await;
    Ok(())
}

async fn stopped() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let identity = start(&host, &vmi, 1).await;
    let pid = Pid::from_raw(i32::try_from(identity.pid)?);
    assert_eq!(host.releases(), [""; 0]);
    host.watch(&launched(UID, 1, &identity), Arc::default());
    // It says so once, when the agent reaches it.
    let ours = || async { host.releases() == [env!("CARGO_PKG_VERSION")] };
    eventually("known by its release", ours).await;
    kill(pid, Signal::SIGSTOP)?;
    let observed = observe(&host, &launched(UID, 1, &identity)).await;
    assert_eq!(states(&observed), [None], "{observed:?}");
    assert!(observed.vmms.present().unwrap()[0].machine.is_unknown());
    let failure = release(&host, &vmi, 1).await.unwrap_err();
    assert_eq!(failure.reason, "VmmRuns");
    // Without the note even its identity is unknown.
    std::fs::remove_file(dirs.run().join("vmm").join(UID).join("1/launch.json")).unwrap();
    assert!(observe(&host, &record(UID, 1)).await.vmms.is_unknown());
    assert_eq!(
        release(&host, &vmi, 1).await.unwrap_err().reason,
        "VmmUnknown"
    );
    assert!(ours().await);
    kill(pid, Signal::SIGKILL)?;
    eventually("gone with its release", || async {
        host.releases().is_empty()
    })
    .await;
    Ok(())
}

/// A helper program that has a file open and something in its environment, as an agent might whose libraries are careless.
fn careless_helper(dir: &Path) -> PathBuf {
    let path = dir.join("helper");
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nexec 7</etc/passwd\nSECRET=1 exec '{}' \"$@\"\n",
        this.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

async fn unprivileged() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    if !nix::unistd::geteuid().is_root() {
        return skip("only root can run a VMM as another user");
    }
    let dirs = HostDirs::new();
    let mut config = dirs.config();
    config.helper_program = careless_helper(dirs.dir.path());
    let host = LinuxHost::start(config).await.unwrap();
    let identity = start(&host, &dirs.vmi(UID, &[]), 1).await;
    let proc = PathBuf::from(format!("/proc/{}", identity.pid));
    assert_eq!(std::fs::read_to_string(proc.join("environ"))?, "");
    for descriptor in std::fs::read_dir(proc.join("fd"))? {
        // The VMM opens and closes some of its own meanwhile; those of the helper would stay.
        let target = std::fs::read_link(descriptor?.path()).unwrap_or_default();
        assert!(!target.ends_with("passwd"), "{target:?}");
    }
    let status = std::fs::read_to_string(proc.join("status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let base = dirs.config().vmm_user_base;
    for ids in [field("Uid:"), field("Gid:")] {
        let ids: Vec<u32> = ids
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        assert!(
            ids.iter().all(|id| (base..base + 65536).contains(id)),
            "{ids:?}"
        );
    }
    assert_eq!(field("Groups:"), "");
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    // Not dumpable: the files of the process are root's, not its user's.
    let files = std::fs::metadata(proc.join("fd"))?;
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&files), 0);
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    // An empty root, and namespaces of its own.
    assert_eq!(std::fs::read_dir(proc.join("root"))?.count(), 0);
    for namespace in ["mnt", "net", "ipc", "uts", "pid", "user"] {
        let ours = std::fs::read_link(format!("/proc/self/ns/{namespace}"))?;
        assert_ne!(std::fs::read_link(proc.join("ns").join(namespace))?, ours);
    }
    // It knows itself as the first process there is, and of nobody but itself and its controller.
    assert!(field("NSpid:").ends_with("\t1"), "{}", field("NSpid:"));
    let user = field("Uid:").split_whitespace().next().unwrap().to_owned();
    let users: Vec<u32> = std::fs::read_to_string(proc.join("uid_map"))?
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let user = user.parse()?;
    assert_eq!(users, [user, user, 1, 0, 0, 1]);
    let session = nix::unistd::getsid(Some(Pid::from_raw(i32::try_from(identity.pid)?)))?;
    assert_eq!(session.as_raw(), i32::try_from(identity.pid)?);
    kill(session, Signal::SIGKILL)?;
    Ok(())
}

async fn limits() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let identity = start(&host, &vmi, 1).await;
    let observed = observe(&host, &launched(UID, 1, &identity)).await;
    let enforcement = observed.vmms.present().unwrap()[0].enforcement.clone();
    let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", identity.pid))?;
    println!("{enforcement:?} {cgroups}");
    match enforcement.present().unwrap() {
        Enforcement::NotEnforced { why } => assert!(!why.is_empty()),
        Enforcement::Enforced => {
            let path = cgroups
                .lines()
                .find_map(|line| line.strip_prefix("0::"))
                .unwrap();
            assert!(
                path.contains("kvmlet-guests") && path.contains(UID),
                "{path}"
            );
            assert!(!std::fs::read_to_string("/proc/self/cgroup")?.contains(path));
            let dir = PathBuf::from(format!("/sys/fs/cgroup{path}"));
            let limit: u64 = std::fs::read_to_string(dir.join("memory.max"))?
                .trim()
                .parse()?;
            assert!((64 << 20..256 << 20).contains(&limit), "{limit}");
            let tasks = std::fs::read_to_string(dir.join("pids.max"))?;
            assert_eq!(tasks.trim(), "66");
            assert_eq!(
                std::fs::read_to_string(dir.join("cpu.weight"))?.trim(),
                "100"
            );
        }
    }
    let action = Action::KillVmm {
        incarnation: 1,
        identity: identity.clone(),
    };
    execute(&host, &vmi, 1, action).await.unwrap();
    eventually("released", || async {
        release(&host, &vmi, 1).await.is_ok()
    })
    .await;
    let observed = observe(&host, &record(UID, 1)).await;
    assert_eq!(observed.holdings, Observation::Absent);
    Ok(())
}

async fn fenced() -> Outcome {
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    execute(&host, &vmi, 2, Action::EnsureRunDir { incarnation: 2 })
        .await
        .unwrap();
    let late = Action::EnsureRunDir { incarnation: 1 };
    let failure = execute(&host, &vmi, 2, late.clone()).await.unwrap_err();
    assert_eq!(failure.reason, "Fenced");
    drop(host);
    let host = dirs.host().await;
    assert_eq!(
        execute(&host, &vmi, 2, late).await.unwrap_err().reason,
        "Fenced"
    );
    Ok(())
}

/// Somebody who connects to a VMM's control socket and stays; `None` when the VMM refused it.
async fn intrude(dirs: &HostDirs) -> Option<tokio::net::UnixStream> {
    let run = dirs.run().join("vmm").join(UID).join("1");
    // Its address has room for little.
    let dir = std::fs::File::open(run).unwrap();
    let path = format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd());
    let mut intruder = tokio::net::UnixStream::connect(path).await.unwrap();
    let mut hello = [0; 4096];
    let length = intruder.read(&mut hello).await.unwrap();
    let is_refused = String::from_utf8_lossy(&hello[..length]).contains("connections already");
    (!is_refused).then_some(intruder)
}

async fn busy() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    let dirs = HostDirs::new();
    let host = dirs.host().await;
    let vmi = dirs.vmi(UID, &[]);
    let identity = start(&host, &vmi, 1).await;
    // The connection by which it was started may take one of the eight a moment longer.
    let mut intruders = Vec::new();
    while intruders.len() < 8 {
        intruders.extend(intrude(&dirs).await);
    }
    let stop = Action::StopVmm {
        incarnation: 1,
        reason: "Test".to_owned(),
    };
    let failure = execute(&host, &vmi, 1, stop.clone()).await.unwrap_err();
    assert_eq!(
        (failure.class, failure.reason.as_str()),
        (FailureClass::Retry, "VmmBusy"),
        "{failure:?}"
    );
    // What a look needs to know comes with the refusal.
    let observed = observe(&host, &launched(UID, 1, &identity)).await;
    assert_eq!(
        states(&observed),
        [Some(MachineState::Unconfigured)],
        "{observed:?}"
    );
    drop(intruders);
    eventually("stopped", || async {
        let asked = execute(&host, &vmi, 1, stop.clone()).await;
        asked.is_ok()
            && observe(&host, &launched(UID, 1, &identity)).await.vmms == Observation::Absent
    })
    .await;
    release(&host, &vmi, 1).await.unwrap();
    Ok(())
}

async fn many_followers() -> Outcome {
    if built("kvmlet-vmm").is_none() {
        return skip("kvmlet-vmm is not built");
    }
    let dirs = HostDirs::new();
    let host = Arc::new(dirs.host().await);
    let vmi = dirs.vmi(UID, &[]);
    let identity = start(&host, &vmi, 1).await;
    let followed = launched(UID, 1, &identity);
    let mut followers = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (host, record) = (Arc::clone(&host), followed.clone());
        followers.spawn(async move {
            let mut refusals = Vec::new();
            for _ in 0..20 {
                refusals.extend(host.printed_since(&record, 0).await.err());
            }
            refusals
        });
    }
    let mut asked = 0;
    while let Some(refusals) = followers.join_next().await {
        let refusals = refusals?;
        assert!(refusals.is_empty(), "{refusals:?}");
        let press = Action::PressPowerButton { incarnation: 1 };
        let failure = execute(&host, &vmi, 1, press).await.unwrap_err();
        // It has no machine yet.
        assert_eq!(failure.reason, "VmmRefused", "{failure:?}");
        asked += 1;
    }
    assert_eq!(asked, 64);
    let action = Action::KillVmm {
        incarnation: 1,
        identity: identity.clone(),
    };
    execute(&host, &vmi, 1, action).await.unwrap();
    eventually("gone", || async {
        observe(&host, &followed).await.vmms == Observation::Absent
    })
    .await;
    release(&host, &vmi, 1).await.unwrap();
    Ok(())
}
