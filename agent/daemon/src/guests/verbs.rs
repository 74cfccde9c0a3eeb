//! Verbs for a guest that exists: pause, unpause, stop, reset, soft reboot.
//!
//! Pause, unpause and stop are orders: they are written down, and the VMI's actor carries them out for
//! as long as they stand. A reset and a soft reboot are done while the caller waits.

use agent_host::{Host, VerbError};
use agent_plan::{Millis, Order, Orders, Record, Timestamp, order};
use agent_sources::{ApiError, GuestVerb, ObjectRef, Verb, VerbResult};
use agent_store::StoredObject;
use proto_node::node::Object;
use tracing::info;

use super::Guests;
use crate::error::{WriteError, store};
use crate::idempotency::check_key;
use crate::{clock, events, object, orders};

/// How a request is carried out.
enum VerbDecision {
    /// It was carried out before.
    Before,
    /// These are the orders then.
    Orders(Orders),
}

impl<H: Host> Guests<H> {
    /// Carries out a verb. An order is on disk when this returns; anything else is done.
    pub(super) async fn carry_out_verb(&self, request: GuestVerb) -> Result<VerbResult, ApiError> {
        check_key(&request.idempotency_key)?;
        if request.dry_run {
            let (row, record) = self.present(&request.target)?;
            let decision = judge(&row, &record, &request, clock::now())?;
            return result_of(&row, &decision);
        }
        let is_immediate = matches!(request.verb, Verb::Reset | Verb::SoftReboot);
        let result = if is_immediate {
            Box::pin(self.carry_out_now(&request)).await?
        } else {
            self.give_order(&request)?
        };
        let GuestVerb {
            target,
            verb,
            client,
            ..
        } = &request;
        let (namespace, name) = (&target.namespace, &target.name);
        info!(
            vmi = %format_args!("{namespace}/{name}"),
            verb = ?verb,
            client = client.as_str(),
            before = result.before,
            "a guest was asked for something"
        );
        Ok(result)
    }

    /// Writes an order down and has the actor look at it.
    fn give_order(&self, request: &GuestVerb) -> Result<VerbResult, ApiError> {
        let (result, uid) = self.store.write(|transaction| {
            let row = transaction
                .object(&object::key(&request.target))?
                .ok_or_else(|| object::not_found(&request.target))?;
            let vmi = (row.uid.as_str(), &self.node.facts.boot_id);
            let result = orders::decide_and_give(transaction, vmi, |record, now| {
                let decision = judge(&row, record, request, now)?;
                let result = result_of(&row, &decision)?;
                let given = match decision {
                    VerbDecision::Before => None,
                    VerbDecision::Orders(mut orders) => {
                        orders.remember(&request.idempotency_key);
                        Some(orders)
                    }
                };
                Ok::<_, WriteError>((given, result))
            })?;
            let result = result.ok_or_else(|| object::not_found(&request.target))?;
            Ok((result, row.uid))
        })?;
        self.actors.wake(&uid);
        Ok(result)
    }

    /// Carries out a verb at once, and records an event.
    async fn carry_out_now(&self, request: &GuestVerb) -> Result<VerbResult, ApiError> {
        let (row, record) = self.present(&request.target)?;
        let decision = judge(&row, &record, request, clock::now())?;
        let result = result_of(&row, &decision)?;
        if result.before {
            return Ok(result);
        }
        let done = if request.verb == Verb::SoftReboot {
            self.host.soft_reboot(&record).await
        } else {
            self.host.reset(&record).await
        };
        done.map_err(|error| refusal(&request.target, &error))?;
        let event = if request.verb == Verb::SoftReboot {
            events::normal("SoftRebooted", "VirtualMachineInstance soft-rebooted.")
        } else {
            events::normal("Reset", "VirtualMachineInstance reset.")
        };
        let now = clock::now();
        self.store.write(|transaction| {
            // What was in the meantime ordered stays.
            let vmi = (row.uid.as_str(), &self.node.facts.boot_id);
            orders::give(transaction, vmi, |record, _| {
                let mut orders = record.orders.clone();
                orders.remember(&request.idempotency_key);
                Some(orders)
            })?;
            self.store
                .record_events(transaction, (&request.target, &row.uid), &[event], now)
        })?;
        self.actors.wake(&row.uid);
        Ok(result)
    }

    /// The VMI and its record.
    pub(super) fn present(&self, target: &ObjectRef) -> Result<(StoredObject, Record), ApiError> {
        let row = self.store.row(target)?;
        let record = self.store.ledger().record(&row.uid).map_err(store)?;
        let record = record.ok_or_else(|| object::not_found(target))?;
        Ok((row, record))
    }
}

fn result_of(row: &StoredObject, decision: &VerbDecision) -> Result<VerbResult, ApiError> {
    Ok(VerbResult {
        object: Object::from(object::vmi(row)?),
        before: matches!(decision, VerbDecision::Before),
    })
}

/// Whether a request fits the VMI as it is.
fn judge(
    row: &StoredObject,
    record: &Record,
    request: &GuestVerb,
    now: Timestamp,
) -> Result<VerbDecision, ApiError> {
    let name = &request.target.name;
    if !request.uid.is_empty() && request.uid != row.uid {
        let text = format!("{name:?} has uid {}, not {}", row.uid, request.uid);
        return Err(ApiError::Conflict(text));
    }
    if record.orders.knows(&request.idempotency_key) {
        return Ok(VerbDecision::Before);
    }
    let vmi = object::vmi(row)?;
    if !object::metadata(&vmi).deletion_timestamp.is_empty() {
        return Err(conflict(&request.target, "VMI is being deleted"));
    }
    let asked = match request.verb {
        Verb::Pause => Order::Pause,
        Verb::Unpause => Order::Unpause,
        Verb::SoftReboot => Order::SoftReboot,
        Verb::Reset => Order::Reset,
        Verb::Stop {
            grace_period_seconds,
        } => Order::Stop {
            grace: Millis::from_secs(
                grace_period_seconds.unwrap_or(object::own_grace_seconds(&vmi)),
            ),
        },
    };
    order(record, asked, now)
        .map(VerbDecision::Orders)
        .map_err(|error| conflict(&request.target, &error.to_string()))
}

