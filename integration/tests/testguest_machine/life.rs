//! What ends a guest, and what its watchdog and panic devices lead to.

use super::*;
use vmm_machine::{FixedDevices, LastReset, LifeConfig, PanicPolicy, ResetSource, WatchdogAction};

/// A machine with `devices` on bus 0 whose guest may start again.
fn boot(command_line: &str, devices: Vec<DeviceConfig>, life: LifeConfig) -> Machine {
    boot_plan(Plan {
        life,
        ..plan(command_line, devices)
    })
}

fn boot_plan(plan: Plan<'_>) -> Machine {
    let plan = Plan {
        reboot_policy: RebootPolicy::Restart,
        ..plan
    };
    let machine = Machine::build(plan, Arc::default(), None);
    machine.handle.request(1, Request::Boot);
    machine
}

fn watchdog(action: WatchdogAction) -> Vec<DeviceConfig> {
    vec![DeviceConfig::I6300Esb { action }]
}

const ARMED: &str = "tests=none then=watchdog";

/// All changes that the machine reported until `last`, which comes next or later.
fn changes_until(machine: &Machine, last: Change) -> Vec<Change> {
    let mut changes = Vec::new();
    while changes.last() != Some(&last) {
        match machine.changes.recv_timeout(PATIENCE) {
            Ok(change) => changes.push(change),
            Err(error) => panic!("{error} after {changes:?}; {}", machine.text()),
        }
    }
    changes
}

fn end_of(status: &Status) -> EndReason {
    status.end.as_ref().expect("an end").reason
}

#[test]
fn a_watchdog_that_runs_out_ends_the_guest_with_a_reason_of_its_own() {
    skip_if!(without_machine());
    let devices = watchdog(WatchdogAction::PowerOff);
    let (status, results) = boot(ARMED, devices, LifeConfig::default()).ended();
    assert_eq!(end_of(&status), EndReason::Watchdog, "{results:#?}");
    assert_eq!((status.watchdog_expirations, status.resets), (1, 0));
}

#[test]
fn a_watchdog_that_runs_out_resets_the_guest_which_learns_of_it() {
    skip_if!(without_machine());
    let machine = boot(
        ARMED,
        watchdog(WatchdogAction::Reset),
        LifeConfig::default(),
    );
    let cause = ResetSource::Watchdog;
    let changes = changes_until(&machine, Change::Reset(Some(cause)));
    let expired = Change::WatchdogExpired(WatchdogAction::Reset);
    assert!(changes.contains(&expired), "{changes:?}");
    let (status, results) = machine.ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
    let lines = results.of("watchdog");
    assert_eq!(lines.last(), Some(&"ok timed_out=1 kept=0"), "{lines:?}");
    assert_eq!((status.resets, status.watchdog_expirations), (1, 1));
    assert_eq!(status.last_reset, LastReset::Guest(cause));
}

#[test]
fn a_watchdogs_reset_ends_a_guest_that_may_not_start_again() {
    skip_if!(without_machine());
    let devices = watchdog(WatchdogAction::Reset);
    let (status, results) = Machine::boot(ARMED, KernelEntry::Default, devices).ended();
    assert_eq!(end_of(&status), EndReason::Watchdog, "{results:#?}");
}

#[test]
fn a_watchdog_that_runs_out_presses_the_power_button() {
    skip_if!(without_machine());
    let devices = watchdog(WatchdogAction::Shutdown);
    let (status, results) = boot(ARMED, devices, LifeConfig::default()).ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
    assert_eq!(results.one("power-button"), "ok");
    assert_eq!(status.watchdog_expirations, 1);
}

