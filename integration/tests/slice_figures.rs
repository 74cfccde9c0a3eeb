//! What the agent tells of guests: metrics for Prometheus, `kvmctl top` and `kvmctl logs`, with
//! `testguest` on this machine's own KVM.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use integration::agent::{Agent, CONFIG, GuestSpec, LOG};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::{skip_if, tools};

const PATIENCE: Duration = Duration::from_secs(120);
const SCRAPE: &str = "/run/scrape /metrics";

/// Prints what is at a path of the endpoint.
const SCRAPER: &str = r#"#!/usr/bin/perl
use IO::Socket::INET;
my $server = IO::Socket::INET->new(PeerAddr => "127.0.0.1:9773", Timeout => 20) or die "nobody listens";
print $server "GET $ARGV[0] HTTP/1.0\r\n\r\n";
local $/;
my ($head, $body) = split /\r\n\r\n/, <$server>, 2;
$head =~ / 200 / or die $head;
print $body;
"#;

/// Why a scrape cannot be checked, if so.
fn without_promtool() -> Option<String> {
    host::without_host().or_else(|| {
        let there = tools::is_there("promtool") && tools::is_there("/usr/bin/perl");
        (!there).then(|| String::from("promtool (Debian's package prometheus) or perl is missing"))
    })
}

/// The agent in a corner of this machine, with metrics, and `testguest` as an image.
fn started(host: &Host) -> anyhow::Result<Agent<'_, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    host.sh(&format!(
        "printf '[metrics]\\nlisten = \"127.0.0.1:9773\"\\n' >> {CONFIG}"
    ))?;
    host.put("/run/scrape", 0o755, SCRAPER.as_bytes())?;
    host.sh("setsid echo-peer echo0 br0 </dev/null >/run/echo-peer.log 2>&1 &")?;
    agent.start()?;
    Ok(agent)
}

/// The value of the only series whose name and labels begin so.
fn value(text: &str, series: &str) -> anyhow::Result<f64> {
    let found: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with(series))
        .collect();
    let [line] = found.as_slice() else {
        anyhow::bail!("{} series begin with {series}:\n{text}", found.len());
    };
    let (_, value) = line.rsplit_once(' ').unwrap_or_default();
    Ok(value.parse()?)
}

fn promtool_is_content(host: &Host) -> anyhow::Result<()> {
    let check = format!("{SCRAPE} | promtool check metrics");
    let checked = host.run(&["sh", "-c", &check])?;
    assert_eq!(
        (checked.code, checked.to_string().contains("kubevirt")),
        (Some(0), false),
        "{checked}"
    );
    assert!(
        checked.stdout.is_empty() && checked.stderr.is_empty(),
        "{checked}"
    );
    let elsewhere = host.run(&["sh", "-c", "/run/scrape /"])?;
    assert_ne!(elsewhere.code, Some(0), "{elsewhere}");
    Ok(())
}

