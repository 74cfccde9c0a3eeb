//! What a guest goes through from its image to its agent, each step with its time: one view that is drawn over at a
//! terminal, and plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::output::bar::{bar, bytes};
use crate::text::text;

/// The agent's words for what is done for an image.
const OF_IMAGES: [&str; 3] = ["Pulling", "Unpacking", "Converting"];

/// Interval between lines on the progress of a step, without a terminal.
const EVERY: Duration = Duration::from_secs(5);

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

    /// The step's text, and whether it is over; `None` before it begins.
    fn text_and_end(self, vmi: &Value) -> Option<(StepText, bool)> {
        let work = text(vmi, "/status/operation/reason");
        let phase = text(vmi, "/status/phase");
        let is_placed = matches!(phase.as_str(), "Scheduled" | "Running");
        let is_running = phase == "Running";
        let (is_begun, is_over, shown) = match self {
            Self::Image => (
                OF_IMAGES.contains(&&*work),
                is_placed,
                StepText::of_operation(vmi),
            ),
            Self::Disks => (
                work == "PreparingDisks",
                is_placed,
                StepText::of_operation(vmi),
            ),
            Self::Network => {
                let address = text(vmi, "/status/interfaces/0/ipAddress");
                let is_over = is_placed && !address.is_empty();
                (is_placed, is_over, StepText::text(address))
            }
            Self::Start => {
                let is_begun = is_placed || work == "ConfiguringMachine";
                (is_begun, is_running, StepText::default())
            }
            Self::Agent => {
                let conditions = vmi.pointer("/status/conditions").and_then(Value::as_array);
                let mut conditions = conditions.into_iter().flatten();
                let is_over =
                    conditions.any(|it| it["type"] == "AgentConnected" && it["status"] == "True");
                (is_running, is_over, StepText::default())
            }
        };
        (is_begun || is_over).then_some((shown, is_over))
    }

    /// The one step that is under way. An image may be pulled while the machine is made: that is no part of its start.
    fn under_way(vmi: &Value) -> Option<Self> {
        let work = text(vmi, "/status/operation/reason");
        match (text(vmi, "/status/phase").as_str(), work.as_str()) {
            ("Running", _) => Some(Self::Agent),
            ("Scheduled", _) => {
                let lacks_address = text(vmi, "/status/interfaces/0/ipAddress").is_empty();
                let is_network = Self::Network.is_of(vmi) && lacks_address;
                Some(if is_network {
                    Self::Network
                } else {
                    Self::Start
                })
            }
            (_, work) if OF_IMAGES.contains(&work) => Some(Self::Image),
            (_, "PreparingDisks") => Some(Self::Disks),
            (_, "ConfiguringMachine") => Some(Self::Start),
            _ => None,
        }
    }
}

/// Fewest characters of an image's name that are shown.
const SHORTEST_NAME: usize = 12;

/// Places in [`StepText::numbers`], in the order in which they give way to the name of the image.
const GIVE_WAY: [usize; 3] = [2, 1, 3];

/// Text of a step, and the numbers of its progress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StepText {
    /// Name of the image that the work is for.
    image: String,
    text: String,
    /// A bar with percents, how much of how much is done, how fast, and the time left.
    numbers: [String; 4],
}

impl StepText {
    fn text(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }

    fn of_operation(vmi: &Value) -> Self {
        let operation = vmi.pointer("/status/operation");
        let number = |name: &str| operation.and_then(|of| of.get(name)?.as_u64());
        let (done, total) = (number("doneBytes"), number("totalBytes").unwrap_or(0));
        let mut numbers = <[String; 4]>::default();
        if total > 0 {
            let done = done.unwrap_or(0).min(total);
            let percent = done.saturating_mul(100) / total;
            let rate = number("bytesPerSecond").filter(|rate| *rate > 0);
            let left = number("secondsLeft");
            numbers = [
                format!("{} {percent:>3} %", bar(done, total, 8)),
                amount(done, total),
                rate.map(|rate| format!("{}/s", bytes(rate)))
                    .unwrap_or_default(),
                left.map(|left| format!("{left} s left"))
                    .unwrap_or_default(),
            ];
        }
        let message = text(vmi, "/status/operation/message");
        let named = OF_IMAGES.iter().find_map(|stage| {
            let name = message.strip_prefix(stage)?.strip_prefix(" image ")?;
            Some((*stage, name.trim_matches('"').to_owned()))
        });
        match named {
            Some((stage, image)) => Self {
                image,
                // Pulling is what is expected.
                text: match stage {
                    "Pulling" => String::new(),
                    stage => stage.to_lowercase(),
                },
                numbers,
            },
            None => Self {
                text: message,
                numbers,
                ..Self::default()
            },
        }
    }

