//! Traces of starts on this machine's own KVM: the real agent starts `testguest`s and exports traces of that over OTLP to
//! a collector of this process. And that no trace says what a Secret holds, nor anything else.

#![forbid(unsafe_code)]

mod collector;
mod secrets;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use integration::agent::{Agent, CONFIG, GuestSpec, LOG, MANIFESTS};
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip_if;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use proto_node::node::ApplyRequest;
use proto_node::node::node_service_client::NodeServiceClient;
use tonic::transport::Endpoint;

use collector::{Collector, ExportedSpan, text};

const PATIENCE: Duration = Duration::from_secs(60);

/// The caller's trace and span, in the words of the W3C and as bytes.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const TRACE_ID: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
const CALLER_ID: u64 = 0xb7ad_6b71_6920_3331;

const ANNOTATION: &str = ".metadata.annotations.kvmlet\\.io/traceparent";

/// A guest with a disk and a NIC, which powers itself off when it is asked to.
fn guest(name: &str) -> String {
    GuestSpec::testguest(name, "tests=none then=button").manifest()
}

/// The agent, which is to tell who listens at `socket`.
fn started<'h>(host: &'h Host, socket: &Path) -> anyhow::Result<Agent<'h, Host>> {
    let agent = Agent::prepare(host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let socket = socket.display();
    host.sh(&format!(
        "printf '[tracing]\\nendpoint = \"unix:{socket}\"\\n[metrics]\\nlisten = \"127.0.0.1:9773\"\\n' >> {CONFIG}"
    ))?;
    agent.start()?;
    Ok(agent)
}

/// Applies a manifest as a caller does that is within a span of its own.
fn apply_within(host: &Host, manifest: &str, traceparent: &str) -> anyhow::Result<()> {
    let socket = host.path("/run/kvmlet/kvmlet.sock");
    let mut request = tonic::Request::new(ApplyRequest {
        object: Some(manifest.parse()?),
        ..ApplyRequest::default()
    });
    let metadata = request.metadata_mut();
    metadata.insert("traceparent", traceparent.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        let channel = endpoint.connect().await.context("no agent")?;
        NodeServiceClient::new(channel).apply(request).await?;
        Ok(())
    })
}

/// The only span of this name.
fn only<'t>(trace: &[&'t ExportedSpan], name: &str) -> anyhow::Result<&'t ExportedSpan> {
    let found: Vec<_> = trace
        .iter()
        .filter(|exported| exported.span.name == name)
        .collect();
    match found.as_slice() {
        [one] => Ok(one),
        found => anyhow::bail!("{} spans {name} in\n{}", found.len(), shown(trace)),
    }
}

/// The name of the span that a span is part of, if it is in the trace.
fn parent<'t>(trace: &[&'t ExportedSpan], exported: &ExportedSpan) -> Option<&'t str> {
    let mut spans = trace.iter();
    let parent = spans.find(|other| other.span.span_id == exported.span.parent_span_id);
    parent.map(|parent| parent.span.name.as_str())
}

fn is_within(inner: &ExportedSpan, outer: &ExportedSpan) -> bool {
    let (inner, outer) = (&inner.span, &outer.span);
    outer.start_time_unix_nano <= inner.start_time_unix_nano
        && inner.start_time_unix_nano <= inner.end_time_unix_nano
        && inner.end_time_unix_nano <= outer.end_time_unix_nano
}

/// A trace as people read it: one line for each span, below what it is part of, with microseconds since its beginning.
fn shown(trace: &[&ExportedSpan]) -> String {
    let first = trace
        .iter()
        .map(|exported| exported.span.start_time_unix_nano)
        .min();
    let mut lines = String::new();
    let mut below: Vec<(usize, &ExportedSpan)> = Vec::new();
    let is_top = |exported: &&&ExportedSpan| parent(trace, exported).is_none();
    below.extend(trace.iter().filter(is_top).map(|exported| (0, *exported)));
    while let Some((depth, exported)) = below.pop() {
        let span = &exported.span;
        let since = |at: u64| (at - first.unwrap_or(at)) / 1000;
        let (begun, ended) = (
            since(span.start_time_unix_nano),
            since(span.end_time_unix_nano),
        );
        lines += &format!("{begun:8} {ended:8} {:1$}{2}\n", "", depth * 2, span.name);
        let mut parts: Vec<_> = trace
            .iter()
            .filter(|part| part.span.parent_span_id == span.span_id)
            .collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.span.start_time_unix_nano));
        below.extend(parts.into_iter().map(|part| (depth + 1, *part)));
    }
    lines
}

