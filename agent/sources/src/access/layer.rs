//! The one place that every call comes through: who calls, what the method needs, whether it is granted, and whether the
//! caller has room for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::caller::Caller;
use super::handle::Access;
use super::judge::{METHODS, OPEN};
use super::metered::{Incoming, Large, Outgoing};
use super::policy::is_master;
use super::standing::Standing;
use crate::budget::Budgets;
use crate::client_log::ClientLog;
use crate::error::ApiError;
use crate::node_view::{AnsweredCall, NodeView};

/// Judges calls before anything reads them.
#[derive(Clone)]
pub(crate) struct AccessLayer<N> {
    pub(crate) access: Access,
    pub(crate) node: N,
    pub(crate) budgets: Budgets,
    /// Limits what refused callers write to the log.
    pub(crate) refusals: ClientLog,
}

impl<S, N: Clone> Layer<S> for AccessLayer<N> {
    type Service = Judged<S, N>;

    fn layer(&self, inner: S) -> Self::Service {
        Judged {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service behind [`AccessLayer`].
#[derive(Clone)]
pub(crate) struct Judged<S, N> {
    inner: S,
    layer: AccessLayer<N>,
}

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S, N> Service<Request<Body>> for Judged<S, N>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    N: NodeView,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let caller = request.extensions().get::<Arc<Caller>>().cloned();
        let Some(caller) = caller else {
            let error = ApiError::Denied(String::from("the caller is not known"));
            return refusal(error.into());
        };
        let call = self
            .layer
            .budgets
            .begin(&caller.budget(), is_master(&caller));
        let path = request.uri().path();
        let is_open = OPEN.iter().any(|open| path.starts_with(open));
        let method = METHODS.get(path);
        if method.is_none() && !is_open {
            return refusal(Status::unimplemented("this server has no such method"));
        }
        let admitted = call.and_then(|call| {
            let access = &self.layer.access;
            // One for each direction: what a client sends is not to arrive when it reads nothing.
            let standing = || {
                let standing = method.map(|method| Standing::judge(access, &caller, method));
                standing.transpose()
            };
            Ok((call, standing()?, standing()?))
        });
        match admitted {
            Ok((call, incoming, outgoing)) => {
                let mut request = request;
                if let Some(standing) = &outgoing {
                    let permit = standing.permit().clone();
                    request.extensions_mut().insert(permit);
                }
                request.extensions_mut().insert(Arc::clone(&call));
                let large = Large::default();
                let request = request
                    .map(|body| Incoming::wrap(body, Arc::clone(&call), incoming, large.clone()));
                let answer = self.inner.call(request);
                Box::pin(async move { Ok(Outgoing::wrap(answer.await?, call, outgoing, large)) })
            }
            Err(error) => {
                let name = method.map_or("a call", |method| &method.name);
                let line = format!("{name} is refused: {error}");
                self.layer.refusals.warn(&caller.budget(), &line);
                let refused = Status::from(error);
                if let Some(method) = method {
                    self.layer.node.count_call(&AnsweredCall {
                        method: &method.name,
                        code: format!("{:?}", refused.code()),
                        took: Duration::ZERO,
                    });
                }
                refusal(refused)
            }
        }
    }
}

/// An answer without a call.
fn refusal<E: Send + 'static>(status: Status) -> Answer<E> {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

#[cfg(test)]
mod tests {
    use proto_node::node::Role;

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::super::judge::judge;
    use super::super::{Grant, Policy};
    use super::*;
    use crate::CallLimits;
    use crate::testing::FakeRegistry;

    fn access(grants: Vec<Grant>) -> Access {
        Access::new(Policy {
            grants,
            origin: String::from("/etc/kvmlet/kvmlet.toml"),
        })
    }

    fn nobody() -> Caller {
        Caller::Remote {
            subject: super::super::Subject {
                common_names: vec![String::from("bob")],
                ..Default::default()
            },
            address: ([192, 0, 2, 1], 1).into(),
        }
    }

    #[test]
    fn a_caller_without_grants_is_refused_by_every_method() {
        for method in METHODS.values() {
            let judged = judge(&access(Vec::new()), Some(&nobody()), method);
            let refused = matches!(judged, Err(ApiError::Denied(_)));
            assert!(refused, "{method:?}");
            assert!(judge(&access(Vec::new()), None, method).is_err());
        }
    }

    #[test]
    fn a_role_opens_the_methods_that_need_it_or_less() {
        for role in [Role::View, Role::Console, Role::Operate, Role::Admin] {
            let access = access(vec![Grant {
                role,
                common_names: vec![String::from("bob")],
                ..Grant::default()
            }]);
            for method in METHODS
                .values()
                .filter(|method| method.role != Role::Unspecified)
            {
                let judged = judge(&access, Some(&nobody()), method);
                assert_eq!(judged.is_ok(), method.role <= role, "{role:?} {method:?}");
            }
        }
    }

    #[test]
    fn the_whole_node_takes_more_than_one_namespace() {
        let mut method = METHODS["/kvmlet.node.v1.NodeService/Get"].clone();
        method.whole_node = true;
        for (namespaces, passes) in [(None, true), (Some(["a"]), false)] {
            let access = access(vec![Grant {
                role: Role::Admin,
                namespaces: namespaces.map(|names| names.map(str::to_owned).into()),
                common_names: vec![String::from("bob")],
                ..Grant::default()
            }]);
            assert_eq!(judge(&access, Some(&nobody()), &method).is_ok(), passes);
        }
    }

    #[test]
    fn a_method_that_does_not_say_who_may_call_it_is_nobodys() {
        let mut method = METHODS["/kvmlet.node.v1.NodeService/Get"].clone();
        method.role = Role::Unspecified;
        let access = access(vec![Grant {
            role: Role::Admin,
            common_names: vec![String::from("bob")],
            ..Grant::default()
        }]);
        assert!(judge(&access, Some(&nobody()), &method).is_err());
    }

    /// Counts the lines of a thread's log.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Nobody gets as far as this.
    struct Unreached;

    impl Service<Request<Body>> for Unreached {
        type Response = Response<Body>;
        type Error = Status;
        type Future = std::future::Ready<Result<Response<Body>, Status>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Body>) -> Self::Future {
            std::future::ready(Err(Status::internal("it was let through")))
        }
    }

    #[tokio::test]
    async fn a_thousand_refused_calls_are_counted_and_write_a_few_lines() {
        let node = FakeRegistry::new();
        let layer = AccessLayer {
            access: access(Vec::new()),
            node: node.clone(),
            budgets: Budgets::new(CallLimits::default()),
            refusals: ClientLog::default(),
        };
        let mut judged = layer.layer(Unreached);
        let lines = Lines::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        for _ in 0..1000 {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = "/kvmlet.node.v1.NodeService/Get".parse().expect("a path");
            request.extensions_mut().insert(Arc::new(nobody()));
            let answer = judged.call(request).await.expect("is answered");
            assert!(answer.headers().contains_key("grpc-status"));
        }
        drop(guard);
        assert_eq!(node.served(), 1000);
        let lines = lines.0.load(Ordering::Relaxed);
        assert!((1..=10).contains(&lines), "{lines} lines");
    }
}
