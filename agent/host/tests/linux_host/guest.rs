//! Guests of the agent's: they run, are stopped, have consoles and disks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_domain::Vmi;
use agent_host::{ConsoleError, ConsoleRequest, Host, LinuxHost};
use agent_plan::{Action, ExitReason, FailureClass, Observation, VmmIdentity};
use libtest_mimic::Trial;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use crate::support::{
    HostDirs, OTHER_UID, Outcome, UID, built, eventually, execute, launched, observe, record,
    release, skip, trial,
};
use crate::vmm::start;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_guest_runs_and_ends_by_itself", guest),
        trial(
            "a_guest_is_stopped_and_its_console_was_shared_by_force",
            stop_and_console,
        ),
        trial("a_disk_is_locked_by_one_vmm_at_a_time", one_lock),
    ]
}

/// What real guests need, or why there are none here.
pub fn testguest() -> Result<PathBuf, &'static str> {
    if built("kvmlet-vmm").is_none() {
        return Err("kvmlet-vmm is not built");
    }
    if std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .is_err()
    {
        return Err("/dev/kvm cannot be opened");
    }
    std::env::var_os("KVMLET_TESTGUEST")
        .map(PathBuf::from)
        .or_else(|| built("testguest"))
        .ok_or("testguest is not built (KVMLET_TESTGUEST)")
}

/// A VMI that boots `testguest` with these arguments, two disks and a source of entropy.
pub fn guest_vmi(dirs: &HostDirs, uid: &str, arguments: &str) -> Vmi {
    dirs.vmi(
        uid,
        &[
            ("/spec/domain/firmware/kernelBoot/kernelArgs", json!(arguments)),
            ("/spec/domain/devices/rng", json!({})),
            (
                "/spec/domain/devices/disks",
                json!([{"name": "host", "serial": "HOST"}, {"name": "scratch"}]),
            ),
            (
                "/spec/volumes",
                json!([
                    {"name": "host", "hostDisk": {
                        "path": dirs.images().join("disk.img"), "type": "DiskOrCreate", "capacity": "8Mi",
                    }},
                    {"name": "scratch", "emptyDisk": {"capacity": "8Mi"}},
                ]),
            ),
        ],
    )
}

/// Everything from a directory to a running guest.
pub async fn run(host: &LinuxHost, vmi: &Vmi) -> VmmIdentity {
    let incarnation = 1;
    for action in [
        Action::EnsureRunDir { incarnation },
        Action::EnsureKernel,
        Action::EnsureDisks,
        Action::EnsureTaps,
    ] {
        execute(host, vmi, 1, action).await.unwrap();
    }
    let identity = start(host, vmi, 1).await;
    for action in [
        Action::ConfigureVmm { incarnation },
        Action::ConfigureVmm { incarnation },
        Action::EnsureDisks,
        Action::BootVmm { incarnation },
        Action::BootVmm { incarnation },
    ] {
        execute(host, vmi, 1, action).await.unwrap();
    }
    identity
}

/// What the guest printed.
pub fn console(dirs: &HostDirs) -> String {
    let log = dirs.state().join("vmm").join(UID).join("1/console.log");
    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned()
}

async fn guest() -> Outcome {
    let testguest = match testguest() {
        Ok(path) => path,
        Err(reason) => return skip(reason),
    };
    let dirs = HostDirs::new();
    std::fs::copy(testguest, dirs.images().join("vmlinuz"))?;
    let host = dirs.host().await;
    let vmi = guest_vmi(&dirs, UID, "tests=blk,rng mode=poll");
    let identity = run(&host, &vmi).await;
    let wake = Arc::new(Notify::new());
    let launched = launched(UID, 1, &identity);
    host.watch(&launched, wake.clone());
    loop {
        if observe(&host, &launched).await.vmms == Observation::Absent {
            break;
        }
        let woken = tokio::time::timeout(Duration::from_secs(60), wake.notified()).await;
        assert!(
            woken.is_ok(),
            "no wake-up; the console says {}",
            console(&dirs)
        );
    }
    let observed = observe(&host, &launched).await;
    let exit = observed.exit.present().unwrap();
    assert_eq!(
        exit.reason,
        ExitReason::GuestPoweroff,
        "{exit:?} {}",
        console(&dirs)
    );
    assert!(exit.uptime_ns > 0);
    assert!(console(&dirs).contains("failed=0"), "{}", console(&dirs));
    assert!(dirs.images().join("disk.img").exists());
    release(&host, &vmi, 1).await.unwrap();
    assert_eq!(
        observe(&host, &record(UID, 1)).await.holdings,
        Observation::Absent
    );
    assert!(dirs.images().join("disk.img").exists());
    Ok(())
}

