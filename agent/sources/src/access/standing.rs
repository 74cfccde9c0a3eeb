//! Whether what a call was granted when it began is granted still.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use proto_node::Method;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;

use super::caller::Caller;
use super::handle::Access;
use super::judge::judge;
use super::permit::Permit;
use super::policy::Policy;
use crate::error::ApiError;

/// Judges a call again whenever the policy changes.
pub(super) struct Standing {
    access: Access,
    caller: Arc<Caller>,
    method: &'static Method,
    /// What it was granted; absent until it was judged.
    granted: Permit,
    changes: WatchStream<Arc<Policy>>,
}

impl Standing {
    /// Judges a call for the first time.
    ///
    /// # Errors
    /// [`ApiError::Denied`].
    pub(super) fn judge(
        access: &Access,
        caller: &Arc<Caller>,
        method: &'static Method,
    ) -> Result<Self, ApiError> {
        // Changes are followed before the first judgement, so that none falls in between.
        let changes = access.changes();
        Ok(Self {
            granted: judge(access, Some(caller), method)?,
            access: access.clone(),
            caller: Arc::clone(caller),
            method,
            changes,
        })
    }

    /// The permit of the call.
    pub(super) fn permit(&self) -> &Permit {
        &self.granted
    }

    /// Ready with the reason once something of what was granted is withdrawn. A call that has lost one of its namespaces
    /// has lost its permit: it may be reading what is there.
    pub(super) fn poll_withdrawn(&mut self, context: &mut Context<'_>) -> Poll<ApiError> {
        loop {
            if ready!(Pin::new(&mut self.changes).poll_next(context)).is_none() {
                // The policy cannot change any more.
                return Poll::Pending;
            }
            match judge(&self.access, Some(&self.caller), self.method) {
                Err(error) => return Poll::Ready(error),
                Ok(permit) if !permit.covers_all_of(&self.granted) => {
                    let text =
                        "what this call was granted is granted no longer: call again for what is";
                    return Poll::Ready(ApiError::Denied(text.to_owned()));
                }
                Ok(_) => {}
            }
        }
    }
}
