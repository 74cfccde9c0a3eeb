//! What a guest did last when it is saved.

use super::*;

/// Keeps the machine thread from its requests until the test has made some.
struct Stalled {
    watch: Watch,
    go_on: Receiver<()>,
}

impl Observer for Stalled {
    fn built(&mut self, result: Result<(), BuildError>) {
        self.watch.built(result);
    }

    fn answered(&mut self, ticket: u64, result: Result<(), RequestError>) {
        self.watch.answered(ticket, result);
    }

    fn changed(&mut self, change: Change, status: &Status) {
        if change == Change::Booted {
            self.go_on.recv_timeout(PATIENCE).expect("the test's word");
        }
        self.watch.changed(change, status);
    }
}

#[test]
fn a_guest_that_has_powered_off_is_not_saved_as_if_it_ran() {
    skip_if!(without_machine());
    // The guest may not have come to its end yet: then nothing is shown, and it is tried again.
    let is_shown = (0..20).any(|_| {
        let (sender, changes) = channel();
        let (let_go, go_on) = channel();
        let observer = Stalled {
            watch: Watch(sender),
            go_on,
        };
        let console = Arc::default();
        let config = Machine::config(plan("tests=none", Vec::new()), &console);
        let machine = Machine::watched(config, console, None, (Box::new(observer), changes));
        machine.handle.request(1, Request::Boot);
        machine.handle.request(2, Request::Pause);
        let (saver, saved) = channel();
        let tell = move |_: &Snapshot, _: &GuestRam| saver.send(()).map_err(std::io::Error::other);
        machine.handle.save(3, Box::new(tell));
        machine.wait_for("TESTGUEST done");
        // From its last line to its power-off nothing is reported: the machine, which would, is held.
        std::thread::sleep(Duration::from_millis(100));
        let_go.send(()).expect("it waits for this");
        if saved.recv_timeout(PATIENCE).is_ok() {
            machine.stop();
            return false;
        }
        let (status, results) = machine.ended();
        assert_eq!(
            status.end.expect("an end").reason,
            EndReason::PoweredOff,
            "{results:#?}"
        );
        true
    });
    assert!(is_shown, "it was saved each time");
}
