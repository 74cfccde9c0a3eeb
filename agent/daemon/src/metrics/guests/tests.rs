//! What a scrape says of guests, as text.

use std::time::Duration;

use agent_domain::Vmi;
use agent_host::{
    DhcpUsage, DiskUsage, InterfaceUsage, MachineUsage, NicUsage, ProcessUsage, RefusedUsage,
    RequestUsage, TrafficUsage, Usage, VcpuUsage, VmmReply,
};
use agent_plan::{GuestAgentReport, GuestOs, Record, Timestamp};
use prometheus_client::registry::Registry;
use proto_node::vmi::VirtualMachineInstance;

use super::super::text::{Format, render};
use super::*;
use crate::object;

const MANIFEST: &str = r#"
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: web
  namespace: default
  uid: u1
  annotations: {vm.kubevirt.io/os: 'a "quoted" one'}
  labels: {app: web, kubevirt.io/size: small, kubevirt.io-size: large}
spec:
  evictionStrategy: LiveMigrate
  domain:
    memory: {guest: 64Mi}
    firmware: {kernelBoot: {kernelArgs: "", container: {image: "dir:/images/a", kernelPath: /k}}}
    devices:
      disks: [{name: data, disk: {bus: virtio}}]
      interfaces: [{name: nic, bridge: {}}]
  networks: [{name: nic, multus: {networkName: lan}}]
  volumes: [{name: data, emptyDisk: {capacity: 1Mi}}]
"#;

fn guest(usage: Option<Usage>) -> Guest {
    let object: VirtualMachineInstance = MANIFEST.parse().unwrap();
    let vmi = Vmi::restore(object.clone()).unwrap().vmi;
    let record = Record::new(object::vmi_id(&object::metadata(&object)), Timestamp(0));
    Guest {
        object,
        record,
        vmi,
        usage,
    }
}

fn usage() -> Usage {
    let requests = RequestUsage {
        requests: 3,
        bytes: 1536,
        time_ns: 2_500_000_000,
    };
    Usage {
        taken_at_ns: 1,
        process: Some(ProcessUsage {
            user_ns: 1_500_000_000,
            system_ns: 500_000_000,
            resident_bytes: 4096,
        }),
        vcpus: vec![VcpuUsage {
            index: 0,
            running_ns: 250_000_000,
            delayed_ns: None,
        }],
        interfaces: vec![InterfaceUsage {
            name: String::from("nic"),
            receive: TrafficUsage {
                bytes: 77,
                ..TrafficUsage::default()
            },
            transmit: TrafficUsage::default(),
        }],
        refused: vec![RefusedUsage {
            name: String::from("nic"),
            frames: 5,
        }],
        dhcp: Some(DhcpUsage {
            name: String::from("nic"),
            malformed: 4,
            excess: 6,
        }),
        vmm: VmmReply::Answer(Box::new(MachineUsage {
            release: String::from("0.0.1"),
            disks: vec![DiskUsage {
                name: String::from("data"),
                reads: requests,
                ..DiskUsage::default()
            }],
            nics: vec![NicUsage {
                name: String::from("nic"),
                tap_errors: 3,
                ..NicUsage::default()
            }],
            balloon_bytes: Some(16 << 20),
            route_failures: 2,
            ..MachineUsage::default()
        })),
    }
}

fn text(guests: Vec<Guest>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(GuestMetrics {
        figures: Arc::new(Figures {
            guests,
            unreadable: 0,
            took: Duration::ZERO,
        }),
        node: String::from("node1"),
    }));
    render(Format::Prometheus, &[&registry]).unwrap()
}

const WHO: &str = r#"node="node1",namespace="default",name="web""#;
const LABELS: &str =
    r#"kubernetes_vmi_label_app="web",kubernetes_vmi_label_kubevirt_io_size="large""#;