#[test]
fn a_watchdog_that_runs_out_pauses_the_guest_or_is_only_reported() {
    skip_if!(without_machine());
    for action in [WatchdogAction::Pause, WatchdogAction::None] {
        let machine = boot(ARMED, watchdog(action), LifeConfig::default());
        changes_until(&machine, Change::WatchdogExpired(action));
        if action == WatchdogAction::Pause {
            changes_until(&machine, Change::Paused);
            let reason = machine.handle.status().pause_reason;
            assert_eq!(reason, Some(PauseReason::Watchdog));
            machine.handle.request(2, Request::Resume);
        }
        // It runs: the button is obeyed.
        machine.handle.request(3, Request::PowerButton);
        let (status, results) = machine.ended();
        assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
        assert_eq!(status.watchdog_expirations, 1);
    }
}

#[test]
fn a_watchdog_moves_with_its_guest_and_runs_out_there() {
    skip_if!(without_machine());
    let action = WatchdogAction::PowerOff;
    let mut machine = boot(ARMED, watchdog(action), LifeConfig::default());
    machine.wait_for("watchdog armed");
    let mut moves = 0;
    let ended = loop {
        match machine.moved(ARMED, watchdog(action)) {
            Ok(next) => machine = next,
            Err(ended) => break ended,
        }
        moves += 1;
        // Some time passes in each, and all of it together is enough.
        std::thread::sleep(Duration::from_millis(30));
    };
    let (status, results) = ended.ended();
    assert_eq!(end_of(&status), EndReason::Watchdog, "{results:#?}");
    println!("moved {moves} times");
}

#[test]
fn a_panic_ends_the_guest_whichever_device_reports_it() {
    skip_if!(without_machine());
    for place in ["port", "pci"] {
        let command_line = format!("tests=none then=pvpanic-{place}");
        let machine = boot_plan(Plan {
            fixed: FixedDevices::ALL,
            ..plan(&command_line, vec![DeviceConfig::Pvpanic])
        });
        let (status, results) = machine.ended();
        assert_eq!(end_of(&status), EndReason::Panicked, "{results:#?}");
        assert_eq!(results.one("pvpanic"), "ok supported=0x7");
        assert!(results.of("pvpanic-after").is_empty(), "{results:#?}");
        assert_eq!(status.panics, 1);
    }
}

#[test]
fn a_guest_without_panic_device_reads_ones_at_its_port_and_is_not_heard() {
    skip_if!(without_machine());
    let command_line = "tests=none then=pvpanic-port";
    let (status, results) = boot(command_line, vec![], LifeConfig::default()).ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff);
    assert_eq!(results.one("pvpanic"), "ok supported=0xff");
}

#[test]
fn a_panic_pauses_the_guest_where_the_policy_says_so() {
    skip_if!(without_machine());
    let life = LifeConfig {
        on_panic: PanicPolicy::Pause,
        ..LifeConfig::default()
    };
    let command_line = "tests=none then=pvpanic-pci";
    let machine = boot(command_line, vec![DeviceConfig::Pvpanic], life);
    let changes = changes_until(&machine, Change::Paused);
    assert!(changes.contains(&Change::Panicked), "{changes:?}");
    let reason = machine.handle.status().pause_reason;
    assert_eq!(reason, Some(PauseReason::Panicked));
    machine.handle.request(2, Request::Resume);
    let (status, results) = machine.ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
    assert_eq!(results.one("pvpanic-after"), "ok");
}

#[test]
fn a_panic_resets_the_guest_where_the_policy_says_so() {
    skip_if!(without_machine());
    let life = LifeConfig {
        on_panic: PanicPolicy::Restart,
        ..LifeConfig::default()
    };
    let command_line = "tests=none then=pvpanic-pci";
    let machine = boot(command_line, vec![DeviceConfig::Pvpanic], life);
    for _ in 0..2 {
        changes_until(&machine, Change::Reset(Some(ResetSource::Panic)));
    }
    let reason = "seen".to_owned();
    machine.handle.request(2, Request::Stop { reason });
    let (status, _) = machine.ended();
    assert_eq!(end_of(&status), EndReason::Stopped);
    assert_eq!(status.last_reset, LastReset::Guest(ResetSource::Panic));
    assert!(status.panics >= 2);
}

