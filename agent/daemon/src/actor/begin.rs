//! Beginning what may take more than a moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_domain::Vmi;
use agent_host::Host;
use agent_plan::{Action, Completed, Record, Timestamp};
use proto_node::vmi::VirtualMachineInstance;

use super::Actor;
use super::operation::{Outcome, Running, joined};
use crate::{given, hooks};

/// How long the actor waits before an action is an operation: most are over by then, and the plan goes on at once.
const MOMENT: Duration = Duration::from_millis(250);

impl<H: Host> Actor<H> {
    /// Carries out an action that may take more than a moment: asks hooks, reads what the VMI is given, and does it. When
    /// it is not over after a moment it is an operation, and the actor is woken at its end.
    pub(super) async fn begin(
        &mut self,
        action: &Action,
        (object, vmi): (&VirtualMachineInstance, &Vmi),
        record: &Record,
        now: Timestamp,
    ) -> Outcome {
        let (agent, wake) = (Arc::clone(&self.agent), self.wake.clone());
        let (object, vmi, record) = (object.clone(), vmi.clone(), record.clone());
        let (begun, traced) = (Instant::now(), self.start.mark());
        let carried_out = action.clone();
        let mut task = tokio::spawn(async move {
            let node_hooks = agent.node.hooks();
            let asked = hooks::before(&carried_out, &node_hooks, &object, &vmi).await;
            let given =
                asked.and_then(|vmi| given::with_data(&agent.objects, &carried_out, &object, vmi));
            let asked = match given {
                Ok(vmi) => {
                    let known = (&object, &record.allocations.pci);
                    hooks::before_iso(&carried_out, &node_hooks, known, vmi).await
                }
                Err(failure) => Err(failure),
            };
            let outcome = match asked {
                Ok(vmi) => agent.host.execute(&carried_out, &vmi, &record).await,
                Err(failure) => Err(failure),
            };
            wake.notify_one();
            outcome
        });
        if let Ok(joined_in_time) = tokio::time::timeout(MOMENT, &mut task).await {
            return joined(joined_in_time);
        }
        self.operations.running = Some(Running {
            action: action.clone(),
            since: now,
            begun,
            traced,
            task,
        });
        Ok(Completed::Begun)
    }
}
