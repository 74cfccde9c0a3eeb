//! From counts at two moments to what is used in between.

use std::collections::BTreeMap;

use proto_node::node::GuestUsage;
use serde_json::{Value, json};

const NS_PER_S: f64 = 1e9;

/// What one guest uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub namespace: String,
    pub name: String,
    /// CPUs of the node.
    pub cpus: f64,
    pub vcpus: u32,
    pub resident_bytes: Option<u64>,
    pub memory_bytes: u64,
    /// A second each.
    pub read_bytes: f64,
    pub write_bytes: f64,
    pub requests: f64,
    pub receive_bytes: f64,
    pub transmit_bytes: f64,
    /// Why some of it is not known.
    pub silent: String,
    /// State of the VirtualMachine that the row is of, if it is of one.
    pub state: Option<String>,
    /// A machine may have no guest, which then uses nothing.
    pub has_guest: bool,
}

/// Sums of one guest's counts.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    cpu: u64,
    read: u64,
    write: u64,
    requests: u64,
    receive: u64,
    transmit: u64,
}

impl Sums {
    fn of(usage: &GuestUsage) -> Self {
        let mut sums = Self {
            cpu: usage.cpu_ns.unwrap_or(0),
            ..Self::default()
        };
        for disk in &usage.disks {
            sums.read = sums.read.saturating_add(disk.read_bytes);
            sums.write = sums.write.saturating_add(disk.write_bytes);
            let requests = disk.read_requests.saturating_add(disk.write_requests);
            sums.requests = sums.requests.saturating_add(requests);
        }
        for nic in &usage.interfaces {
            sums.receive = sums.receive.saturating_add(nic.receive_bytes);
            sums.transmit = sums.transmit.saturating_add(nic.transmit_bytes);
        }
        sums
    }
}

/// What guests used between two reads. One that is new, or whose VMM is another, has no rates yet.
pub fn rows(before: &[GuestUsage], now: &[GuestUsage]) -> Vec<Row> {
    let before: BTreeMap<&str, &GuestUsage> = before
        .iter()
        .map(|usage| (usage.uid.as_str(), usage))
        .collect();
    now.iter()
        .map(|usage| row(before.get(usage.uid.as_str()).copied(), usage))
        .collect()
}

fn row(before: Option<&GuestUsage>, now: &GuestUsage) -> Row {
    let sums = Sums::of(now);
    let (then, seconds) = match before {
        Some(before) => (
            Sums::of(before),
            double(now.taken_at_ns.saturating_sub(before.taken_at_ns)) / NS_PER_S,
        ),
        None => (sums, 0.0),
    };
    // A count that went back is that of another VMM.
    let rate = |now: u64, then: u64| match now.checked_sub(then) {
        Some(more) if seconds > 0.0 => double(more) / seconds,
        _ => 0.0,
    };
    // Counts that were unknown before have not grown from 0.
    let disk = |now: u64, then: u64| match before {
        Some(before) if before.silent.is_empty() => rate(now, then),
        _ => 0.0,
    };
    Row {
        namespace: now.namespace.clone(),
        name: now.name.clone(),
        cpus: match before.and_then(|before| before.cpu_ns) {
            Some(before) => rate(sums.cpu, before) / NS_PER_S,
            None => 0.0,
        },
        vcpus: now.vcpus,
        resident_bytes: now.resident_bytes,
        memory_bytes: now.memory_bytes,
        read_bytes: disk(sums.read, then.read),
        write_bytes: disk(sums.write, then.write),
        requests: disk(sums.requests, then.requests),
        receive_bytes: rate(sums.receive, then.receive),
        transmit_bytes: rate(sums.transmit, then.transmit),
        silent: now.silent.clone(),
        state: None,
        has_guest: true,
    }
}

impl Row {
    /// Names of the columns of VMIs, or of machines, which have their state, too.
    pub fn head(of_machines: bool) -> Vec<String> {
        let names = [
            "NAME", "CPU", "VCPUS", "RESIDENT", "MEMORY", "READ/S", "WRITE/S", "IOPS", "RX/S",
            "TX/S",
        ];
        let mut names = names.map(str::to_owned).to_vec();
        if of_machines {
            names.insert(1, "STATUS".to_owned());
        }
        names
    }

