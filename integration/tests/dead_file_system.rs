//! File systems whose server never answers, on this machine's own KVM: what is on them holds up nothing but its own VMI.
//!
//! The file systems are FUSE's, with nobody who reads what the kernel asks: whoever looks at a file there waits for
//! ever, until the last descriptor of the server is closed.

#![forbid(unsafe_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec, LOG, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(60);

/// What is below the directories for disks and for kernels of the namespace `dead`.
const DISKS: &str = "/var/lib/kvmlet/disks/dead";
const IMAGES: &str = "/var/lib/kvmlet/images/dead";

/// More than there are threads of the runtime, and turns of one file system.
const VMIS: usize = 24;

/// Mounts file systems that nobody serves at its arguments, and holds them.
const SERVER: &str = "
import ctypes, os, sys
mount = ctypes.CDLL(None, use_errno=True).mount
for path in sys.argv[1:]:
    os.makedirs(path, exist_ok=True)
    server = os.open('/dev/fuse', os.O_RDWR)
    options = f'fd={server},rootmode=40000,user_id=0,group_id=0'
    if mount(b'dead', path.encode(), b'fuse.dead', 0, options.encode()):
        sys.exit(f'{path}: {os.strerror(ctypes.get_errno())}')
open('/run/dead', 'w').close()
sys.stdin.read()
";

fn missing() -> Option<String> {
    host::without_host().or_else(|| {
        let python = tools::missing(tools::TESTS).contains(&"python3");
        let fuse = std::path::Path::new("/dev/fuse").exists();
        (python || !fuse).then(|| String::from("python3 or /dev/fuse is missing"))
    })
}

fn mount(host: &Host, paths: &str) -> anyhow::Result<()> {
    host.put("/run/dead.py", 0o644, SERVER.as_bytes())?;
    host.sh(&format!(
        "sleep infinity | python3 /run/dead.py {paths} >/run/dead.log 2>&1 & echo $! >/run/dead.pid"
    ))?;
    host.wait_for("test -e /run/dead || ! cat /run/dead.log", PATIENCE)?;
    Ok(())
}

/// VMIs of the namespace `dead`: all have a disk there, and the first its kernel, too.
fn dead(number: usize) -> String {
    let spec = GuestSpec::testguest(&format!("dead{number}"), "tests=none then=idle");
    let manifest = spec.manifest();
    let manifest = manifest.replace("metadata:\n", "metadata:\n  namespace: dead\n");
    let manifest = manifest.replace(
        "emptyDisk:\n      capacity: 16Mi",
        &format!("hostDisk: {{path: {DISKS}/{number}.img, type: Disk}}"),
    );
    let image = "/var/lib/kvmlet/images/default/testguest";
    match number {
        0 => manifest.replace(image, &format!("{IMAGES}/testguest")),
        _ => manifest,
    }
}

fn succeed(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    ensure!(
        output.code == Some(0),
        "kvmctl {arguments}: {output}\n{}",
        agent.log()
    );
    Ok(output.stdout)
}

/// A guest beside those of the dead file system is started and runs.
fn another_runs(agent: &Agent<'_, Host>, name: &str) -> anyhow::Result<()> {
    agent.apply(&GuestSpec::testguest(name, "tests=none then=button").manifest())?;
    agent.wait_for_phase(name, "Running", PATIENCE)
}

/// Ends the agent as its service does, which has to be at once.
fn end(host: &Host) -> anyhow::Result<()> {
    let begun = Instant::now();
    // A shell cannot wait for a process that is not its child, so it looks again.
    host.sh("pid=$(pidof kvmlet) && kill -TERM $pid && while kill -0 $pid 2>/dev/null; do sleep 0.05; done")?;
    let took = begun.elapsed();
    ensure!(took < Duration::from_secs(8), "the agent took {took:?}");
    Ok(())
}

const PHASE: &str = "{.status.phase} {.status.operation.state}";

#[test]
fn a_file_system_that_never_answers_holds_up_nothing_but_its_own_vmis() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let rule = "\\n[[paths.grants]]\\npath = \"/var/lib/kvmlet/images/default/testguest\"\\nnamespaces = [\"*\"]\\n";
    host.sh(&format!("printf '{rule}' >>{}", integration::agent::CONFIG))?;
    mount(&host, &format!("{DISKS} {IMAGES}"))?;
    agent.start()?;
    let all: Vec<String> = (0..VMIS).map(dead).collect();
    agent.apply(&all.join("---\n"))?;
    // The kernel of one, the disks of the others.
    for (number, path) in [(0, IMAGES), (1, DISKS)] {
        let wait = format!(
            "wait --for=condition=Provisioning=Unknown vmi/dead{number} -n dead --timeout 60s"
        );
        succeed(&agent, &wait)?;
        let why = succeed(&agent, &format!("why vmi dead{number} -n dead"))?;
        let says = why.contains("Unknown, FileSystemNotAnswering") && why.contains(path);
        ensure!(says, "{why}\n{}", agent.log());
    }
    let printed = succeed(
        &agent,
        &format!("get vmi dead1 -n dead -o jsonpath='{PHASE}'"),
    )?;
    assert_eq!(printed, "Scheduling Unknown");
    another_runs(&agent, "one")?;
    // Deletion waits for nobody, and another of the same name comes as far.
    succeed(&agent, "delete vmi dead1 -n dead --timeout 20s")?;
    agent.apply(&dead(1))?;

    end(&host)?;
    agent.start().context("the next agent")?;
    assert_eq!(agent.value("one", ".status.phase")?, "Running");
    // What hangs ends when it is asked to. A drain ends guests that run and waits for no other.
    let wait = "wait --for=condition=Provisioning=Unknown vmi/dead2 -n dead --timeout 60s";
    succeed(&agent, wait)?;
    succeed(&agent, "stop vmi dead2 -n dead")?;
    let phase = "kvmctl get vmi dead2 -n dead -o jsonpath={.status.phase}";
    host.wait_for(&format!("{phase} | grep -E 'Succeeded|Failed'"), PATIENCE)?;
    succeed(&agent, "drain node1 --timeout 60s")?;
    agent.wait_for_phase("one", "Succeeded", PATIENCE)?;
    let waits = succeed(&agent, "get vmi dead3 -n dead -o jsonpath={.status.phase}")?;
    assert_eq!(waits, "Scheduling");
    end(&host)
}

#[test]
fn an_agent_whose_directories_do_not_answer_starts_serves_drains_and_ends() -> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let disks = Path::new(DISKS).parent().context("the root of disks")?;
    mount(&host, &format!("{} {MANIFESTS}", disks.display()))?;
    agent.start()?;
    another_runs(&agent, "one")?;
    another_runs(&agent, "two")?;
    host.wait_for(
        &format!("grep -q 'the manifest directory does not answer' {LOG}"),
        PATIENCE,
    )?;
    succeed(&agent, "stop vmi one")?;
    agent.wait_for_phase("one", "Succeeded", PATIENCE)?;
    succeed(&agent, "drain node1 --timeout 60s")?;
    end(&host)?;
    agent.start().context("the next agent")?;
    succeed(&agent, "uncordon node1")?;
    another_runs(&agent, "three")?;
    end(&host)
}
