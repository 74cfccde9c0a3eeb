//! The start of one VMI, as its actor goes through it: a span from the first observation to the guest's first instruction,
//! with one for each round that did something, and its parts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use agent_host::Host;
use agent_plan::{Action, Failure, Phase, Record};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanContext, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::Span;
use proto_node::meta::ObjectMeta;

use super::handle::{ANNOTATION, Traces};
use super::moment::{Calendar, Moment};
use super::piece::{Piece, fail, within};
use super::pipeline::Pipeline;
use super::timeline;

/// Rounds of one start that have spans: one that fails again and again says the same.
const MAX_ROUNDS: u32 = 64;

/// The start of a VMI that has a trace; of another it is nothing.
#[derive(Default)]
pub(crate) struct StartTrace {
    is_known: bool,
    open: Option<Box<Open>>,
}

/// A start that is under way.
pub(crate) struct Open {
    pipeline: Arc<Pipeline>,
    calendar: Calendar,
    span: Span,
    context: Context,
    begun: Moment,
    rounds: u32,
    round: Vec<Piece>,
    round_begun: Moment,
    /// What the times of the VMM are parts of.
    actions: BTreeMap<&'static str, SpanContext>,
    /// As it was stored last.
    record: Record,
    is_booted: bool,
    is_over: bool,
}

impl StartTrace {
    /// A round of a VMI's actor begins. In the first it turns out whether there is something to trace.
    pub(crate) fn begin_round(&mut self, traces: &Traces, metadata: &ObjectMeta, record: &Record) {
        if !std::mem::replace(&mut self.is_known, true) {
            self.open = Open::of(traces, metadata, record);
        }
        if let Some(open) = &mut self.open {
            open.round.clear();
            open.round_begun = Moment::now();
        }
    }

    /// The beginning of a piece of work.
    pub(crate) fn mark(&self) -> Option<Moment> {
        self.open.is_some().then(Moment::now)
    }

    /// A piece of work of the round ends that began at a mark.
    pub(crate) fn note(&mut self, name: &'static str, begun: Option<Moment>) {
        if let (Some(open), Some(begun)) = (&mut self.open, begun) {
            open.round.push(Piece::since(begun, name));
        }
    }

    /// An action ends that began at a mark.
    pub(crate) fn acted(
        &mut self,
        action: &Action,
        begun: Option<Moment>,
        failed: Option<&Failure>,
    ) {
        let (Some(open), Some(begun)) = (&mut self.open, begun) else {
            return;
        };
        let mut piece = Piece::since(begun, action.name());
        piece.failed = failed.map(|failed| (failed.reason.clone(), failed.message.clone()));
        open.round.push(piece);
        open.is_booted |= failed.is_none() && matches!(action, Action::BootVmm { .. });
    }

    /// A record is on disk, by a transaction that began at a mark.
    pub(crate) fn stored(&mut self, record: &Record, begun: Option<Moment>) {
        self.note("store commit", begun);
        if let Some(open) = &mut self.open {
            open.record = record.clone();
        }
    }

    /// A round ends. The answer is a start that is over but for the VMM's own times, which are to be asked for.
    pub(crate) fn end_round(&mut self) -> Option<Box<Open>> {
        let open = self.open.as_mut()?;
        open.end_round();
        if let Some(end) = open.record.report.end.clone() {
            fail(&mut open.span, end.reason, end.message);
            open.is_over = true;
            self.open = None;
            return None;
        }
        let is_there = open.is_booted || open.record.phase() >= Phase::Running;
        self.open.take_if(|_| is_there)
    }
}