/// Kubernetes' sentence for what does not fit the state of an object.
pub(super) fn conflict(target: &ObjectRef, why: &str) -> ApiError {
    let name = &target.name;
    ApiError::Conflict(format!(
        "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io {name:?}: {why}"
    ))
}

fn refusal(target: &ObjectRef, error: &VerbError) -> ApiError {
    match error {
        VerbError::NotRunning => conflict(target, "VM is not running (its VMM has just ended)"),
        VerbError::NoGuestAgent(why) => conflict(
            target,
            &format!(
                "VMI does not have guest agent connected ({why}: install qemu-guest-agent in the guest, \
                 or use reset, by which the guest loses what it has not written)"
            ),
        ),
        VerbError::GuestRefused(_) => conflict(target, &error.to_string()),
        VerbError::Vmm(_) => ApiError::Unavailable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::{Phase, PhaseEntry, VmiId};
    use agent_sources::Kind;
    use proto_node::meta::ObjectMeta;
    use proto_node::vmi::VirtualMachineInstance;

    use super::*;

    /// A VMI whose guest runs.
    fn running() -> (VirtualMachineInstance, Record) {
        let metadata = ObjectMeta {
            name: "web".to_owned(),
            uid: "u1".to_owned(),
            ..ObjectMeta::default()
        };
        let id = VmiId {
            uid: "u1".to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        };
        let mut record = Record::new(id, Timestamp(0));
        record.report.phases.push(PhaseEntry {
            phase: Phase::Running,
            at: Timestamp(0),
        });
        let vmi = VirtualMachineInstance {
            metadata: Some(metadata),
            ..VirtualMachineInstance::default()
        };
        (vmi, record)
    }

    fn request(verb: Verb, key: &str) -> GuestVerb {
        GuestVerb {
            target: ObjectRef {
                kind: Kind::VirtualMachineInstance,
                namespace: "default".to_owned(),
                name: "web".to_owned(),
            },
            uid: String::new(),
            verb,
            idempotency_key: key.to_owned(),
            dry_run: false,
            client: String::new(),
        }
    }

    fn decision(
        vmi: &VirtualMachineInstance,
        record: &Record,
        request: &GuestVerb,
    ) -> Result<Option<Orders>, String> {
        let row = object::row(vmi.clone(), 1);
        match judge(&row, record, request, Timestamp(1000)) {
            Ok(VerbDecision::Before) => Ok(None),
            Ok(VerbDecision::Orders(orders)) => Ok(Some(orders)),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_request_that_is_repeated_with_its_key_is_answered_and_not_carried_out_again() {
        let (vmi, mut record) = running();
        let first = decision(&vmi, &record, &request(Verb::Pause, "k1"));
        let mut orders = first.unwrap().unwrap();
        assert!(orders.paused);
        orders.remember("k1");
        record.orders = orders;
        assert_eq!(
            decision(&vmi, &record, &request(Verb::Pause, "k1")),
            Ok(None)
        );
        for other in ["k2", ""] {
            let refused = decision(&vmi, &record, &request(Verb::Pause, other)).unwrap_err();
            assert_eq!(
                refused,
                "Operation cannot be fulfilled on virtualmachineinstance.kubevirt.io \"web\": \
                 VMI is already paused (unpause lets it go on)"
            );
        }
        for number in 0..16 {
            record.orders.remember(&format!("later-{number}"));
        }
        assert_eq!(
            record.orders.keys.len(),
            16,
            "what is remembered is bounded"
        );
        assert!(decision(&vmi, &record, &request(Verb::Pause, "k1")).is_err());
    }

    #[test]
    fn a_verb_reaches_only_the_vmi_that_is_meant_and_none_that_is_deleted() {
        let (mut vmi, record) = running();
        let meant = |uid: &str| GuestVerb {
            uid: uid.to_owned(),
            ..request(Verb::Reset, "")
        };
        assert!(decision(&vmi, &record, &meant("u1")).is_ok());
        let other = decision(&vmi, &record, &meant("u0")).unwrap_err();
        assert_eq!(other, "\"web\" has uid u1, not u0");
        vmi.metadata.get_or_insert_default().deletion_timestamp = clock::rfc3339(Timestamp(500));
        for verb in [Verb::Pause, Verb::Unpause, Verb::Reset, Verb::SoftReboot] {
            let going = decision(&vmi, &record, &request(verb, "")).unwrap_err();
            assert!(going.ends_with(": VMI is being deleted"), "{going}");
        }
    }

    #[test]
    fn a_stop_without_a_grace_period_gives_the_vmis_own() {
        let (mut vmi, record) = running();
        let grace = |vmi: &VirtualMachineInstance, seconds| {
            let verb = Verb::Stop {
                grace_period_seconds: seconds,
            };
            let orders = decision(vmi, &record, &request(verb, "")).unwrap().unwrap();
            orders.stop.map(|stop| stop.grace)
        };
        assert_eq!(grace(&vmi, None), Some(Millis::from_secs(30)));
        vmi.spec
            .get_or_insert_default()
            .termination_grace_period_seconds = Some(7);
        assert_eq!(grace(&vmi, None), Some(Millis::from_secs(7)));
        assert_eq!(grace(&vmi, Some(0)), Some(Millis(0)));
    }
}