#[test]
fn prometheus_gets_what_a_guest_did_and_promtool_finds_no_fault() -> anyhow::Result<()> {
    skip_if!(without_promtool(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.apply(&GuestSpec::testguest("probe", "mode=irq then=idle").manifest())?;
    let mut console = agent.console("probe")?;
    console.read_until("TESTGUEST done ", PATIENCE)?;
    let text = host.sh(SCRAPE)?;
    let of_guest = |name: &str, more: &str| {
        let who = "{node=\"node1\",namespace=\"default\",name=\"probe\"";
        value(&text, &format!("{name}{who}{more}"))
    };
    for (name, more) in [
        ("kubevirt_vmi_cpu_usage_seconds_total", "}"),
        ("kubevirt_vmi_memory_resident_bytes", "}"),
        ("kubevirt_vmi_vcpu_seconds_total", ",id=\"0\""),
        ("kubevirt_vmi_storage_iops_read_total", ",drive=\"data\""),
        (
            "kubevirt_vmi_storage_write_traffic_bytes_total",
            ",drive=\"data\"",
        ),
        (
            "kubevirt_vmi_storage_write_times_seconds_total",
            ",drive=\"data\"",
        ),
        (
            "kubevirt_vmi_storage_flush_requests_total",
            ",drive=\"data\"",
        ),
        (
            "kubevirt_vmi_network_receive_packets_total",
            ",interface=\"lan\"",
        ),
        (
            "kubevirt_vmi_network_transmit_bytes_total",
            ",interface=\"lan\"",
        ),
        ("kubevirt_vmi_info", ",phase=\"running\""),
    ] {
        let value = of_guest(name, more)?;
        assert!(value > 0.0, "{name} is {value}\n{text}");
    }
    assert_eq!(
        of_guest("kvmlet_vmm_answers", "}")?.to_bits(),
        1f64.to_bits()
    );
    for series in [
        "kubevirt_vmi_phase_transition_time_from_creation_seconds_count{phase=\"Running\"}",
        "kvmlet_grpc_requests_total{method=\"ApplyObject\",code=\"OK\"}",
        "kvmlet_store_commit_duration_seconds_count",
        "kvmlet_reconcile_duration_seconds_count",
        "kvmlet_action_duration_seconds_count{action=\"StartVmm\"}",
        "kvmlet_info{node=\"node1\"",
        "kvmlet_node_capacity_memory_bytes",
        "kvmlet_node_allocatable_memory_bytes",
        "kvmlet_node_requested_overhead_bytes",
        "kvmlet_node_capacity_cpus",
        "kvmlet_node_allocatable_cpus",
    ] {
        assert!(value(&text, series)? >= 1.0, "{series}\n{text}");
    }

    promtool_is_content(&host)?;
    // The same figures, for people and scripts.
    let top = agent.kvmctl("top -o json --interval 200ms")?;
    let top: serde_json::Value = serde_json::from_str(&top.stdout)?;
    assert_eq!(top["items"][0]["name"], "probe");
    assert_eq!(top["items"][0]["silent"], "");
    assert!(
        top["items"][0]["residentBytes"].as_u64() > Some(1 << 20),
        "{top}"
    );
    Ok(())
}

#[test]
fn a_silent_vmm_does_not_hold_a_scrape_and_keeps_the_kernels_figures() -> anyhow::Result<()> {
    skip_if!(without_promtool(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    for name in ["silent", "talks"] {
        agent.apply(&GuestSpec::testguest(name, "tests=rng then=idle").manifest())?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
    }
    let uid = agent.value("silent", ".metadata.uid")?;
    let pid = host.sh(&format!(
        "sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' /run/kvmlet/host/vmm/{uid}/*/launch.json"
    ))?;
    let pid = pid.trim();
    host.sh(&format!("kill -STOP {pid}"))?;
    let begun = Instant::now();
    let text = host.sh(SCRAPE)?;
    // The bound is the agent's own: a second for the VMM, and what a busy machine adds.
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    let who = |name: &str| format!("{{node=\"node1\",namespace=\"default\",name=\"{name}\"");
    for (name, answers) in [("silent", 0.0), ("talks", 1.0)] {
        let series = format!("kvmlet_vmm_answers{}", who(name));
        assert_eq!(value(&text, &series)?.to_bits(), f64::to_bits(answers));
        let series = format!("kubevirt_vmi_memory_resident_bytes{}", who(name));
        assert!(value(&text, &series)? > 0.0);
    }
    let drives = |name: &str| text.contains(&format!("storage_iops_read_total{}", who(name)));
    assert!(!drives("silent") && drives("talks"), "{text}");
    host.sh(&format!("kill -CONT {pid}"))?;
    Ok(())
}

#[test]
fn a_running_agent_reads_its_configuration_again_and_names_what_has_to_wait() -> anyhow::Result<()>
{
    skip_if!(without_promtool(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let reload = |wanted: &str| -> anyhow::Result<String> {
        host.sh("kill -HUP $(pidof kvmlet)")?;
        host.wait_for(&format!("grep -m 1 '{wanted}' {LOG}"), PATIENCE)
    };
    let manifest = GuestSpec::testguest("web", "")
        .manifest()
        .replace("networkName: lan", "networkName: wan");
    host.put("/run/web.yaml", 0o644, manifest.as_bytes())?;
    let refused = agent.kvmctl("apply --dry-run -f /run/web.yaml")?;
    assert_eq!(refused.code, Some(1), "{refused}");

    host.sh(&format!(
        "cp {CONFIG} /run/good.toml && echo 'nonsense = 1' >> {CONFIG}"
    ))?;
    let said = reload("stays as it was")?;
    assert!(said.contains("nonsense"), "{said}");
    let good = "kvmlet_config_last_reload_successful";
    assert_eq!(
        value(&host.sh(SCRAPE)?, &format!("{good} "))?.to_bits(),
        0f64.to_bits()
    );

    host.sh(&format!(
        "sed -e s/9773/9774/ -e s/node1/node2/ /run/good.toml > {CONFIG} && \
         printf '[networks.wan]\\nbridge = \"br0\"\\n' >> {CONFIG}"
    ))?;
    let said = reload("can only change at a start")?;
    assert!(said.contains("node_name, metrics.listen changed"), "{said}");
    assert_eq!(
        value(&host.sh(SCRAPE)?, &format!("{good} "))?.to_bits(),
        1f64.to_bits()
    );
    let taken = agent.kvmctl("apply --dry-run -f /run/web.yaml")?;
    assert_eq!(taken.code, Some(0), "{taken}");
    Ok(())
}

#[test]
fn the_version_is_reported_with_those_of_vmms() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    for (name, guests) in [("one", "1 guest"), ("two", "2 guests")] {
        let spec = GuestSpec::testguest(name, "tests=none then=idle").without_devices();
        agent.apply(&spec.manifest())?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        // The agent has reached the VMM soon after it saw it.
        let output = format!("Running VMMs: {} ({guests})", env!("CARGO_PKG_VERSION"));
        host.wait_for(&format!("kvmctl version | grep -qxF '{output}'"), PATIENCE)?;
    }
    Ok(())
}

#[test]
fn what_a_guest_printed_is_read_beside_its_console_and_after_its_end() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let none = agent.kvmctl("logs web")?;
    assert_eq!(none.code, Some(1), "{none}");
    let spec = GuestSpec::testguest("web", "tests=none then=tick ticks=100").without_devices();
    agent.apply(&spec.manifest())?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let mut followed = host.exec(&["kvmctl", "logs", "-f", "web"])?;
    followed.close_input()?;
    // Whoever has the console keeps it.
    let mut console = agent.console("web")?;
    console.read_until("TESTGUEST tick count=2", PATIENCE)?;
    let now = agent.kvmctl("logs web")?;
    assert!(now.stdout.contains("TESTGUEST tick count=1"), "{now}");
    let end = agent.kvmctl("logs web --tail-bytes 5")?;
    assert_eq!(end.stdout.len(), 5, "{end}");
    agent.wait_for_phase("web", "Succeeded", PATIENCE)?;
    let followed = followed.wait(PATIENCE)?;
    let after = agent.kvmctl("logs web")?;
    assert_eq!(followed.code, Some(0), "{followed}");
    assert_eq!(followed.stdout, after.stdout, "{followed}\n{after}");
    assert_eq!(
        after.stdout.matches("tick count=3 ms=").count(),
        1,
        "{after}"
    );

    let previous = agent.kvmctl("logs --previous web")?;
    assert_eq!(previous.code, Some(1), "{previous}");
    assert!(previous.stderr.contains("(NotFound)"), "{previous}");
    agent.kvmctl("delete vmi web --grace-period 0")?;
    let gone = agent.kvmctl("logs --previous web")?;
    assert_eq!(gone.stdout, after.stdout, "{gone}");
    let outside = agent.kvmctl("logs --previous ../default/web")?;
    assert_eq!(
        (outside.code, outside.stdout.as_str()),
        (Some(1), ""),
        "{outside}"
    );
    let spec = GuestSpec::testguest("web", "tests=none then=idle").without_devices();
    agent.apply(&spec.manifest())?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let previous = agent.kvmctl("logs --previous web")?;
    assert_eq!(previous.stdout, after.stdout, "{previous}");
    Ok(())
}
