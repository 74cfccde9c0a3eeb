//! A piece of work that is over, and its span.

use opentelemetry::trace::{Event, Span, SpanContext, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::moment::{Calendar, Moment};

/// A piece of work that is over.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) name: &'static str,
    pub(super) begun: Moment,
    pub(super) ended: Moment,
    pub(super) attributes: Vec<KeyValue>,
    pub(super) events: Vec<(String, Moment)>,
    /// Reason and message, when it failed.
    pub(super) failed: Option<(String, String)>,
}

impl Piece {
    /// One that ends now.
    pub(super) fn since(begun: Moment, name: &'static str) -> Self {
        Self::between(name, begun, Moment::now())
    }

    /// One of a known end.
    pub(super) fn between(name: &'static str, begun: Moment, ended: Moment) -> Self {
        Self {
            name,
            begun,
            ended,
            attributes: Vec::new(),
            events: Vec::new(),
            failed: None,
        }
    }

    /// Sends its span; the answer is what spans within it belong to.
    pub(super) fn send(
        self,
        tracer: &SdkTracer,
        calendar: &Calendar,
        within: &Context,
    ) -> SpanContext {
        let events = self.events.into_iter();
        let events = events.map(|(name, at)| Event::new(name, calendar.time(at), Vec::new(), 0));
        let mut span = tracer
            .span_builder(self.name)
            .with_kind(SpanKind::Internal)
            .with_start_time(calendar.time(self.begun))
            .with_attributes(self.attributes)
            .with_events(events.collect())
            .start_with_context(tracer, within);
        if let Some((reason, message)) = self.failed {
            fail(&mut span, reason, message);
        }
        span.end_with_timestamp(calendar.time(self.ended));
        span.span_context().clone()
    }
}

/// Marks a span as failed.
pub(super) fn fail(span: &mut impl Span, reason: String, message: String) {
    span.set_attribute(KeyValue::new("error.type", reason));
    span.set_status(Status::error(message));
}

/// What spans within a span begin in.
pub(super) fn within(span: &SpanContext) -> Context {
    Context::new().with_remote_span_context(span.clone())
}