fn check_start(trace: &[&ExportedSpan]) -> anyhow::Result<()> {
    for (name, part_of) in [
        ("admission", "kvmlet.node.v1.NodeService/Apply"),
        ("vmi start", "kvmlet.node.v1.NodeService/Apply"),
        ("EnsureRunDir", "reconcile"),
        ("EnsureKernel", "reconcile"),
        ("EnsureDisks", "reconcile"),
        ("EnsureTaps", "reconcile"),
        ("StartVmm", "reconcile"),
        ("ConfigureVmm", "reconcile"),
        ("BootVmm", "reconcile"),
        ("vmm process", "StartVmm"),
        ("vmm build", "ConfigureVmm"),
        ("vmm enter guest", "BootVmm"),
    ] {
        let span = only(trace, name)?;
        assert_eq!(parent(trace, span), Some(part_of), "{name}");
    }
    for name in ["observe", "plan", "store commit"] {
        let mut spans = trace.iter().filter(|exported| exported.span.name == name);
        assert!(
            spans.any(|exported| parent(trace, exported) == Some("reconcile")),
            "{name}"
        );
    }
    let mut rounds = trace
        .iter()
        .filter(|exported| exported.span.name == "reconcile");
    assert!(rounds.all(|exported| parent(trace, exported) == Some("vmi start")));
    Ok(())
}

fn check_times(trace: &[&ExportedSpan]) -> anyhow::Result<()> {
    let start = only(trace, "vmi start")?;
    let call = only(trace, "kvmlet.node.v1.NodeService/Apply")?;
    assert!(is_within(only(trace, "admission")?, call));
    assert!(is_within(
        only(trace, "vmm process")?,
        only(trace, "StartVmm")?
    ));
    assert!(is_within(
        only(trace, "vmm build")?,
        only(trace, "ConfigureVmm")?
    ));
    let entering = only(trace, "vmm enter guest")?;
    let entered = start
        .event("first instruction")
        .context("none was executed")?;
    assert_eq!(Some(entered), entering.event("first-entry"));
    assert!(is_within(entering, start));
    assert_eq!(start.span.end_time_unix_nano, entered);
    let boot = only(trace, "BootVmm")?;
    assert!(boot.span.start_time_unix_nano <= entering.span.start_time_unix_nano);
    let build = only(trace, "vmm build")?;
    for phase in ["configure", "memory-made", "devices-made", "vcpus-made"] {
        assert!(build.event(phase).is_some(), "{phase} of {build:#?}");
    }
    Ok(())
}

#[test]
fn a_start_is_one_trace_from_its_callers_span_to_the_first_instruction() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let socket = host.directory().join("otel.sock");
    let mut collector = Collector::start(&socket)?;
    let agent = started(&host, &socket)?;

    apply_within(&host, &guest("web"), &format!("00-{TRACE}-{CALLER}-01"))?;
    let web = collector.start_of("web")?;
    assert_eq!(web.span.trace_id, TRACE_ID.to_be_bytes());
    assert_eq!(text(&web.resource, "service.name"), Some("kvmlet"));
    assert_eq!(text(&web.resource, "k8s.node.name"), Some("node1"));
    assert_eq!(web.text("k8s.namespace.name"), Some("default"));
    assert_eq!(
        web.text("kubevirt.vmi.uid"),
        Some(agent.value("web", ".metadata.uid")?.as_str())
    );
    let trace = collector.trace(&web.span.trace_id);
    assert_eq!(trace.len(), collector.spans.len(), "there is one trace");
    let call = only(&trace, "kvmlet.node.v1.NodeService/Apply")?;
    assert_eq!(call.span.parent_span_id, CALLER_ID.to_be_bytes());
    assert_eq!(call.span.kind(), SpanKind::Server);
    println!("{}", shown(&trace));
    check_start(&trace)?;
    check_times(&trace)?;
    let annotation = agent.value("web", ANNOTATION)?;
    assert!(
        annotation.starts_with(&format!("00-{TRACE}-")),
        "{annotation}"
    );

    // A refusal is a span with its reason; a guest that is held at its start has none of a first instruction.
    let other =
        format!("00-{TRACE}-{CALLER}-01").replace(TRACE, "11111111111111111111111111111111");
    let broken = guest("web").replace("    memory:\n      guest: 16Mi\n", "");
    assert!(apply_within(&host, &broken, &other).is_err());
    let refused = collector.until(|exported| exported.span.kind() == SpanKind::Server)?;
    assert_eq!(refused.text("error.type"), Some("Invalid"));
    let paused = guest("held").replace("spec:\n", "spec:\n  startStrategy: Paused\n");
    apply_within(&host, &paused, &other)?;
    let held = collector.start_of("held")?;
    assert_eq!(held.event("first instruction"), None);
    assert_eq!(held.span.trace_id, [0x11; 16]);
    let trace = collector.trace(&held.span.trace_id);
    assert_eq!(
        parent(&trace, only(&trace, "vmm build")?),
        Some("ConfigureVmm")
    );

    // A caller that does not record is heeded, too.
    apply_within(&host, &guest("quiet"), &format!("00-{TRACE}-{CALLER}-00"))?;
    assert_eq!(agent.value("quiet", ANNOTATION)?, "");

    // A manifest is a root of its own. The agent exports its last spans before it ends.
    host.put(
        &format!("{MANIFESTS}/file.yaml"),
        0o644,
        guest("file").as_bytes(),
    )?;
    agent.wait_for_phase("file", "Running", PATIENCE)?;
    // A shell cannot wait for a process that is not its child, so it looks again.
    host.sh("pid=$(pidof kvmlet) && kill -TERM $pid && while kill -0 $pid 2>/dev/null; do sleep 0.05; done")?;
    let others = collector.spans.len();
    let file = collector.start_of("file")?;
    let trace = collector.trace(&file.span.trace_id);
    let root = only(&trace, "apply manifest")?;
    assert!(root.span.parent_span_id.is_empty(), "{root:#?}");
    assert_eq!(file.span.parent_span_id, root.span.span_id);
    assert!(file.event("first instruction").is_some());
    assert_eq!(
        trace.len(),
        collector.spans.len() - others,
        "nothing of the quiet one"
    );
    Ok(())
}