#[test]
fn a_crash_kernel_is_noted_and_goes_on() {
    skip_if!(without_machine());
    let command_line = "tests=none then=pvpanic-pci pvpanic=2";
    let devices = vec![DeviceConfig::Pvpanic];
    let machine = boot(command_line, devices, LifeConfig::default());
    changes_until(&machine, Change::CrashLoaded);
    let (status, results) = machine.ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
    assert_eq!(results.one("pvpanic-after"), "ok");
    assert_eq!(status.panics, 1);
}

#[test]
fn a_guest_may_switch_itself_off_by_a_panic_device() {
    skip_if!(without_machine());
    let command_line = "tests=none then=pvpanic-pci pvpanic=4";
    let devices = vec![DeviceConfig::Pvpanic];
    let (status, results) = boot(command_line, devices, LifeConfig::default()).ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
    assert!(results.of("pvpanic-after").is_empty(), "{results:#?}");
}

#[test]
fn triple_faults_end_a_guest_by_its_policy() {
    skip_if!(without_machine());
    let command_line = "tests=none then=panic";
    let (status, _) = Machine::boot(command_line, KernelEntry::Default, vec![]).ended();
    assert_eq!(
        (end_of(&status), status.resets),
        (EndReason::TripleFault, 0)
    );
    let machine = boot(command_line, vec![], LifeConfig::default());
    changes_until(&machine, Change::Reset(Some(ResetSource::TripleFault)));
    let (status, _) = machine.ended();
    assert_eq!(end_of(&status), EndReason::TripleFault);
    assert!(status.resets > 1);
}

#[test]
fn a_guest_learns_of_another_generation_and_not_of_the_same() {
    skip_if!(without_machine());
    let command_line = "tests=none then=generation";
    let of_generation = |id: u8| Plan {
        life: LifeConfig {
            vm_gen_id: Some([id; 16]),
            ..LifeConfig::default()
        },
        ..plan(command_line, vec![])
    };
    let machine = Machine::build(of_generation(1), Arc::default(), None);
    machine.handle.request(1, Request::Boot);
    machine.wait_for("generation ok");
    let same = machine.moved_into(of_generation(1));
    let same = same.unwrap_or_else(|_| panic!("it waits"));
    same.wait_until_it_runs();
    // Long enough to look at the event many times.
    std::thread::sleep(Duration::from_millis(100));
    assert!(!same.text().contains("generation-changed"));
    let other = same.moved_into(of_generation(2));
    let (status, results) = other.unwrap_or_else(|_| panic!("it waits")).ended();
    assert_eq!(end_of(&status), EndReason::PoweredOff, "{results:#?}");
    let first = format!("ok at=0xef028 id={}", "01".repeat(16));
    assert_eq!(results.one("generation"), first);
    let second = format!("ok id={}", "02".repeat(16));
    assert_eq!(results.one("generation-changed"), second);
}

/// Lets nothing be answered while it holds the machine thread.
struct Blocker {
    entered: std::sync::mpsc::Sender<()>,
    leave: Receiver<()>,
}

impl Blocker {
    fn new() -> (Self, Receiver<()>, std::sync::mpsc::Sender<()>) {
        let (entered, has_entered) = channel();
        let (let_go, leave) = channel();
        (Self { entered, leave }, has_entered, let_go)
    }

    fn block(&self) {
        self.entered.send(()).expect("the test waits");
        self.leave.recv_timeout(PATIENCE).expect("the test goes on");
    }
}

#[test]
fn a_state_query_is_answered_while_a_save_is_under_way() {
    skip_if!(without_machine());
    let machine = boot("tests=none then=idle", vec![], LifeConfig::default());
    machine.handle.request(2, Request::Pause);
    let (blocker, entered, let_go) = Blocker::new();
    let saver = move |_: &Snapshot, _: &GuestRam| {
        blocker.block();
        Ok(())
    };
    machine.handle.save(3, Box::new(saver));
    entered.recv_timeout(PATIENCE).expect("the save begins");
    // Requests wait for their turn, and the query does not wait for them.
    machine.handle.request(4, Request::Resume);
    for _ in 0..100 {
        assert_eq!(machine.handle.status().state, MachineState::Paused);
    }
    let_go.send(()).expect("the saver waits");
    changes_until(&machine, Change::Resumed);
    let reason = "seen".to_owned();
    machine.handle.request(5, Request::Stop { reason });
    machine.ended();
}