fn assert_line(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

#[test]
fn figures_have_kubevirts_names_and_labels() {
    let text = text(vec![guest(Some(usage()))]);
    for (name, more, value) in [
        ("cpu_usage_seconds_total", "", "2.0"),
        ("memory_resident_bytes", "", "4096.0"),
        ("memory_domain_bytes", "", "67108864.0"),
        ("memory_actual_balloon_bytes", "", "50331648.0"),
        ("vcpu_seconds_total", r#",id="0",state="running""#, "0.25"),
        ("storage_iops_read_total", r#",drive="data""#, "3.0"),
        (
            "storage_read_traffic_bytes_total",
            r#",drive="data""#,
            "1536.0",
        ),
        (
            "storage_read_times_seconds_total",
            r#",drive="data""#,
            "2.5",
        ),
        ("network_receive_bytes_total", r#",interface="nic""#, "77.0"),
    ] {
        let line = format!("kubevirt_vmi_{name}{{{WHO},{LABELS}{more}}} {value}");
        assert_line(&text, &line);
    }
    let more = r#",interface="nic""#;
    let line = format!("kvmlet_vmi_network_tap_errors_total{{{WHO},{LABELS}{more}}} 3.0");
    assert_line(&text, &line);
    let line = format!("kvmlet_vmi_interrupt_route_failures_total{{{WHO},{LABELS}}} 2.0");
    assert_line(&text, &line);
    let line = format!("kvmlet_vmi_network_refused_frames_total{{{WHO},{LABELS}{more}}} 5.0");
    assert_line(&text, &line);
    for (reason, count) in [("malformed", 4), ("excess", 6)] {
        let line = format!(
            "kvmlet_vmi_dhcp_requests_dropped_total{{{WHO},{LABELS}{more},reason=\"{reason}\"}} {count}.0"
        );
        assert_line(&text, &line);
    }
    assert!(!text.contains("vcpu_delay"), "{text}");
}

#[test]
fn a_vmi_is_described_whether_it_runs_or_not() {
    let text = text(vec![guest(None)]);
    assert_line(
        &text,
        &format!(
            r#"kubevirt_vmi_info{{{WHO},phase="pending",os="a \"quoted\" one",guest_os_machine="q35",evictable="false",outdated="false"}} 1.0"#
        ),
    );
    assert_line(&text, &format!("kubevirt_vmi_non_evictable{{{WHO}}} 1.0"));
    for absent in ["cpu_usage", "resident", "storage", "kvmlet_vmm_answers"] {
        assert!(!text.contains(absent), "{absent}\n{text}");
    }
}

#[test]
fn what_a_guest_tells_of_its_system_is_a_label_whatever_it_says() {
    let mut guest = guest(None);
    guest.record.report.guest = Some(GuestAgentReport {
        answers: true,
        os: Some(GuestOs {
            name: String::from("Debian \"12\"\\"),
            machine: String::from("x86_64"),
            ..GuestOs::default()
        }),
        interfaces: Vec::new(),
    });
    let text = text(vec![guest]);
    let labels =
        r#"guest_os_machine="q35",guest_os_arch="x86_64",guest_os_name="Debian \"12\"\\","#;
    assert!(text.contains(labels), "{text}");
}

#[test]
fn a_silent_vmm_leaves_what_the_kernel_counts() {
    let silent = Usage {
        vmm: VmmReply::Silent(String::from("it hangs")),
        ..usage()
    };
    let text = text(vec![guest(Some(silent))]);
    assert_line(&text, &format!("kvmlet_vmm_answers{{{WHO},{LABELS}}} 0.0"));
    assert!(
        text.contains("kubevirt_vmi_cpu_usage_seconds_total{"),
        "{text}"
    );
    assert!(!text.contains("kubevirt_vmi_storage"), "{text}");
}

#[test]
fn a_vmm_of_another_release_is_outdated() {
    let text = text(vec![guest(Some(usage()))]);
    assert!(text.contains(r#"outdated="true""#), "{text}");
    assert_line(&text, "kubevirt_vmi_number_of_outdated{} 1.0");
}
