//! The request for a VMI, from its arrival until the VMI is on disk: the root of a trace, or the child of the caller's.

use std::collections::HashMap;
use std::sync::Arc;

use agent_domain::ObjectSource;
use agent_sources::{ApiError, Applied, Apply, CallerTrace};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanKind, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::Span;
use proto_node::meta::ObjectMeta;

use super::handle::ANNOTATION;
use super::moment::{Calendar, Moment};
use super::piece::{Piece, fail, within};
use super::pipeline::Pipeline;

/// One request. Without a collector it is nothing.
pub(crate) struct Call(Option<Box<Open>>);

struct Open {
    pipeline: Arc<Pipeline>,
    calendar: Calendar,
    begun: Moment,
    parent: Context,
    by: ObjectSource,
    /// From when a VMI is made of it.
    span: Option<Span>,
    pieces: Vec<Piece>,
}

impl Call {
    /// A request that arrives now.
    pub(crate) fn begin(pipeline: Option<Arc<Pipeline>>, apply: &Apply) -> Self {
        Self(pipeline.map(|pipeline| {
            Box::new(Open {
                pipeline,
                calendar: Calendar::begin(),
                begun: Moment::now(),
                parent: parent(&apply.trace),
                by: apply.by.clone(),
                span: None,
                pieces: Vec::new(),
            })
        }))
    }

    /// The beginning of a piece of work.
    pub(crate) fn mark(&self) -> Option<Moment> {
        self.0.is_some().then(Moment::now)
    }

    /// A piece of work ends that began at a mark.
    pub(crate) fn note(&mut self, name: &'static str, begun: Option<Moment>) {
        if let (Some(open), Some(begun)) = (&mut self.0, begun) {
            open.pieces.push(Piece::since(begun, name));
        }
    }

    /// A VMI is made of it, which knows by this what its start belongs to.
    pub(crate) fn made(&mut self, metadata: &mut ObjectMeta) {
        let Some(open) = &mut self.0 else { return };
        let mut span = open.start();
        span.set_attributes(super::start::of_vmi(metadata));
        if span.span_context().is_sampled() {
            let mut caller = HashMap::new();
            TraceContextPropagator::new().inject_context(&within(span.span_context()), &mut caller);
            let parent = caller.remove("traceparent");
            metadata
                .annotations
                .extend(parent.map(|parent| (ANNOTATION.to_owned(), parent)));
        }
        open.span = Some(span);
    }

    /// It is answered.
    pub(crate) fn end(self, answer: &Result<Applied, ApiError>) {
        let Some(mut open) = self.0 else { return };
        let span = open.span.take();
        // Sources that look at their objects again and again record no span for most of them.
        let span = span.or_else(|| (open.by == ObjectSource::GrpcCaller).then(|| open.start()));
        let Some(mut span) = span else { return };
        match answer {
            Ok(applied) => {
                let result = match (applied.created, applied.configured) {
                    (true, _) => "Created",
                    (false, true) => "Configured",
                    (false, false) => "Unchanged",
                };
                span.set_attribute(KeyValue::new("kvmlet.apply.result", result));
            }
            Err(error) => fail(&mut span, word(error).to_owned(), error.to_string()),
        }
        let within = within(span.span_context());
        for piece in open.pieces {
            piece.send(&open.pipeline.tracer, &open.calendar, &within);
        }
        span.end_with_timestamp(open.calendar.time(Moment::now()));
    }
}

impl Open {
    fn start(&self) -> Span {
        let (name, kind, attributes) = match &self.by {
            ObjectSource::GrpcCaller => {
                let method = "kvmlet.node.v1.NodeService/Apply";
                let attributes = vec![
                    KeyValue::new("rpc.system.name", "grpc"),
                    KeyValue::new("rpc.method", method),
                ];
                (method, SpanKind::Server, attributes)
            }
            ObjectSource::ManifestDirectory { file } => {
                let file = KeyValue::new("file.name", file.clone());
                ("apply manifest", SpanKind::Internal, vec![file])
            }
            ObjectSource::ControlPlane { name } => {
                let name = KeyValue::new("kvmlet.control_plane.name", name.clone());
                ("apply assignment", SpanKind::Consumer, vec![name])
            }
        };
        self.pipeline
            .tracer
            .span_builder(name)
            .with_kind(kind)
            .with_start_time(self.calendar.time(self.begun))
            .with_attributes(attributes)
            .start_with_context(&self.pipeline.tracer, &self.parent)
    }
}

/// What the caller's span is, by its own words; none when they are not those of W3C Trace Context.
fn parent(caller: &CallerTrace) -> Context {
    let headers = HashMap::from([
        (String::from("traceparent"), caller.parent.clone()),
        (String::from("tracestate"), caller.state.clone()),
    ]);
    // Not what the thread is at.
    TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
}

/// As `reason` of Kubernetes' `Status`.
fn word(error: &ApiError) -> &'static str {
    match error {
        ApiError::Invalid { .. } => "Invalid",
        ApiError::BadRequest(_) => "BadRequest",
        ApiError::NotFound { .. } | ApiError::Absent(_) => "NotFound",
        ApiError::AlreadyExists(_) => "AlreadyExists",
        ApiError::Conflict(_) => "Conflict",
        ApiError::Forbidden(_) | ApiError::Denied(_) => "Forbidden",
        ApiError::Expired(_) => "Expired",
        ApiError::Unavailable(_) => "ServiceUnavailable",
        ApiError::Internal(_) => "InternalError",
    }
}
