//! What a guest goes through from its image to its agent, each step with its time: one view that is drawn over at a
//! terminal, and plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::text::text;

/// A step, in the order of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Image,
    Disks,
    Network,
    Start,
    Agent,
}

impl Step {
    const ALL: [Self; 5] = [
        Self::Image,
        Self::Disks,
        Self::Network,
        Self::Start,
        Self::Agent,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Disks => "disks",
            Self::Network => "network",
            Self::Start => "start",
            Self::Agent => "guest agent",
        }
    }

    /// Whether a VMI has anything to do there.
    fn is_of(self, vmi: &Value) -> bool {
        let some = |path: &str| {
            let list = vmi.pointer(path).and_then(Value::as_array);
            list.is_some_and(|list| !list.is_empty())
        };
        match self {
            Self::Image => {
                let volumes = vmi.pointer("/spec/volumes").and_then(Value::as_array);
                let mut volumes = volumes.into_iter().flatten();
                volumes.any(|volume| volume.get("containerDisk").is_some())
            }
            Self::Disks => some("/spec/volumes"),
            Self::Network => some("/spec/networks"),
            Self::Start | Self::Agent => true,
        }
    }

    /// The step's text while it goes on, and whether it is over; `None` before it begins.
    fn text_and_end(self, vmi: &Value) -> Option<(String, bool)> {
        let work = text(vmi, "/status/operation/reason");
        let phase = text(vmi, "/status/phase");
        let is_placed = matches!(phase.as_str(), "Scheduled" | "Running");
        let is_running = phase == "Running";
        let message = || text(vmi, "/status/operation/message");
        let (is_begun, is_over, said) = match self {
            Self::Image => {
                let is_over = is_placed || work == "ConfiguringMachine";
                (work == "Pulling", is_over, message())
            }
            Self::Disks => {
                let is_over = is_placed || work == "ConfiguringMachine";
                (work == "PreparingDisks", is_over, message())
            }
            Self::Network => {
                let address = text(vmi, "/status/interfaces/0/ipAddress");
                let is_over = is_placed && !address.is_empty();
                (is_placed, is_over, address)
            }
            Self::Start => {
                let is_begun = is_placed || work == "ConfiguringMachine";
                (is_begun, is_running, String::new())
            }
            Self::Agent => {
                let conditions = vmi.pointer("/status/conditions").and_then(Value::as_array);
                let mut conditions = conditions.into_iter().flatten();
                let is_over =
                    conditions.any(|it| it["type"] == "AgentConnected" && it["status"] == "True");
                (is_running, is_over, String::new())
            }
        };
        (is_begun || is_over).then_some((said, is_over))
    }
}

/// Progress of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Ahead,
    GoesOn {
        since: Duration,
        said: String,
    },
    Over {
        at: Duration,
        took: Duration,
        said: String,
    },
}

/// Progress of a guest's start, by what was seen of its VMI.
#[derive(Debug, Default)]
struct Steps {
    ways: [Way; Step::ALL.len()],
    /// When the last step ended: the next one has gone on since then, if it was not seen to begin.
    last: Duration,
}

impl Steps {
    /// Takes in a VMI as it is `at` that time since the beginning. Returns the steps whose text has changed, and
    /// whether each has begun or ended.
    fn look(&mut self, vmi: &Value, at: Duration) -> Vec<(Step, bool)> {
        let mut changed = Vec::new();
        for (step, way) in Step::ALL.into_iter().zip(&mut self.ways) {
            if !step.is_of(vmi) || matches!(way, Way::Over { .. }) {
                continue;
            }
            let Some((said, is_over)) = step.text_and_end(vmi) else {
                continue;
            };
            let since = match way {
                Way::GoesOn { since, .. } => *since,
                _ => self.last,
            };
            let next = if is_over {
                Way::Over {
                    at,
                    took: at.saturating_sub(since),
                    said,
                }
            } else {
                let since = if matches!(way, Way::Ahead) { at } else { since };
                Way::GoesOn { since, said }
            };
            if *way != next {
                let is_new = matches!(way, Way::Ahead) || is_over;
                *way = next;
                changed.push((step, is_new));
            }
            if is_over {
                self.last = at;
            }
        }
        changed
    }
}

/// The view of one guest, on standard error. A write that fails changes nothing.
pub struct View {
    name: String,
    start: Instant,
    is_terminal: bool,
    steps: Steps,
    /// Lines of the view that are on the terminal.
    drawn: usize,
}

