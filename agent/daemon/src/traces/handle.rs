//! Where spans go at present.

use std::sync::{Arc, PoisonError, RwLock};

use super::pipeline::Pipeline;

/// The annotation by which a VMI knows its trace, also when another agent goes on with its start.
pub(crate) const ANNOTATION: &str = "kvmlet.io/traceparent";

/// Where spans go at present, if anywhere.
#[derive(Debug, Default)]
pub(crate) struct Traces(RwLock<Option<Arc<Pipeline>>>);

impl Traces {
    /// The way of spans that begin now.
    pub(crate) fn pipeline(&self) -> Option<Arc<Pipeline>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Has spans of traces that begin from now on go another way. The former one ends with the last start that uses it.
    pub(crate) fn replace(&self, pipeline: Option<Pipeline>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = pipeline.map(Arc::new);
    }

    /// Sends what waits, as far as that takes no longer than [`pipeline::FLUSH`].
    pub(crate) async fn finish(&self) {
        if let Some(pipeline) = self.pipeline() {
            self.replace(None);
            pipeline.finish().await;
        }
    }
}
