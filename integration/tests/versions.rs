//! Guests of a version that the agent does not know, on this machine's own KVM.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use proto_vmm::payload::{PayloadKind, encode};
use proto_vmm::v1::{Frame, Hello, frame::Body};

const PATIENCE: Duration = Duration::from_secs(120);

/// The agent ends without a chance to put anything in order, and comes again.
fn restart(agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    agent.kill()?;
    agent.start()
}

/// The processes of all VMMs, in order.
fn vmms(host: &Host) -> anyhow::Result<Vec<u32>> {
    let mut pids = host
        .sh("pidof kvmlet-vmm")?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<u32>, _>>()?;
    pids.sort_unstable();
    Ok(pids)
}

/// Waits until a VMI is as ready as `status` says.
fn wait_until_ready_is(host: &Host, name: &str, status: &str) -> anyhow::Result<()> {
    let path = r#".status.conditions[?(@.type=="Ready")].status"#;
    let script = format!("test \"$(kvmctl get vmi {name} -o 'jsonpath={{{path}}}')\" = {status}");
    host.wait_for(&script, PATIENCE).map(drop)
}

/// Fails unless a guest runs and goes on to count beyond `least` without beginning again; says how far.
fn counted(host: &Host, agent: &Agent<'_, Host>, name: &str, least: u64) -> anyhow::Result<u64> {
    agent.wait_for_phase(name, "Running", PATIENCE)?;
    wait_until_ready_is(host, name, "True")?;
    let mut console = agent.console(name)?;
    console.read_until(&format!("TESTGUEST tick count={} ", least + 3), PATIENCE)?;
    let printed = console.printed();
    // The last line may not be whole yet.
    let (whole, _) = printed.rsplit_once('\n').unwrap_or_default();
    let counts: Vec<u64> = whole
        .lines()
        .filter_map(|line| line.trim_end().strip_prefix("TESTGUEST tick count="))
        .filter_map(|rest| rest.split(' ').next()?.parse().ok())
        .collect();
    assert!(
        counts.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{name} did not count on: {counts:?}"
    );
    console.kill()?;
    Ok(counts.last().copied().unwrap_or_default())
}

/// A guest that counts on its console.
fn counting(name: &str) -> GuestSpec {
    GuestSpec::testguest(name, "tests=none then=tick")
}

/// Answers at a VMM's control socket as a VMM of the far future does.
fn speak_newer_protocol(listener: UnixListener) {
    let hello = Hello {
        protocol_min: 7,
        protocol_max: 9,
        version: "9.0.0".to_owned(),
        ..Hello::default()
    };
    let frame = Frame {
        body: Some(Body::Hello(hello)),
    };
    let bytes = proto_vmm::encode_frame(&frame, 0).expect("a frame");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // The agent hangs up when it has read that.
            if stream.write_all(&bytes).is_ok() {
                drop(stream.read(&mut [0; 64]));
            }
        }
    });
}

#[test]
fn a_guest_whose_vmm_is_of_an_unknown_version_is_left_running_and_a_condition_says_so()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    agent.apply(&counting("future").without_devices().manifest())?;
    let before = counted(&host, &agent, "future", 0)?;
    let pids = vmms(&host)?;
    let uid = agent.value("future", ".metadata.uid")?;
    let (run, state) = (
        format!("/run/kvmlet/host/vmm/{uid}/1"),
        format!("/var/lib/kvmlet/host/vmm/{uid}/1"),
    );

    host.sh(&format!(
        "mv {run}/control.sock {run}/kept.sock && cp {state}/exit-record {state}/kept"
    ))?;
    let socket = host.path(&format!("{run}/control.sock"));
    speak_newer_protocol(UnixListener::bind(&socket)?);
    let record = encode(PayloadKind::EXIT_RECORD, 99, b"what only the future knows");
    std::fs::write(host.path(&format!("{state}/exit-record")), record)?;
    restart(&agent)?;
    wait_until_ready_is(&host, "future", "Unknown")?;
    let message = r#".status.conditions[?(@.type=="Ready")].message"#;
    let message = agent.value("future", message)?;
    assert_eq!(
        message,
        "the VMM 9.0.0 speaks protocol versions 7 to 9, this agent 1"
    );
    assert_eq!(agent.value("future", ".status.phase")?, "Running");
    assert_eq!(vmms(&host)?, pids);

    host.sh(&format!(
        "mv {run}/kept.sock {run}/control.sock && mv {state}/kept {state}/exit-record"
    ))?;
    restart(&agent)?;
    counted(&host, &agent, "future", before)?;
    assert_eq!(vmms(&host)?, pids);
    Ok(())
}