#[test]
fn the_next_agent_goes_on_with_the_trace_of_a_start() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let socket = host.directory().join("otel.sock");
    let mut collector = Collector::start(&socket)?;
    let agent = started(&host, &socket)?;
    host.sh("kvmctl cordon node1")?;
    agent.apply(&guest("web"))?;
    host.wait_for(
        "kvmctl wait --for=condition=PodScheduled=False vmi/web --timeout 60s",
        PATIENCE,
    )?;
    // A shell cannot wait for a process that is not its child, so it looks again.
    host.sh("pid=$(pidof kvmlet) && kill -TERM $pid && while kill -0 $pid 2>/dev/null; do sleep 0.05; done")?;
    let first = collector.start_of("web")?;
    assert!(first.is_true("kvmlet.interrupted"), "{first:#?}");
    agent.start()?;
    host.sh("kvmctl uncordon node1")?;
    let second = collector.start_of("web")?;
    assert!(second.event("first instruction").is_some(), "{second:#?}");
    assert!(!second.is_true("kvmlet.interrupted"), "{second:#?}");
    assert_eq!(
        (&first.span.trace_id, &first.span.parent_span_id),
        (&second.span.trace_id, &second.span.parent_span_id)
    );
    Ok(())
}

/// The agent's metrics.
fn scraped(host: &Host) -> anyhow::Result<String> {
    let scrape =
        "exec 3<>/dev/tcp/127.0.0.1/9773; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    let output = host.run(&["bash", "-c", scrape])?;
    anyhow::ensure!(output.stdout.contains("kvmlet_"), "{output}");
    Ok(output.stdout)
}

/// The value of a metric.
fn metric(host: &Host, series: &str) -> anyhow::Result<u64> {
    let text = scraped(host)?;
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    let value = line.with_context(|| format!("no {series} in {text}"))?;
    Ok(value.trim().parse()?)
}

#[test]
fn a_collector_that_is_away_costs_spans_and_nothing_else() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let socket = host.directory().join("otel.sock");
    let agent = started(&host, &socket)?;
    let dropped = "kvmlet_trace_spans_dropped_total{reason=\"ExportFailed\"}";
    let exported = "kvmlet_trace_spans_exported_total";
    assert_eq!((metric(&host, dropped)?, metric(&host, exported)?), (0, 0));
    let mut before = 0;
    for name in ["one", "two"] {
        agent.apply(&guest(name))?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        let until = Instant::now() + PATIENCE;
        let mut now = before;
        while now == before {
            anyhow::ensure!(
                Instant::now() < until,
                "no span is dropped: {}",
                agent.log()
            );
            // Metrics are asked for: nothing reports that one grows.
            std::thread::sleep(Duration::from_millis(100));
            now = metric(&host, dropped)?;
        }
        before = now;
    }
    let count = format!("grep -c 'spans are dropped' {LOG}");
    assert_eq!(host.sh(&count)?.trim(), "1", "{}", agent.log());

    let mut collector = Collector::start(&socket)?;
    agent.apply(&guest("three"))?;
    collector.start_of("three")?;
    host.wait_for(&format!("grep 'takes all spans again' {LOG}"), PATIENCE)?;
    assert!(metric(&host, exported)? > 0, "{}", agent.log());
    assert_eq!(host.sh(&count)?.trim(), "1", "{}", agent.log());
    Ok(())
}
