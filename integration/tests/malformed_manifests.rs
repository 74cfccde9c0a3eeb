//! Manifests that are wrong in every way we could think of: each is refused with the field, and the
//! agent lives on.

#![forbid(unsafe_code)]

use std::fmt::Write;

use integration::agent::{Agent, DISKS, GuestSpec, IMAGES, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;

/// A manifest and what the refusal has to hold.
struct Case {
    name: &'static str,
    manifest: String,
    says: &'static [&'static str],
}

fn good() -> String {
    GuestSpec::testguest("wrong", "tests=none").manifest()
}

fn changed(from: &str, to: &str) -> String {
    let good = good();
    assert!(good.contains(from), "{from} is not in the manifest");
    good.replace(from, to)
}

fn case(name: &'static str, manifest: String, says: &'static [&'static str]) -> Case {
    Case {
        name,
        manifest,
        says,
    }
}

/// Files of the host that a VMI of namespace `default` may not name.
fn path_cases() -> Vec<Case> {
    let host_disk = |path: &str| {
        changed(
            "    emptyDisk:\n      capacity: 16Mi\n",
            &format!("    hostDisk:\n      path: {path}\n      type: Disk\n"),
        )
    };
    vec![
        case(
            "a path outside",
            host_disk("/etc/shadow"),
            &["spec.volumes[0].hostDisk.path", "paths.grants"],
        ),
        case(
            "another namespace's disk",
            host_disk("/var/lib/kvmlet/disks/shop/web.img"),
            &[
                "\"/var/lib/kvmlet/disks/shop/web.img\"",
                "not below a directory that is granted to namespace \"default\"",
                "allowed: /var/lib/kvmlet/disks/default",
            ],
        ),
        case(
            "a path that climbs out",
            host_disk(&format!("{DISKS}/../../../etc/shadow")),
            &["spec.volumes[0].hostDisk.path"],
        ),
    ]
}

fn cases() -> Vec<Case> {
    vec![
        case(
            "a wrong type",
            changed("guest: 16Mi", "guest: [16]"),
            &["spec.domain.memory.guest"],
        ),
        case(
            "an unknown field",
            changed("    devices:", "    devicez:"),
            &["spec.domain.devicez"],
        ),
        case(
            "a probe that asks two things",
            changed(
                "spec:\n",
                "spec:\n  livenessProbe:\n    guestAgentPing: {}\n    tcpSocket: {port: 22}\n    successThreshold: 2\n",
            ),
            &[
                "spec.livenessProbe must have exactly one probe type set",
                "spec.livenessProbe.successThreshold",
                "must be 1",
            ],
        ),
        case(
            "no image",
            changed(&format!("          image: dir:{IMAGES}/testguest\n"), ""),
            &["spec.domain.firmware.kernelBoot.container.image"],
        ),
        case(
            "a negative size",
            changed("capacity: 16Mi", "capacity: -16Mi"),
            &["spec.volumes[0].emptyDisk.capacity"],
        ),
        case(
            "negative memory",
            changed("guest: 16Mi", "guest: -1"),
            &["spec.domain.memory.guest"],
        ),
        case(
            "two disks of one name",
            changed(
                "      - name: data\n",
                "      - name: data\n        disk: {}\n      - name: data\n",
            ),
            &["spec.domain.devices.disks[1].name"],
        ),
        case("no YAML at all", "\0\u{1}{{{{:::".to_owned(), &[]),
    ]
}

/// Text that costs whoever parses it without a limit.
fn hostile_cases() -> Vec<Case> {
    let mut nested = good();
    nested.push_str("  evil: ");
    nested.push_str(&"[".repeat(100_000));
    let mut aliases = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        let row = vec![format!("*a{before}"); 10].join(", ");
        writeln!(aliases, "a{level}: &a{level} [{row}]").expect("a String takes everything");
    }
    aliases.push_str(&good());
    let mut large = good();
    while large.len() < 10 << 20 {
        large.push_str(
            "# ten megabytes of nothing to say, a line at a time ...............................\n",
        );
    }
    large.push_str("  unheard: of\n");
    let case = |name, manifest| Case {
        name,
        manifest,
        says: &[],
    };
    vec![
        case("deep nesting", nested),
        case("aliases", aliases),
        case("ten megabytes", large),
    ]
}

#[test]
fn every_malformed_manifest_is_refused_by_field_and_the_agent_lives() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let pid = host.sh("pidof kvmlet")?;
    let all = cases().into_iter().chain(path_cases());
    let all = all.chain(hostile_cases());
    for (number, case) in all.enumerate() {
        let refused = agent
            .apply(&case.manifest)
            .expect_err(case.name)
            .to_string();
        for part in case.says {
            assert!(
                refused.contains(part),
                "{}: no {part:?} in: {refused}",
                case.name
            );
        }
        host.put(
            &format!("{MANIFESTS}/{number}.yaml"),
            0o644,
            case.manifest.as_bytes(),
        )?;
    }
    agent.apply(&good())?;
    agent.wait_until_it_answers()?;
    assert_eq!(
        host.sh("pidof kvmlet")?,
        pid,
        "another agent runs:\n{}",
        agent.log()
    );
    let listed = agent.kvmctl("get vmi -A -o name")?;
    assert_eq!(listed.stdout.lines().count(), 1, "{listed}");
    Ok(())
}

/// A path may lie in an allowed directory and still lead out of it by a symbolic link.
#[test]
fn a_symlink_out_of_the_allowed_directories_is_not_followed() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    host.sh(&format!(
        "truncate -s 1M /var/lib/secret && ln -s /var/lib/secret {DISKS}/innocent.img"
    ))?;
    let manifest = changed(
        "    emptyDisk:\n      capacity: 16Mi\n",
        &format!("    hostDisk:\n      path: {DISKS}/innocent.img\n      type: Disk\n"),
    );
    let refused = match agent.apply(&manifest) {
        Err(refused) => refused.to_string(),
        // Admission does not look at the disk; whoever opens it does.
        Ok(()) => {
            let why = "kvmctl get vmi wrong -o yaml | grep -e innocent";
            host.wait_for(why, std::time::Duration::from_secs(60))?;
            agent.kvmctl("describe vmi wrong")?.stdout
        }
    };
    assert!(refused.contains("innocent.img"), "{refused}");
    assert_eq!(
        host.sh("pidof kvmlet-vmm || true")?,
        "",
        "no guest has the file"
    );
    Ok(())
}