    /// In one line of so many characters. The end of an image's name tells more than its beginning.
    fn line(&self, most: usize) -> String {
        let mut numbers = self.numbers.clone();
        let image = self.image.chars().count();
        let wanted = image.min(SHORTEST_NAME) + 2 * usize::from(image > 0);
        for place in GIVE_WAY {
            if self.behind(&numbers).chars().count().saturating_add(wanted) <= most {
                break;
            }
            if let Some(number) = numbers.get_mut(place) {
                number.clear();
            }
        }
        let behind = self.behind(&numbers);
        let room = most.saturating_sub(behind.chars().count() + 2);
        let image = match image.checked_sub(room.max(1)) {
            None | Some(0) => self.image.clone(),
            Some(cut) => format!("…{}", self.image.chars().skip(cut + 1).collect::<String>()),
        };
        joined([&image, &behind])
    }

    fn behind(&self, numbers: &[String; 4]) -> String {
        joined([&self.text].into_iter().chain(numbers))
    }
}

/// What is not empty, with two blanks between.
fn joined<'a>(parts: impl IntoIterator<Item = &'a String>) -> String {
    let parts = parts.into_iter().map(String::as_str);
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.join("  ")
}

/// Such as `214/301 MiB`.
fn amount(done: u64, total: u64) -> String {
    let (shift, unit) = match total {
        0..0x10_0000 => (10, "KiB"),
        _ => (20, "MiB"),
    };
    format!("{}/{} {unit}", done >> shift, total >> shift)
}

/// Progress of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Ahead,
    GoesOn {
        shown: StepText,
    },
    Over {
        at: Duration,
        shown: StepText,
    },
}

/// Progress of a guest's start, by what was seen of its VMI.
#[derive(Debug, Default)]
struct Steps {
    ways: [Way; Step::ALL.len()],
    /// How long each was under way. No moment counts for two of them.
    took: [Duration; Step::ALL.len()],
    /// The step that is under way, and when that was seen last.
    present: Option<Step>,
    seen: Duration,
}

impl Steps {
    /// Takes in a VMI as it is `at` that time since the beginning. Returns the steps whose text has changed, and
    /// whether each has begun or ended.
    fn update(&mut self, vmi: &Value, at: Duration) -> Vec<(Step, bool)> {
        let passed = at.saturating_sub(std::mem::replace(&mut self.seen, at));
        let was = std::mem::replace(&mut self.present, Step::under_way(vmi));
        let took = Step::ALL.into_iter().zip(&mut self.took);
        for (_, took) in took.filter(|(step, _)| Some(*step) == was) {
            *took = took.saturating_add(passed);
        }
        let mut changed = Vec::new();
        for (step, way) in Step::ALL.into_iter().zip(&mut self.ways) {
            if !step.is_of(vmi) || matches!(way, Way::Over { .. }) {
                continue;
            }
            let Some((shown, is_over)) = step.text_and_end(vmi) else {
                continue;
            };
            let next = match way {
                _ if is_over => Way::Over { at, shown },
                // What another step says is none of its.
                Way::GoesOn { .. } if self.present != Some(step) => continue,
                _ => Way::GoesOn { shown },
            };
            if *way != next {
                let is_new = matches!(way, Way::Ahead) || is_over;
                *way = next;
                changed.push((step, is_new));
            }
        }
        changed
    }

    /// The rows of the view `at` that time since the beginning.
    fn rows(&self, at: Duration, columns: usize) -> Vec<String> {
        let rows = Step::ALL.into_iter();
        rows.filter_map(|step| row(step, self, at, columns))
            .collect()
    }

    /// Nothing is waited for any more. An agent that is not there may never come.
    fn stop_waiting(&mut self) {
        self.present = None;
        for (step, way) in Step::ALL.into_iter().zip(&mut self.ways) {
            if step == Step::Agent && matches!(way, Way::GoesOn { .. }) {
                *way = Way::Ahead;
            }
        }
    }