impl View {
    /// A view that begins now.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            start: Instant::now(),
            is_terminal: std::io::stderr().is_terminal(),
            steps: Steps::default(),
            drawn: 0,
        }
    }

    /// Shows how far a VMI is.
    pub fn look(&mut self, vmi: &Value) {
        let changed = self.steps.look(vmi, self.start.elapsed());
        if self.is_terminal {
            if !changed.is_empty() {
                self.clear();
                self.draw();
            }
            return;
        }
        for (step, is_new) in changed {
            let way = self.way(step);
            if is_new && let Some(line) = plain(step, way) {
                crate::output::note(&format!("  {}: {line}", self.name));
            }
        }
    }

    /// Tells something else, above the view.
    pub fn line(&mut self, line: &str) {
        self.clear();
        crate::output::note(&format!("  {}: {line}", self.name));
        if self.is_terminal {
            self.draw();
        }
    }

    /// The last line, below the view, which stays.
    pub fn end(&mut self, line: &str) {
        self.drawn = 0;
        crate::output::note(&format!("  {}: {line}", self.name));
    }

    /// Since it began.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn way(&self, step: Step) -> &Way {
        let place = Step::ALL.iter().position(|other| *other == step);
        place
            .and_then(|place| self.steps.ways.get(place))
            .unwrap_or(&Way::Ahead)
    }

    fn clear(&mut self) {
        let lines = std::mem::take(&mut self.drawn);
        if lines > 0 {
            write(&format!("\x1b[{lines}A\x1b[J"));
        }
    }

    fn draw(&mut self) {
        let rows = self.steps.ways.iter();
        let rows: Vec<String> = Step::ALL
            .into_iter()
            .zip(rows)
            .filter_map(|(step, way)| row(step, way))
            .collect();
        self.drawn = rows.len();
        for row in rows {
            write(&format!("    {row}\n"));
        }
    }
}

fn write(text: &str) {
    let mut err = std::io::stderr().lock();
    // A terminal that is gone shows nothing; what is waited for goes on.
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

/// One row of the view: the step, its time, what it says. A row has to fit on a line, or the view could not be drawn over.
fn row(step: Step, way: &Way) -> Option<String> {
    const MOST: usize = 70;
    let name = step.name();
    let (time, said) = match way {
        Way::Ahead => return None,
        Way::GoesOn { said, .. } => ("...".to_owned(), said),
        Way::Over { took, said, .. } => (format!("{:.1} s", took.as_secs_f64()), said),
    };
    let said: String = match (step, way) {
        // How much there was of a pull is of no interest once it is over.
        (Step::Image | Step::Disks, Way::Over { .. }) => String::new(),
        _ => said.chars().take(MOST - 23).collect(),
    };
    Some(
        format!("{name:<11} {time:>8}  {said}")
            .trim_end()
            .to_owned(),
    )
}

/// A line of a step that has begun or ended.
fn plain(step: Step, way: &Way) -> Option<String> {
    let name = step.name();
    let (at, what) = match (step, way) {
        (_, Way::Ahead) => return None,
        (_, Way::GoesOn { since, said }) if !said.is_empty() => (since, said.clone()),
        // A step without text gets its line once it is over.
        (_, Way::GoesOn { .. }) => return None,
        (Step::Network, Way::Over { at, took, said }) => {
            (at, format!("{said} after {:.1} s", took.as_secs_f64()))
        }
        (_, Way::Over { at, took, .. }) => (at, format!("done in {:.1} s", took.as_secs_f64())),
    };
    Some(format!("{:5.1} s  {name}: {what}", at.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(phase: &str, work: &str, is_connected: bool) -> Value {
        let address = if phase.starts_with('S') || phase == "Running" {
            "10.213.0.2"
        } else {
            ""
        };
        json!({
            "spec": {
                "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/debian:12"}}],
                "networks": [{"name": "default", "pod": {}}],
            },
            "status": {
                "phase": phase,
                "operation": {"reason": work, "message": work},
                "interfaces": [{"ipAddress": address}],
                "conditions": [{"type": "AgentConnected", "status": if is_connected { "True" } else { "False" }}],
            },
        })
    }

    #[test]
    fn each_step_has_its_time_and_comes_in_its_turn() {
        let mut steps = Steps::default();
        let mut lines = Vec::new();
        for (second, phase, work, is_connected) in [
            (0, "Pending", "", false),
            (1, "Scheduling", "Pulling", false),
            (4, "Scheduling", "PreparingDisks", false),
            (5, "Scheduled", "", false),
            (7, "Running", "", false),
            (9, "Running", "", true),
            (10, "Running", "", true),
        ] {
            let seen = vmi(phase, work, is_connected);
            for (step, _) in steps.look(&seen, Duration::from_secs(second)) {
                let place = Step::ALL.iter().position(|other| *other == step).unwrap();
                lines.extend(plain(step, &steps.ways[place]));
            }
        }
        assert_eq!(
            lines,
            [
                "  1.0 s  image: Pulling",
                "  4.0 s  disks: PreparingDisks",
                "  5.0 s  image: done in 4.0 s",
                "  5.0 s  disks: done in 1.0 s",
                "  5.0 s  network: 10.213.0.2 after 0.0 s",
                "  7.0 s  start: done in 2.0 s",
                "  9.0 s  guest agent: done in 2.0 s",
            ]
        );
    }

    #[test]
    fn a_row_fits_on_a_line_and_a_guest_without_image_has_none() {
        let mut steps = Steps::default();
        let long = vmi("Scheduling", "Pulling", false);
        let mut long = long;
        long["status"]["operation"]["message"] = json!("x".repeat(500));
        steps.look(&long, Duration::ZERO);
        let row = row(Step::Image, &steps.ways[0]).unwrap();
        assert!(row.len() < 75, "{row}");
        let bare = json!({"spec": {}, "status": {"phase": "Running"}});
        let mut steps = Steps::default();
        steps.look(&bare, Duration::ZERO);
        assert_eq!(steps.ways[0], Way::Ahead);
        assert!(matches!(steps.ways[3], Way::Over { .. }));
    }
}
