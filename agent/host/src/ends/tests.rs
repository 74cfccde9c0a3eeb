use std::process::{Child, Command, Stdio};

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::*;

/// Nothing in a test waits for it but what must not happen.
const NEVER: Duration = Duration::from_secs(600);

/// What would go wrong has gone wrong by then, or the test sees nothing of it.
const MOMENT: Duration = Duration::from_millis(50);

/// Ends when its input does, as a VMM that was asked to: not at once.
struct Process(Child);

impl Process {
    fn start() -> Self {
        let mut cat = Command::new("cat");
        Self(cat.stdin(Stdio::piped()).spawn().unwrap())
    }

    fn identity(&self) -> VmmIdentity {
        process::identify(self.0.id()).unwrap().unwrap()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

fn take_all(turns: &EndTurns, processes: &[Process]) -> mpsc::UnboundedReceiver<u32> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for process in processes {
        let (turns, identity, sender) = (turns.clone(), process.identity(), sender.clone());
        tokio::spawn(async move {
            turns.take(&identity).await.unwrap().expect("it lives");
            sender.send(identity.pid).unwrap();
        });
    }
    receiver
}

#[tokio::test]
async fn so_many_end_at_once_and_all_end() {
    let turns = EndTurns::of(3, NEVER);
    let mut waiting: Vec<Process> = (0..10).map(|_| Process::start()).collect();
    let mut receiver = take_all(&turns, &waiting);
    let mut ending = Vec::new();
    let mut ended = 0;
    while ended < 10 {
        while ending.len() < 3.min(10 - ended) {
            let pid = receiver.recv().await.unwrap();
            let at = waiting.iter().position(|process| process.0.id() == pid);
            ending.push(waiting.remove(at.expect("it had no turn")));
        }
        // Nothing signals that no further process is ended, so that is observed for a while.
        sleep(MOMENT).await;
        assert!(receiver.try_recv().is_err(), "one more ends");
        ending.remove(0).end();
        ended += 1;
    }
    assert!(ending.is_empty() && waiting.is_empty());
    assert!(receiver.recv().await.is_none());
}

#[tokio::test]
async fn one_that_is_asked_again_keeps_its_turn() {
    let turns = EndTurns::of(1, NEVER);
    let process = Process::start();
    let identity = process.identity();
    let other = Process::start();
    assert!(turns.take(&identity).await.unwrap().is_some());
    assert!(turns.take(&identity).await.unwrap().is_some());
    turns.kill(&identity).await.unwrap();
    // It is gone, and the other has its turn.
    turns.kill(&other.identity()).await.unwrap();
    process.end();
    other.end();
    assert!(turns.take(&identity).await.unwrap().is_none());
    turns.kill(&identity).await.unwrap();
}

#[tokio::test]
async fn one_that_ends_by_itself_waits_no_longer() {
    let turns = EndTurns::of(1, NEVER);
    let (first, second) = (Process::start(), Process::start());
    let identity = second.identity();
    assert!(turns.take(&first.identity()).await.unwrap().is_some());
    let waits = turns.take(&identity);
    let ends = async {
        // Lets the other future ask for its turn first; a turn that waits is not visible from here.
        sleep(MOMENT).await;
        second.end();
    };
    let (turn, ()) = tokio::join!(waits, ends);
    assert!(turn.unwrap().is_none());
    first.end();
}

#[tokio::test]
async fn one_that_never_ends_gives_its_turn_to_the_next() {
    let turns = EndTurns::of(1, MOMENT);
    let processes = [Process::start(), Process::start()];
    let mut receiver = take_all(&turns, &processes);
    receiver.recv().await.unwrap();
    receiver.recv().await.unwrap();
    for process in processes {
        process.end();
    }
}

#[tokio::test]
async fn one_that_was_killed_and_never_ends_takes_no_second_turn() {
    let turns = EndTurns::of(1, MOMENT);
    let stuck = Process::start();
    let identity = stuck.identity();
    // As one whose death waits for a disk.
    let turn = turns.take(&identity).await.unwrap().expect("it lives");
    turn.note_kill();
    while turns.0.free.available_permits() == 0 {
        // A turn is given back by a timer that reports to nobody.
        sleep(MOMENT).await;
    }
    assert!(turns.take(&identity).await.unwrap().is_some());
    assert_eq!(turns.0.free.available_permits(), 1);
    stuck.end();
    while !turns.ending().is_empty() {
        // The list of processes that are ending is updated by a task that reports to nobody.
        sleep(MOMENT).await;
    }
}
