//! What guests are told between their creation and their end.
//!
//! Pause, unpause and stop are orders: they are written down, and the VMI's actor carries them out for
//! as long as they stand. A reset and a soft reboot are done while the caller waits.

use agent_host::{Host, VerbError};
use agent_plan::{Millis, Order, Orders, Record, Timestamp, order};
use agent_sources::{ApiError, ObjectRef, Tell, Told, Verb};
use agent_store::{StoredObject, Transaction};
use proto_node::node::Object;
use proto_node::vmi::VirtualMachineInstance;
use tracing::info;

use crate::agent::Agent;
use crate::delete::own_grace_seconds;
use crate::error::{WriteError, store};
use crate::{clock, events, object};

/// The longest idempotency key that is remembered.
const MAX_IDEMPOTENCY_KEY: usize = 256;

/// What becomes of a request.
enum Verdict {
    /// It was carried out before.
    Before,
    /// These are the orders then.
    Orders(Orders),
}

impl<H: Host> Agent<H> {
    /// Tells a guest something. An order is on disk when this answers; anything else is done.
    pub(crate) async fn tell_guest(&self, tell: Tell) -> Result<Told, ApiError> {
        check_idempotency_key(&tell.idempotency_key)?;
        if tell.dry_run {
            let (row, record) = self.present(&tell.target)?;
            let verdict = judge(&row, &record, &tell, clock::now())?;
            return told(&row, &verdict);
        }
        let is_talk = matches!(tell.verb, Verb::Reset | Verb::SoftReboot);
        let told = if is_talk {
            Box::pin(self.talk(&tell)).await?
        } else {
            self.give_order(&tell)?
        };
        let Tell {
            target,
            verb,
            client,
            ..
        } = &tell;
        let (namespace, name) = (&target.namespace, &target.name);
        info!(
            vmi = %format_args!("{namespace}/{name}"),
            verb = ?verb,
            client = client.as_str(),
            before = told.before,
            "told"
        );
        Ok(told)
    }

    /// Writes an order down and has the actor look at it.
    fn give_order(&self, tell: &Tell) -> Result<Told, ApiError> {
        let now = clock::now();
        let (told, uid) = self.write(|transaction| {
            let (row, mut record) = stored(transaction, &tell.target)?;
            let verdict = judge(&row, &record, tell, now)?;
            let told = told(&row, &verdict)?;
            if let Verdict::Orders(mut orders) = verdict {
                orders.remember(&tell.idempotency_key);
                record.orders = orders;
                transaction.put_record(&record)?;
            }
            Ok((told, row.uid))
        })?;
        self.wake(&uid);
        Ok(told)
    }

    /// Does what is done at once, and says so in an event.
    async fn talk(&self, tell: &Tell) -> Result<Told, ApiError> {
        let (row, record) = self.present(&tell.target)?;
        let verdict = judge(&row, &record, tell, clock::now())?;
        let told = told(&row, &verdict)?;
        if told.before {
            return Ok(told);
        }
        let done = if tell.verb == Verb::SoftReboot {
            self.host.soft_reboot(&record).await
        } else {
            self.host.reset(&record).await
        };
        done.map_err(|error| refusal(&tell.target, &error))?;
        let said = if tell.verb == Verb::SoftReboot {
            events::normal("SoftRebooted", "VirtualMachineInstance soft-rebooted.")
        } else {
            events::normal("Reset", "VirtualMachineInstance reset.")
        };
        let now = clock::now();
        self.write(|transaction| {
            // What was in the meantime ordered stays.
            if let Some(mut record) = transaction.record(&row.uid)? {
                record.orders.remember(&tell.idempotency_key);
                transaction.put_record(&record)?;
            }
            self.record_events(transaction, (&tell.target, &row.uid), &[said], now)
        })?;
        self.wake(&row.uid);
        Ok(told)
    }

    /// The VMI and its record.
    fn present(&self, target: &ObjectRef) -> Result<(StoredObject, Record), ApiError> {
        let row = self.row(target)?;
        let record = self.ledger.record(&row.uid).map_err(store)?;
        let record = record.ok_or_else(|| object::not_found(target))?;
        Ok((row, record))
    }
}

/// The same within a transaction.
fn stored(
    transaction: &Transaction<'_>,
    target: &ObjectRef,
) -> Result<(StoredObject, Record), WriteError> {
    let row = transaction
        .object(&object::key(target))?
        .ok_or_else(|| object::not_found(target))?;
    let record = transaction
        .record(&row.uid)?
        .ok_or_else(|| object::not_found(target))?;
    Ok((row, record))
}

fn told(row: &StoredObject, verdict: &Verdict) -> Result<Told, ApiError> {
    Ok(Told {
        object: Object::from(object::vmi(row)?),
        before: matches!(verdict, Verdict::Before),
    })
}

/// Whether a request fits the VMI as it is.
fn judge(
    row: &StoredObject,
    record: &Record,
    tell: &Tell,
    now: Timestamp,
) -> Result<Verdict, ApiError> {
    let name = &tell.target.name;
    if !tell.uid.is_empty() && tell.uid != row.uid {
        let text = format!("{name:?} has uid {}, not {}", row.uid, tell.uid);
        return Err(ApiError::Conflict(text));
    }
    if record.orders.knows(&tell.idempotency_key) {
        return Ok(Verdict::Before);
    }
    let vmi = object::vmi(row)?;
    if !object::metadata(&vmi).deletion_timestamp.is_empty() {
        return Err(conflict(&tell.target, "VMI is being deleted"));
    }
    let asked = match tell.verb {
        Verb::Pause => Order::Pause,
        Verb::Unpause => Order::Unpause,
        Verb::SoftReboot => Order::SoftReboot,
        Verb::Reset => Order::Reset,
        Verb::Stop {
            grace_period_seconds,
        } => Order::Stop {
            grace: Millis::from_secs(grace_period_seconds.unwrap_or(own_grace_seconds(&vmi))),
        },
    };
    order(record, asked, now)
        .map(Verdict::Orders)
        .map_err(|misfit| conflict(&tell.target, &misfit.to_string()))
}

/// Kubernetes' sentence for what does not fit the state of an object.
fn conflict(target: &ObjectRef, why: &str) -> ApiError {
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

/// Refuses keys that would fill the ledger.
///
/// # Errors
/// [`ApiError::BadRequest`].
pub(crate) fn check_idempotency_key(key: &str) -> Result<(), ApiError> {
    if key.len() > MAX_IDEMPOTENCY_KEY {
        let text = format!("idempotency_key is longer than {MAX_IDEMPOTENCY_KEY} bytes");
        return Err(ApiError::BadRequest(text));
    }
    Ok(())
}

/// The orders of a VMI that was just accepted.
pub(crate) fn first_orders(object: &VirtualMachineInstance) -> Orders {
    let strategy = object
        .spec
        .as_ref()
        .map(|spec| spec.start_strategy.as_str());
    Orders::at_start(strategy == Some("Paused"))
}