/// Holds the machine thread while it tells of a pause.
struct SlowWatch(Watch, Blocker);

impl Observer for SlowWatch {
    fn built(&mut self, result: Result<(), BuildError>) {
        self.0.built(result);
    }

    fn answered(&mut self, ticket: u64, result: Result<(), RequestError>) {
        self.0.answered(ticket, result);
    }

    fn changed(&mut self, change: Change, status: &Status) {
        if change == Change::Paused {
            self.1.block();
        }
        self.0.changed(change, status);
    }
}

#[test]
fn a_state_query_is_answered_while_a_pause_is_under_way() {
    skip_if!(without_machine());
    let (blocker, entered, let_go) = Blocker::new();
    let (sender, changes) = channel();
    let observer = SlowWatch(Watch(sender), blocker);
    let console = Arc::default();
    let config = Machine::config(plan("tests=none then=idle", vec![]), &console);
    let thread = MachineThread::start(Threads::unconfined()).expect("a thread");
    let handle = thread
        .build(config, None, Box::new(observer))
        .expect("it waits");
    let machine = Machine {
        handle,
        console,
        changes,
    };
    machine.handle.request(1, Request::Boot);
    machine.handle.request(2, Request::Pause);
    entered.recv_timeout(PATIENCE).expect("the pause begins");
    for _ in 0..100 {
        assert_ne!(machine.handle.status().state, MachineState::Building);
    }
    let_go.send(()).expect("the observer waits");
    changes_until(&machine, Change::Paused);
    let reason = "seen".to_owned();
    machine.handle.request(3, Request::Stop { reason });
    machine.ended();
}

/// Keeps the status that comes with each change.
struct Pictures(Watch, std::sync::mpsc::Sender<(Change, Status)>);

impl Observer for Pictures {
    fn built(&mut self, result: Result<(), BuildError>) {
        self.0.built(result);
    }

    fn answered(&mut self, ticket: u64, result: Result<(), RequestError>) {
        self.0.answered(ticket, result);
    }

    fn changed(&mut self, change: Change, status: &Status) {
        self.1.send((change, status.clone())).ok();
        self.0.changed(change, status);
    }
}

#[test]
fn a_change_has_the_status_right_after_it_however_late_it_is_read() {
    skip_if!(without_machine());
    let (sender, changes) = channel();
    let (pictures, seen) = channel();
    let console = Arc::default();
    let plan = Plan {
        reboot_policy: RebootPolicy::Restart,
        ..plan(ARMED, watchdog(WatchdogAction::Reset))
    };
    let config = Machine::config(plan, &console);
    let observer = Box::new(Pictures(Watch(sender), pictures));
    let machine = Machine::watched(config, console, None, (observer, changes));
    machine.handle.request(1, Request::Boot);
    // The guest powers off after its reset: all of it is over when the pictures are looked at.
    machine.ended();
    let seen: Vec<_> = seen.iter().collect();
    let at = |wanted: Change| {
        let found = seen.iter().find(|(change, _)| *change == wanted);
        found.map(|(_, status)| (status.state, status.watchdog_expirations, status.resets))
    };
    let running = MachineState::Running;
    assert_eq!(at(Change::Booted), Some((running, 0, 0)));
    let expired = Change::WatchdogExpired(WatchdogAction::Reset);
    assert_eq!(at(expired), Some((running, 1, 0)));
    let reset = Change::Reset(Some(ResetSource::Watchdog));
    assert_eq!(at(reset), Some((running, 1, 1)));
    assert_eq!(at(Change::Ended), Some((MachineState::Ended, 1, 1)));
    assert!(seen.is_sorted_by(|(_, one), (_, next)| one.updates < next.updates));
}