    /// The columns.
    pub fn cells(&self) -> Vec<String> {
        let disk = |rate: f64| {
            if self.silent.is_empty() {
                bytes(rate)
            } else {
                "?".to_owned()
            }
        };
        let mut cells = vec![
            self.name.clone(),
            format!("{:.0}m", self.cpus * 1000.0),
            self.vcpus.to_string(),
            self.resident_bytes
                .map_or_else(|| "?".to_owned(), |resident| bytes(double(resident))),
            bytes(double(self.memory_bytes)),
            disk(self.read_bytes),
            disk(self.write_bytes),
            if self.silent.is_empty() {
                format!("{:.0}", self.requests)
            } else {
                "?".to_owned()
            },
            bytes(self.receive_bytes),
            bytes(self.transmit_bytes),
        ];
        if !self.has_guest {
            cells
                .iter_mut()
                .skip(1)
                .for_each(|cell| "-".clone_into(cell));
        }
        if let Some(state) = &self.state {
            cells.insert(1, state.clone());
        }
        cells
    }

    /// For scripts.
    pub fn to_json(&self) -> Value {
        if !self.has_guest {
            return json!({
                "namespace": self.namespace, "name": self.name, "printableStatus": self.state,
            });
        }
        let mut row = json!({
            "namespace": self.namespace,
            "name": self.name,
            "cpus": self.cpus,
            "vcpus": self.vcpus,
            "residentBytes": self.resident_bytes,
            "memoryBytes": self.memory_bytes,
            "readBytesPerSecond": self.read_bytes,
            "writeBytesPerSecond": self.write_bytes,
            "requestsPerSecond": self.requests,
            "receiveBytesPerSecond": self.receive_bytes,
            "transmitBytesPerSecond": self.transmit_bytes,
            "silent": self.silent,
        });
        if let Some(state) = &self.state {
            row["printableStatus"] = state.as_str().into();
        }
        row
    }
}

/// Bytes as kubectl writes quantities, with three digits or four.
fn bytes(count: f64) -> String {
    let mut count = count;
    for unit in ["", "Ki", "Mi", "Gi"] {
        if count < 1024.0 {
            return if count < 10.0 && !unit.is_empty() {
                format!("{count:.1}{unit}")
            } else {
                format!("{count:.0}{unit}")
            };
        }
        count /= 1024.0;
    }
    format!("{count:.1}Ti")
}

#[allow(
    clippy::cast_precision_loss,
    reason = "rates that people read are not exact"
)]
fn double(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use proto_node::node::{DiskUsage, InterfaceUsage};

    use super::*;

    fn usage(at_s: u64, cpu_ms: u64, read: u64) -> GuestUsage {
        GuestUsage {
            name: "web".to_owned(),
            uid: "u1".to_owned(),
            taken_at_ns: at_s * 1_000_000_000,
            cpu_ns: Some(cpu_ms * 1_000_000),
            vcpus: 2,
            memory_bytes: 512 << 20,
            resident_bytes: Some(100 << 20),
            disks: vec![DiskUsage {
                read_bytes: read,
                read_requests: read / 512,
                ..DiskUsage::default()
            }],
            interfaces: vec![InterfaceUsage {
                receive_bytes: 7,
                ..InterfaceUsage::default()
            }],
            ..GuestUsage::default()
        }
    }

    #[test]
    fn rates_are_what_was_used_in_between() {
        let rows = rows(&[usage(10, 500, 512)], &[usage(12, 3500, 20_992)]);
        let wanted = [
            "web", "1500m", "2", "100Mi", "512Mi", "10Ki", "0", "20", "0", "0",
        ];
        assert_eq!(rows[0].cells(), wanted);
        assert_eq!(rows[0].to_json()["cpus"], 1.5);
    }

    #[test]
    fn a_guest_that_is_new_or_another_has_no_rates_yet() {
        for before in [vec![], vec![usage(10, 9000, 9_000_000)]] {
            let rows = rows(&before, &[usage(12, 3500, 20_992)]);
            assert_eq!((rows[0].cpus, rows[0].read_bytes), (0.0, 0.0));
        }
    }

    #[test]
    fn what_a_silent_vmm_does_not_tell_is_not_called_nothing() {
        let mut silent = usage(12, 3500, 0);
        silent.silent = "late".to_owned();
        silent.disks.clear();
        let cells = rows(&[usage(10, 500, 512)], &[silent]).remove(0).cells();
        assert_eq!(cells[1], "1500m");
        assert_eq!(cells[5..8], ["?", "?", "?"]);
    }
}
