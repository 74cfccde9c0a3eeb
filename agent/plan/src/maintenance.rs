//! Whether the node starts guests, and how it is emptied.
//!
//! A cordon and a drain are orders that the ledger keeps. A drain itself sends nothing to guests: it gives orders to
//! stop, one VMI at a time, and each of them stands on its own from then on. So an agent that dies in between goes on
//! where it was, and a drain that is taken back leaves alone what has no order yet.

use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::time::{Millis, Timestamp};

/// Guests that a drain ends at a time, unless it says otherwise.
const PARALLEL: u32 = 10;

/// What the operator wants of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Maintenance {
    /// Since when no guest is started; absent while guests are.
    pub cordoned_at: Option<Timestamp>,
    /// The node is to be empty.
    pub drain: Option<DrainOrder>,
}

/// An order to empty the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainOrder {
    /// When it was given.
    pub requested_at: Timestamp,
    /// Guests are ended, too, whose strategy does not allow it.
    pub force: bool,
    /// How long each guest has to shut itself down; its own when absent.
    pub grace: Option<Millis>,
    /// Guests that are ended at a time; 0 stands for the default.
    pub parallel: u32,
}

impl Maintenance {
    /// Starts no guests from now on; true when that is new.
    pub fn cordon(&mut self, now: Timestamp) -> bool {
        let is_new = self.cordoned_at.is_none();
        self.cordoned_at.get_or_insert(now);
        is_new
    }

    /// Starts guests again, and gives a drain up; true when that is new.
    pub fn uncordon(&mut self) -> bool {
        let before = std::mem::take(self);
        before != Self::default()
    }

    /// Why no guest is started, if none is.
    #[must_use]
    pub fn closed(&self, node_name: &str) -> Option<Closed> {
        let since = self.cordoned_at?.rfc3339();
        let what = if self.drain.is_some() {
            "is drained"
        } else {
            "is cordoned"
        };
        Some(Closed {
            reason: "NodeCordoned",
            message: format!(
                "{node_name} {what} and starts no guests since {since}; kvmctl uncordon ends that"
            ),
        })
    }
}

/// Why a node starts no guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// CamelCase, for the condition.
    pub reason: &'static str,
    /// One sentence, with the way out.
    pub message: String,
}

impl Closed {
    /// The node goes down.
    #[must_use]
    pub fn going_down(node_name: &str) -> Self {
        Self {
            reason: "NodeShutdown",
            message: format!("{node_name} goes down; what waits is started when it is back"),
        }
    }
}

/// What a drain does with a guest (KubeVirt's `evictionStrategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionStrategy {
    /// Shuts it down; its creator starts it elsewhere.
    #[default]
    None,
    /// Would migrate it, which this release cannot: it is in the way.
    LiveMigrate,
    /// Would migrate it where possible; else as none.
    LiveMigrateIfPossible,
    /// Leaves it to its controller.
    External,
}

impl EvictionStrategy {
    /// By KubeVirt's word. Admission lets no others in.
    #[must_use]
    pub fn parse(word: &str) -> Self {
        match word {
            "LiveMigrate" => Self::LiveMigrate,
            "LiveMigrateIfPossible" => Self::LiveMigrateIfPossible,
            "External" => Self::External,
            _ => Self::None,
        }
    }

    /// KubeVirt's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::LiveMigrate => "LiveMigrate",
            Self::LiveMigrateIfPossible => "LiveMigrateIfPossible",
            Self::External => "External",
        }
    }
}

/// A VMI of the node, as a drain sees it.
#[derive(Clone, Copy, Debug)]
pub struct GuestToDrain<'a> {
    /// What was done for it.
    pub record: &'a Record,
    /// What may be done with it.
    pub strategy: EvictionStrategy,
    /// It is being deleted.
    pub deleting: bool,
}

/// What a drain does with one VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionStep {
    /// It gets the order to end.
    Stop,
    /// It gets the order when its turn comes.
    Wait,
    /// It has the order to end, whoever gave it.
    Ending,
    /// Its controller has to see to it.
    External,
    /// It cannot be moved, and may not be ended.
    Blocked,
}

