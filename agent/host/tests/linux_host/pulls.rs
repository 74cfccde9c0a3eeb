//! The child that pulls an image, as the kernel shows it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use agent_domain::{
    ContainerDisk, ContainerImage, ImageLocation, Namespace, PullCredentials, PullPolicy,
    RegistryImage,
};
use agent_host::{
    ImageStore, ImportStage, LinuxHost, PullProgress, RegistryHost, RegistrySettings,
};
use libtest_mimic::Trial;
use tokio::net::TcpListener;

use crate::dialer::{NODE, PATIENCE, raise_loopback};
use crate::kernels::write_long_layout;
use crate::support::{HostDirs, Outcome, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(
            "the_child_that_pulls_has_no_rights_no_network_and_no_files",
            confined,
        ),
        trial(
            "a_registry_that_does_not_answer_is_given_up_in_its_time",
            given_up,
        ),
        trial(
            "an_image_that_takes_long_to_unpack_says_how_far_it_is",
            unpacked,
        ),
    ]
}

/// The child of this process that pulls, once it has given up its rights.
fn puller() -> Option<String> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let children = tasks.filter_map(|task| {
        // A thread may have ended.
        std::fs::read_to_string(task.ok()?.path().join("children")).ok()
    });
    let children: Vec<String> = children.collect();
    let mut pids = children.iter().flat_map(|pids| pids.split_whitespace());
    let found = pids.find(|pid| {
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        words.is_ok_and(|words| words.contains("pull-image")) && field(pid, "Seccomp:") == "2"
    });
    found.map(str::to_owned)
}

fn field(pid: &str, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let words = value.unwrap_or_default().split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

fn expect_no_rights(pid: &str) {
    assert_eq!(field(pid, "NoNewPrivs:"), "1");
    assert_eq!(field(pid, "CapEff:"), "0000000000000000");
    let proc = Path::new("/proc").join(pid);
    // Beside the standard ones it has what its runtime needs, and connections.
    for entry in std::fs::read_dir(proc.join("fd")).unwrap() {
        let entry = entry.unwrap();
        let number: u32 = entry.file_name().to_str().unwrap().parse().unwrap();
        let file = std::fs::read_link(entry.path()).unwrap();
        // This program may have been started with devices, for messages.
        let is_file = file.is_absolute() && !file.starts_with("/dev");
        assert!(number <= 2 || !is_file, "{}", file.display());
    }
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    for ids in ["Uid:", "Gid:"] {
        assert_eq!(field(pid, ids), ["65534"; 4].join(" "), "{ids}");
    }
    for namespace in ["net", "mnt", "ipc"] {
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap();
        assert_ne!(of(pid), of("self"), "{namespace}");
    }
    let limits = std::fs::read_to_string(proc.join("limits")).unwrap();
    let mut rows = limits.lines();
    let space = rows.find(|row| row.starts_with("Max address space"));
    assert!(
        space.unwrap().contains(&(128 << 20).to_string()),
        "{limits}"
    );
}

/// A registry that takes connections and never answers, as the configuration has it.
async fn silent(host: RegistryHost) -> std::io::Result<(TcpListener, RegistrySettings, String)> {
    let registry = TcpListener::bind(NODE).await?;
    let name = registry.local_addr()?.to_string();
    let hosts = BTreeMap::from([(name.clone(), host)]);
    Ok((registry, RegistrySettings { hosts }, name))
}

fn disk_of(registry: String) -> ContainerDisk {
    let name = format!("{registry}/vm/disk:1");
    let image = ContainerImage::Registry(RegistryImage {
        registry,
        repository: String::from("vm/disk"),
        reference: String::from("1"),
    });
    disk(name, image)
}

fn disk(name: String, image: ContainerImage) -> ContainerDisk {
    ContainerDisk {
        name,
        image,
        path: None,
        pull: PullPolicy::IfNotPresent,
        pull_secret: None,
        credentials: PullCredentials::default(),
    }
}

async fn confined() -> Outcome {
    raise_loopback().await;
    let dirs = HostDirs::new();
    // It is connected, and never answered.
    let (registry, settings, name) = silent(RegistryHost {
        insecure: true,
        ..RegistryHost::default()
    })
    .await?;
    let mut config = dirs.config();
    config.registries = settings;
    let host = LinuxHost::start(config).await?;
    let disk = disk_of(name);
    let namespace: Namespace = "default".parse().map_err(|()| "no namespace")?;
    host.pull_image(&namespace, &disk)
        .await
        .map_err(|failure| format!("{failure:?}"))?;
    let (_connection, _) = tokio::time::timeout(PATIENCE, registry.accept()).await??;
    let found = async {
        loop {
            if let Some(pid) = puller() {
                return pid;
            }
            // Nothing reports that it has given up its rights.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let pid = tokio::time::timeout(PATIENCE, found).await?;
    expect_no_rights(&pid);
    Ok(())
}

async fn given_up() -> Outcome {
    raise_loopback().await;
    let short = Some(Duration::from_millis(100));
    for (answer, pull, words) in [
        (short, None, "does not answer"),
        (None, short, "it took more than 100ms"),
    ] {
        let dirs = HostDirs::new();
        let (_registry, settings, name) = silent(RegistryHost {
            insecure: true,
            answer,
            pull,
            ..RegistryHost::default()
        })
        .await?;
        let mut config = dirs.config();
        config.registries = settings;
        let host = LinuxHost::start(config).await?;
        let disk = disk_of(name);
        let namespace: Namespace = "default".parse().map_err(|()| "no namespace")?;
        let failed = async {
            loop {
                // It waits up to a second for news.
                if let Err(failure) = host.pull_image(&namespace, &disk).await {
                    return failure.message;
                }
            }
        };
        // Without the settings it would take a minute, and hours.
        let said = tokio::time::timeout(3 * PATIENCE, failed).await?;
        assert!(said.contains(words), "{said}");
    }
    Ok(())
}

async fn unpacked() -> Outcome {
    let dirs = HostDirs::new();
    let path = dirs.images().join("layout");
    write_long_layout(&path);
    let host = dirs.host().await;
    let name = format!("oci:{}", path.display());
    let location = ImageLocation::OciLayout {
        path,
        reference: None,
    };
    let disk = disk(name, ContainerImage::Layout(location));
    let namespace: Namespace = "default".parse().map_err(|()| "no namespace")?;
    let progress = async {
        loop {
            // It waits up to a second for news.
            match host.pull_image(&namespace, &disk).await {
                Ok(PullProgress::Running(progress)) if progress.done_bytes == 0 => {}
                other => return other,
            }
        }
    };
    let progress = tokio::time::timeout(3 * PATIENCE, progress).await?;
    let Ok(PullProgress::Running(progress)) = progress else {
        return Err(format!("{progress:?}").into());
    };
    assert_eq!(progress.stage, ImportStage::Unpacking);
    assert_eq!(progress.total_bytes, (4 << 30) + 512);
    assert!(progress.done_bytes < progress.total_bytes, "{progress:?}");
    Ok(())
}