    fn of(&self, step: Step) -> (&Way, Duration) {
        let place = Step::ALL.iter().position(|other| *other == step);
        let way = place.and_then(|place| self.ways.get(place));
        let took = place.and_then(|place| self.took.get(place));
        (
            way.unwrap_or(&Way::Ahead),
            took.copied().unwrap_or_default(),
        )
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
    /// When a line was written, without a terminal.
    printed_at: Duration,
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
            printed_at: Duration::ZERO,
        }
    }

    /// Shows how far a VMI is.
    pub fn update(&mut self, vmi: &Value) {
        let before = self.steps.present;
        let changed = self.steps.update(vmi, self.start.elapsed());
        if self.is_terminal {
            // The time of a step is shown once it is no longer under way.
            if !changed.is_empty() || before != self.steps.present {
                self.clear();
                self.draw();
            }
            return;
        }
        let now = self.start.elapsed();
        for (step, is_new) in changed {
            let is_due = now.saturating_sub(self.printed_at) >= EVERY;
            let (way, took) = self.steps.of(step);
            if (is_new || is_due)
                && let Some(line) = plain(step, (way, took), now)
            {
                self.printed_at = now;
                crate::output::note(&format!("  {}: {line}", self.name));
            }
        }
    }

    /// Lets the time of the step that is under way go on, at a terminal.
    pub fn tick(&mut self) {
        if self.is_terminal && self.drawn > 0 {
            self.clear();
            self.draw();
        }
    }

    /// Prints another line, above the view.
    pub fn line(&mut self, line: &str) {
        self.clear();
        crate::output::note(&format!("  {}: {line}", self.name));
        if self.is_terminal {
            self.draw();
        }
    }

    /// The last line, below the view, which stays.
    pub fn end(&mut self, line: &str) {
        if self.drawn > 0 {
            self.clear();
            self.steps.stop_waiting();
            self.draw();
        }
        self.drawn = 0;
        crate::output::note(&format!("  {}: {line}", self.name));
    }

    /// Since it began.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn clear(&mut self) {
        let lines = std::mem::take(&mut self.drawn);
        if lines > 0 {
            write(&format!("\x1b[{lines}A\x1b[J"));
        }
    }

    fn draw(&mut self) {
        let (columns, _) = crate::terminal::size();
        let rows = self.steps.rows(self.start.elapsed(), columns);
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
fn row(step: Step, steps: &Steps, now: Duration, columns: usize) -> Option<String> {
    // It is indented by four.
    let most = columns.saturating_sub(5);
    let most_text = most.saturating_sub(22);
    let name = step.name();
    let (way, took) = steps.of(step);
    let seconds = |took: Duration| format!("{:.1} s", took.as_secs_f64());
    let so_far = || seconds(took.saturating_add(now.saturating_sub(steps.seen)));
    let took = || seconds(took);
    let (time, shown) = match way {
        Way::Ahead => return None,
        Way::GoesOn { shown } if steps.present == Some(step) => {
            let shown = shown.line(most_text);
            let shown = if shown.is_empty() {
                "...".to_owned()
            } else {
                shown
            };
            (so_far(), shown)
        }
        // How much there was of a pull is of no interest once it is over, or another step is under way.
        Way::GoesOn { .. } => (took(), String::new()),
        Way::Over { .. } if matches!(step, Step::Image | Step::Disks) => (took(), String::new()),
        Way::Over { shown, .. } => (took(), shown.line(most_text)),
    };
    let text = format!("{name:<11} {time:>8}  {shown}");
    let text: String = text.chars().take(most).collect();
    Some(text.trim_end().to_owned())
}

/// A line of a step that has begun, goes on or ended.
fn plain(step: Step, (way, took): (&Way, Duration), now: Duration) -> Option<String> {
    let name = step.name();
    let took = took.as_secs_f64();
    let (at, what) = match (step, way) {
        (_, Way::Ahead) => return None,
        (_, Way::GoesOn { shown }) if *shown != StepText::default() => {
            (&now, shown.line(usize::MAX))
        }
        // A step without text gets its line once it is over.
        (_, Way::GoesOn { .. }) => return None,
        (Step::Network, Way::Over { at, shown }) => (at, shown.line(usize::MAX)),
        (_, Way::Over { at, .. }) => (at, format!("done in {took:.1} s")),
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

    /// Lines that are printed of VMIs that are seen at these seconds, and how long each step took.
    fn lines_of(seen: &[(u64, Value)]) -> (Vec<String>, Steps) {
        let (mut steps, mut lines) = (Steps::default(), Vec::new());
        for (second, vmi) in seen {
            let at = Duration::from_secs(*second);
            for (step, is_new) in steps.update(vmi, at) {
                lines.extend(is_new.then(|| plain(step, steps.of(step), at)).flatten());
            }
        }
        (lines, steps)
    }

    #[test]
    fn each_step_has_its_time_and_comes_in_its_turn() {
        let seen = [
            (0, "Pending", "", false),
            (1, "Scheduling", "Pulling", false),
            (2, "Scheduling", "Unpacking", false),
            (3, "Scheduling", "Converting", false),
            (4, "Scheduling", "PreparingDisks", false),
            (5, "Scheduled", "", false),
            (7, "Running", "", false),
            (9, "Running", "", true),
            (10, "Running", "", true),
        ];
        let seen = seen
            .map(|(second, phase, work, is_connected)| (second, vmi(phase, work, is_connected)));
        assert_eq!(
            lines_of(&seen).0,
            [
                "  1.0 s  image: Pulling",
                "  4.0 s  disks: PreparingDisks",
                "  5.0 s  image: done in 3.0 s",
                "  5.0 s  disks: done in 1.0 s",
                "  5.0 s  network: 10.213.0.2",
                "  7.0 s  start: done in 2.0 s",
                "  9.0 s  guest agent: done in 2.0 s",
            ]
        );
    }

    #[test]
    fn a_pull_within_the_start_counts_once() {
        let seen = [
            (0, "Scheduling", "ConfiguringMachine"),
            (1, "Scheduling", "Pulling"),
            (21, "Scheduling", "ConfiguringMachine"),
            (22, "Scheduled", ""),
            (24, "Running", ""),
        ];
        let seen = seen.map(|(second, phase, work)| (second, vmi(phase, work, false)));
        let (lines, steps) = lines_of(&seen);
        let done = |words: &str| lines.iter().any(|line| line.ends_with(words));
        assert!(done("image: done in 20.0 s"), "{lines:?}");
        assert!(done("start: done in 4.0 s"), "{lines:?}");
        let all: Duration = steps.took.iter().sum();
        assert_eq!(all, Duration::from_secs(24));
    }

    #[test]
    fn a_row_fits_on_a_line_and_shows_which_image_is_pulled_and_how_that_goes() {
        let mut pulls = vmi("Scheduling", "Pulling", false);
        pulls["status"]["operation"] = json!({
            "reason": "Pulling", "message": "Pulling image \"registry.example/debian:12\"",
            "doneBytes": 200 << 20, "totalBytes": 300 << 20, "bytesPerSecond": 10 << 20, "secondsLeft": 10,
        });
        let (lines, mut steps) = lines_of(&[(0, pulls)]);
        let soon = Duration::from_millis(2500);
        for (columns, expected) in [
            (
                120,
                "image          2.5 s  registry.example/debian:12  █████░░░  66 %  200/300 MiB  10 MiB/s  10 s left",
            ),
            (
                80,
                "image          2.5 s  …le/debian:12  █████░░░  66 %  200/300 MiB  10 s left",
            ),
            (
                60,
                "image          2.5 s  …xample/debian:12  █████░░░  66 %",
            ),
            (20, "image          "),
        ] {
            let shown = row(Step::Image, &steps, soon, columns).unwrap();
            assert_eq!(shown, expected.trim_end());
            assert!(shown.chars().count() <= columns - 5, "{shown}");
        }
        let line = "  0.0 s  image: registry.example/debian:12  █████░░░  66 %  200/300 MiB  10 MiB/s  10 s left";
        assert_eq!(lines, [line]);
        // It is over, and the next step has not ended.
        let next = vmi("Scheduling", "PreparingDisks", false);
        steps.update(&next, Duration::from_secs(30));
        let image = row(Step::Image, &steps, Duration::from_secs(31), 80);
        assert_eq!(image.unwrap(), "image         30.0 s");
    }

    #[test]
    fn at_the_end_no_row_shows_what_is_no_longer_waited_for() {
        let (_, mut steps) = lines_of(&[
            (0, vmi("Scheduling", "PreparingDisks", false)),
            (1, vmi("Scheduled", "", false)),
            (3, vmi("Running", "", false)),
            (4, vmi("Running", "", false)),
        ]);
        let at = Duration::from_millis(4500);
        let agent = "guest agent    1.5 s  ...";
        assert_eq!(steps.rows(at, 80).last().unwrap(), agent);
        steps.stop_waiting();
        let rows = [
            "image          0.0 s",
            "disks          1.0 s",
            "network        0.0 s  10.213.0.2",
            "start          2.0 s",
        ];
        assert_eq!(steps.rows(at, 80), rows);
    }

    #[test]
    fn a_network_whose_address_nobody_knows_keeps_its_row() {
        let mut bridged = vmi("Running", "", false);
        bridged["status"]["interfaces"] = json!([]);
        let (_, mut steps) = lines_of(&[(0, bridged)]);
        steps.stop_waiting();
        let rows = steps.rows(Duration::from_secs(1), 80);
        let named = |name: &str| rows.iter().any(|row| row.starts_with(name));
        assert!(named("network") && !named("guest agent"), "{rows:?}");
    }

    #[test]
    fn a_guest_without_image_has_no_row_of_it() {
        let bare = json!({"spec": {}, "status": {"phase": "Running"}});
        let (_, steps) = lines_of(&[(0, bare)]);
        assert_eq!(*steps.of(Step::Image).0, Way::Ahead);
        assert!(matches!(steps.of(Step::Start).0, Way::Over { .. }));
    }
}