async fn stop_and_console() -> Outcome {
    let testguest = match testguest() {
        Ok(path) => path,
        Err(reason) => return skip(reason),
    };
    let dirs = HostDirs::new();
    std::fs::copy(testguest, dirs.images().join("vmlinuz"))?;
    let host = dirs.host().await;
    let vmi = guest_vmi(&dirs, UID, "tests=none then=echo mode=poll");
    let identity = run(&host, &vmi).await;
    let record = launched(UID, 1, &identity);
    eventually("at its prompt", || async {
        console(&dirs).contains("done")
    })
    .await;
    let request = |force| ConsoleRequest {
        force,
        replay_from: None,
        client: "test".to_owned(),
    };
    let first = host.attach_console(&record, request(false)).await?;
    let busy = host
        .attach_console(&record, request(false))
        .await
        .unwrap_err();
    assert!(matches!(busy, ConsoleError::Busy { .. }), "{busy:?}");
    assert_eq!(busy.to_string(), "the console is in use by \"test\"");
    let attached = host.attach_console(&record, request(true)).await?;
    assert!(attached.offset > 0, "the guest has printed before");
    let mut console = attached.stream;
    drop(first);
    console.write_all(b"hello\n").await?;
    let mut seen = String::new();
    let mut buffer = [0; 256];
    while !seen.contains("line=\"hello\"") {
        let count =
            tokio::time::timeout(Duration::from_secs(20), console.read(&mut buffer)).await??;
        assert_ne!(count, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    let stop = Action::StopVmm {
        incarnation: 1,
        reason: "GracePeriodOver".to_owned(),
    };
    execute(&host, &vmi, 1, stop.clone()).await.unwrap();
    eventually("stopped", || async {
        observe(&host, &record).await.vmms == Observation::Absent
    })
    .await;
    let observed = observe(&host, &record).await;
    let exit = observed.exit.present().unwrap();
    assert_eq!(exit.reason, ExitReason::Stopped, "{exit:?}");
    assert!(exit.detail.contains("GracePeriodOver"), "{exit:?}");
    execute(&host, &vmi, 1, stop).await.unwrap();
    Ok(())
}

async fn one_lock() -> Outcome {
    let testguest = match testguest() {
        Ok(path) => path,
        Err(reason) => return skip(reason),
    };
    let dirs = HostDirs::new();
    std::fs::copy(testguest, dirs.images().join("vmlinuz"))?;
    let host = dirs.host().await;
    let vmi = guest_vmi(&dirs, UID, "tests=none then=idle");
    let identity = run(&host, &vmi).await;
    // The agent is gone; the VMM still has its disks.
    drop(host);
    let host = dirs.host().await;
    let other = guest_vmi(&dirs, OTHER_UID, "tests=none");
    let failure = execute(&host, &other, 1, Action::EnsureDisks)
        .await
        .unwrap_err();
    assert_eq!(
        (failure.class, failure.reason.as_str()),
        (FailureClass::Retry, "DiskInUse")
    );
    assert!(failure.message.contains("disk.img"), "{failure:?}");
    let action = Action::KillVmm {
        incarnation: 1,
        identity: identity.clone(),
    };
    execute(&host, &vmi, 1, action).await.unwrap();
    eventually("free", || async {
        execute(&host, &other, 1, Action::EnsureDisks).await.is_ok()
    })
    .await;
    // Killed without a word: no exit record.
    let observed = observe(&host, &launched(UID, 1, &identity)).await;
    assert_eq!(observed.exit, Observation::Absent);
    Ok(())
}