/// What a drain does with each VMI, in this order; `None` for one that has nothing on the node that runs.
#[must_use]
pub fn evictions(
    order: &DrainOrder,
    guests_to_drain: &[GuestToDrain<'_>],
) -> Vec<Option<EvictionStep>> {
    let step = |to_drain: &GuestToDrain<'_>| eviction_step(order, to_drain);
    let mut steps: Vec<_> = guests_to_drain.iter().map(step).collect();
    let ending = |step: &&Option<EvictionStep>| **step == Some(EvictionStep::Ending);
    let most = usize::try_from(match order.parallel {
        0 => PARALLEL,
        parallel => parallel,
    });
    let busy = steps.iter().filter(ending).count();
    let mut free = most.unwrap_or(usize::MAX).saturating_sub(busy);
    for step in &mut steps {
        if *step != Some(EvictionStep::Stop) {
            continue;
        }
        if free == 0 {
            *step = Some(EvictionStep::Wait);
        }
        free = free.saturating_sub(1);
    }
    steps
}

/// What would be done if there were none but this one.
fn eviction_step(order: &DrainOrder, to_drain: &GuestToDrain<'_>) -> Option<EvictionStep> {
    let record = to_drain.record;
    // What was not started waits: the node is cordoned.
    record.launches.present()?;
    if record.report.end.is_some() {
        // Its VMM may still be there.
        return record
            .allocations
            .reservation
            .as_ref()
            .map(|_| EvictionStep::Ending);
    }
    if to_drain.deleting || record.orders.stop.is_some() {
        return Some(EvictionStep::Ending);
    }
    Some(match to_drain.strategy {
        EvictionStrategy::External => EvictionStep::External,
        EvictionStrategy::LiveMigrate if !order.force => EvictionStep::Blocked,
        _ => EvictionStep::Stop,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BootId, Launch, Order, ResourceDemand, VmiId, order};

    fn record(launched: bool) -> Record {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(0));
        let launch = launched.then(|| Launch {
            boot_id: BootId(String::from("boot-1")),
            intended_at: Timestamp(0),
            identity: None,
            boot_intended_at: None,
            running_at: None,
        });
        record.launches = [(1, launch)].into_iter().collect();
        record
    }

    fn steps(order: &DrainOrder, records: &[(&Record, &str)]) -> Vec<Option<EvictionStep>> {
        let to_drain = |&(record, strategy): &(_, &str)| GuestToDrain {
            record,
            strategy: EvictionStrategy::parse(strategy),
            deleting: false,
        };
        let guests_to_drain: Vec<_> = records.iter().map(to_drain).collect();
        evictions(order, &guests_to_drain)
    }

    #[test]
    fn each_guest_is_evicted_by_its_strategy() {
        use EvictionStep::{Blocked, External, Stop};
        let (running, waiting) = (record(true), record(false));
        let words = [
            "",
            "None",
            "LiveMigrate",
            "LiveMigrateIfPossible",
            "External",
        ];
        let all: Vec<_> = words.iter().map(|word| (&running, *word)).collect();
        let gentle = DrainOrder::default();
        let wanted = [Stop, Stop, Blocked, Stop, External].map(Some);
        assert_eq!(steps(&gentle, &all), wanted);
        let forced = DrainOrder {
            force: true,
            ..gentle.clone()
        };
        let wanted = [Stop, Stop, Stop, Stop, External].map(Some);
        assert_eq!(steps(&forced, &all), wanted);
        assert_eq!(steps(&gentle, &[(&waiting, "LiveMigrate")]), [None]);
    }

    #[test]
    fn no_more_are_ended_at_a_time_than_was_said_and_those_that_end_anyway_count() {
        use EvictionStep::{Ending, Stop, Wait};
        let one = DrainOrder {
            parallel: 2,
            ..DrainOrder::default()
        };
        let (running, mut ordered) = (record(true), record(true));
        ordered.orders =
            order(&ordered, Order::Stop { grace: Millis(1) }, Timestamp(0)).expect("fits");
        let all = [(&running, ""), (&ordered, "LiveMigrate"), (&running, "")];
        assert_eq!(steps(&one, &all), [Stop, Ending, Wait].map(Some));
        // One that has ended counts until nothing of it is left.
        let mut ended = ordered.clone();
        ended.allocations.reservation = Some(ResourceDemand::default());
        ended.report.end = Some(crate::End {
            phase: crate::Phase::Succeeded,
            reason: String::new(),
            message: String::new(),
            at: Timestamp(0),
            reaping_since: None,
            ordered_at: None,
        });
        assert_eq!(steps(&one, &[(&ended, "")]), [Some(Ending)]);
        ended.allocations.reservation = None;
        assert_eq!(steps(&one, &[(&ended, "")]), [None]);
    }

    #[test]
    fn a_cordon_says_since_when_and_is_taken_back_with_its_drain() {
        let mut node = Maintenance::default();
        assert_eq!(node.closed("node1"), None);
        assert!(node.cordon(Timestamp(0)) && !node.cordon(Timestamp(9)));
        let closed = node.closed("node1").expect("is closed");
        assert_eq!(
            closed.message,
            "node1 is cordoned and starts no guests since 1970-01-01T00:00:00Z; kvmctl uncordon ends that"
        );
        node.drain = Some(DrainOrder::default());
        assert!(node.uncordon() && !node.uncordon());
        assert_eq!(node, Maintenance::default());
    }
}