impl Open {
    /// Nothing for a VMI that runs or has ended, and for one that has no trace.
    fn of(traces: &Traces, metadata: &ObjectMeta, record: &Record) -> Option<Box<Self>> {
        let parent = metadata.annotations.get(ANNOTATION)?;
        if record.phase() >= Phase::Running || record.report.end.is_some() {
            return None;
        }
        let pipeline = traces.pipeline()?;
        let said = HashMap::from([(String::from("traceparent"), parent.clone())]);
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &said);
        if !parent.span().span_context().is_sampled() {
            return None;
        }
        let (calendar, begun) = (Calendar::begin(), Moment::now());
        let span = pipeline
            .tracer
            .span_builder("vmi start")
            .with_start_time(calendar.time(begun))
            .with_attributes(of_vmi(metadata))
            .start_with_context(&pipeline.tracer, &parent);
        Some(Box::new(Self {
            context: within(span.span_context()),
            pipeline,
            calendar,
            span,
            begun,
            rounds: 0,
            round: Vec::new(),
            round_begun: begun,
            actions: BTreeMap::new(),
            record: record.clone(),
            is_booted: false,
            is_over: false,
        }))
    }

    fn end_round(&mut self) {
        self.rounds += 1;
        let mut pieces = std::mem::take(&mut self.round);
        let is_news = pieces
            .iter()
            .any(|piece| !matches!(piece.name, "observe" | "plan"));
        if !is_news || self.rounds > MAX_ROUNDS {
            return;
        }
        pieces.sort_by_key(|piece| piece.begun);
        let tracer = &self.pipeline.tracer;
        let mut round = Piece::since(self.round_begun, "reconcile");
        round.attributes = vec![
            KeyValue::new("kvmlet.round", i64::from(self.rounds)),
            KeyValue::new("kubevirt.vmi.phase", self.record.phase().as_str()),
        ];
        let round = within(&round.send(tracer, &self.calendar, &self.context));
        for piece in pieces {
            let name = piece.name;
            let span = piece.send(tracer, &self.calendar, &round);
            self.actions.insert(name, span);
        }
    }

    /// Ends the trace with what the VMM tells of itself; nothing when it does not answer.
    pub(crate) async fn conclude<H: Host>(mut self: Box<Self>, host: &H) {
        let phases = timeline::ask(host, &self.record).await;
        for (piece, action) in timeline::pieces(&phases, self.record.launches.present()) {
            let parent = self.actions.get(action);
            let parent = parent.map_or_else(|| self.context.clone(), within);
            piece.send(&self.pipeline.tracer, &self.calendar, &parent);
        }
        self.is_over = true;
        let Some(entered) = timeline::first_instruction(&phases) else {
            return;
        };
        let at = self.calendar.time(entered);
        self.span
            .add_event_with_timestamp("first instruction", at, Vec::new());
        // Where another agent let it go, it was before this one looked.
        if entered >= self.begun {
            self.note_counts();
            self.span.end_with_timestamp(at);
        }
    }

    fn note_counts(&mut self) {
        let incarnation = i64::try_from(self.record.launches.incarnation()).unwrap_or(i64::MAX);
        self.span.set_attributes([
            KeyValue::new("kvmlet.rounds", i64::from(self.rounds)),
            KeyValue::new("kvmlet.incarnation", incarnation),
        ]);
    }
}

/// A span that was not ended ends now, whatever the reason.
impl Drop for Open {
    fn drop(&mut self) {
        if !self.span.is_recording() {
            return;
        }
        self.note_counts();
        if !self.is_over {
            // The agent ends, or the VMI is gone. The next agent goes on in the same trace.
            self.span
                .set_attribute(KeyValue::new("kvmlet.interrupted", true));
        }
        self.span
            .end_with_timestamp(self.calendar.time(Moment::now()));
    }
}

/// Attributes that name the VMI of a span: namespace, name and uid.
pub(super) fn of_vmi(metadata: &ObjectMeta) -> [KeyValue; 3] {
    [
        KeyValue::new("k8s.namespace.name", metadata.namespace.clone()),
        KeyValue::new("kubevirt.vmi.name", metadata.name.clone()),
        KeyValue::new("kubevirt.vmi.uid", metadata.uid.clone()),
    ]
}
