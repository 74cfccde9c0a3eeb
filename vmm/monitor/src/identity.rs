//! Who this process is.

use proto_vmm::v1;

/// What does not change during the life of the process. Read at start: nothing is opened later.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The kernel's random boot id; empty when `/proc` is not there.
    pub boot_id: String,
    /// Process id in our own pid namespace.
    pub pid: u32,
    /// Start time in clock ticks after boot; 0 when `/proc` is not there.
    pub start_time_ticks: u64,
}

impl Identity {
    /// Asks the kernel. In a root without `/proc` the agent's own view has to do.
    pub fn of_this_process() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default();
        let start_time_ticks = std::fs::read_to_string("/proc/self/stat")
            .ok()
            .and_then(|stat| start_time(&stat))
            .unwrap_or_default();
        Self {
            boot_id,
            pid: std::process::id(),
            start_time_ticks,
        }
    }

    /// As a message, with the guest's identity.
    pub fn to_wire(&self, vmi_uid: &str, incarnation: u64) -> v1::Identity {
        v1::Identity {
            boot_id: self.boot_id.clone(),
            pid: self.pid,
            start_time_ticks: self.start_time_ticks,
            vmi_uid: vmi_uid.to_owned(),
            incarnation,
        }
    }
}

/// Field 22 of `/proc/PID/stat` (proc(5)). The name in field 2 may hold blanks and brackets.
fn start_time(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_process_name_does_not_shift_fields() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn this_process_has_an_identity() {
        let identity = Identity::of_this_process();
        assert_eq!(identity.boot_id.len(), 36);
        assert_ne!(identity.start_time_ticks, 0);
    }
}
