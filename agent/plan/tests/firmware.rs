//! A guest that firmware boots, and whose firmware finds nothing.

use agent_plan::{
    BootId, Enforcement, Launch, MachineObserved, MachineState, Millis, Observation, Observed,
    Plan, Record, StandsStill, Timestamp, VmiId, VmmIdentity, VmmObserved, Wanted, plan,
};

/// A guest that runs.
struct Guest {
    wanted: Wanted,
    record: Record,
    seen: Observed,
    now: Timestamp,
}

impl Guest {
    fn new() -> Self {
        let boot_id = BootId(String::from("boot-1"));
        let identity = VmmIdentity {
            boot_id: boot_id.clone(),
            pid: 100,
            start_time_ticks: 1,
        };
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(0));
        let launch = Launch {
            boot_id: boot_id.clone(),
            intended_at: Timestamp(0),
            identity: Some(identity.clone()),
            boot_intended_at: Some(Timestamp(0)),
            running_at: Some(Timestamp(0)),
        };
        record.launches.begin(1, launch);
        let vmm = VmmObserved {
            incarnation: 1,
            identity,
            machine: Observation::Absent,
            enforcement: Observation::Present(Enforcement::Enforced),
        };
        let mut guest = Self {
            wanted: Wanted {
                firmware: true,
                ..Wanted::default()
            },
            record,
            seen: Observed {
                boot_id: Observation::Present(boot_id),
                vmms: Observation::Present(vec![vmm]),
                exit: Observation::Absent,
                holdings: Observation::Absent,
                stands_still: Observation::Absent,
                operation: Observation::Absent,
            },
            now: Timestamp(1000),
        };
        guest.runs_after(0);
        guest.round();
        guest
    }

    /// The guest runs, after so many resets.
    fn runs_after(&mut self, resets: u64) {
        if let Observation::Present(vmms) = &mut self.seen.vmms {
            for vmm in vmms {
                vmm.machine = Observation::Present(MachineObserved {
                    state: MachineState::Running,
                    resets,
                    pause: None,
                    sync_failures: Vec::new(),
                    links_down: None,
                });
            }
        }
    }

    fn reports_no_boot_device(&mut self, at: u64) {
        let words = "No bootable device.";
        self.seen.stands_still = Observation::Present(StandsStill { words, at });
    }

    fn plan(&self) -> Plan {
        plan(&self.wanted, &self.record, &self.seen, self.now)
    }

    /// Plans, keeps the record, and returns how often the event was sent.
    fn round(&mut self) -> usize {
        let planned = self.plan();
        assert!(planned.actions.is_empty(), "{:?}", planned.actions);
        self.record = planned.record;
        let events = planned.events.iter();
        let sent = events.filter(|event| event.reason == "NoBootableDevice");
        sent.inspect(|event| assert!(event.message.contains("\"No bootable device.\"")))
            .count()
    }

    /// Time to the next poll.
    fn next_poll(&self) -> Option<i64> {
        self.plan().wake_at.map(|at| at.since(self.now).0)
    }
}

#[test]
fn firmware_that_has_nothing_to_boot_makes_one_event_and_the_guest_runs_on() {
    let mut guest = Guest::new();
    assert_eq!(guest.round(), 0);
    guest.reports_no_boot_device(70);
    assert_eq!(guest.round(), 1);
    assert_eq!(guest.round(), 0);
    assert_eq!(guest.record.report.end, None);
    // It was reset: the old words are there until firmware speaks, then new ones.
    guest.runs_after(1);
    assert_eq!(guest.round(), 0);
    guest.reports_no_boot_device(150);
    assert_eq!(guest.round(), 1);
}

#[test]
fn a_kernel_that_says_the_same_is_none_of_firmwares_business() {
    let mut guest = Guest::new();
    guest.wanted.firmware = false;
    guest.record.report.firmware = None;
    guest.reports_no_boot_device(70);
    assert_eq!(guest.round(), 0);
    assert_eq!(guest.record.report.firmware, None);
    assert_eq!(guest.next_poll(), None);
}

#[test]
fn the_console_is_polled_often_at_first_and_after_a_reset() {
    let mut guest = Guest::new();
    let begun = guest.now;
    for (after, pause) in [
        (0, Some(1000)),
        (4, Some(1000)),
        (60, Some(15_000)),
        (240, None),
    ] {
        guest.now = begun.plus(Millis::from_secs(after));
        assert_eq!(guest.next_poll(), pause, "after {after} s");
    }
    guest.runs_after(1);
    assert_eq!(guest.next_poll(), Some(1000));
}
