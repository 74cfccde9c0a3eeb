//! Cordon, drain and uncordon over gRPC.

use std::time::Instant;

use proto_node::node::maintenance_service_server::MaintenanceService;
use proto_node::node::{
    CancelDrainRequest, CancelDrainResponse, CordonRequest, CordonResponse, DrainOptions,
    DrainRequest, DrainResponse, GetMaintenanceRequest, GetMaintenanceResponse, Maintenance,
    UncordonRequest, UncordonResponse,
};
use tonic::{Code, Request, Response, Status};

use crate::access::Permit;
use crate::error::ApiError;
use crate::node_view::{AnsweredCall, NodeView};

/// Guests that a drain may end at a time.
const MOST_PARALLEL: u32 = 1024;

/// What somebody wants of the node.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceAction {
    /// It starts no guests.
    Cordon,
    /// It starts guests, and is no longer drained.
    Uncordon,
    /// It starts no guests, and ends those that run.
    Drain(DrainOptions),
    /// It is no longer drained, and starts no guests.
    CancelDrain,
}

/// A request for maintenance.
#[derive(Clone, Debug)]
pub struct MaintenanceRequest {
    /// The maintenance that is asked for.
    pub what: MaintenanceAction,
    /// The node that is meant. Empty: whichever it is.
    pub node_name: String,
    /// Judge only.
    pub dry_run: bool,
    /// Who asks, for the log.
    pub client: String,
}

/// The agent, as the service of its maintenance sees it.
pub trait Maintained: Clone + Send + Sync + 'static {
    /// How the node stands.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn maintenance(&self) -> Result<Maintenance, ApiError>;

    /// Takes a request: it is on disk when this returns. The answer says how the node stands then, and whether that is
    /// new: whether it took guests before, was drained before.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when another node is meant, [`ApiError::Internal`].
    fn maintain(&self, request: MaintenanceRequest) -> Result<(Maintenance, bool), ApiError>;
}

/// The service.
#[derive(Clone)]
pub(crate) struct MaintenanceCalls<N>(pub(crate) N);

impl<N: Maintained + NodeView> MaintenanceCalls<N> {
    /// Carries out a request, and counts the call.
    fn maintain<T>(
        &self,
        method: &'static str,
        request: &Request<T>,
        (what, node_name, dry_run): (MaintenanceAction, &str, bool),
    ) -> Result<(Maintenance, bool), Status> {
        self.count(method, || {
            let wanted = MaintenanceRequest {
                what: checked(what)?,
                node_name: node_name.to_owned(),
                dry_run,
                client: Permit::of(request)?.caller,
            };
            self.0.maintain(wanted)
        })
    }

    fn count<T>(
        &self,
        method: &'static str,
        work: impl FnOnce() -> Result<T, ApiError>,
    ) -> Result<T, Status> {
        let begun = Instant::now();
        let answer = work().map_err(Status::from);
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.0.count_call(&AnsweredCall {
            method,
            code: match code {
                Code::Ok => String::from("OK"),
                code => format!("{code:?}"),
            },
            took: begun.elapsed(),
        });
        answer
    }
}

/// Refuses options that make no sense.
fn checked(what: MaintenanceAction) -> Result<MaintenanceAction, ApiError> {
    let MaintenanceAction::Drain(options) = &what else {
        return Ok(what);
    };
    if options
        .grace_period_seconds
        .is_some_and(|seconds| seconds < 0)
    {
        let text = "options.grace_period_seconds must not be negative";
        return Err(ApiError::BadRequest(text.to_owned()));
    }
    if options.parallel > MOST_PARALLEL {
        return Err(ApiError::BadRequest(format!(
            "options.parallel is {}: it must be at most {MOST_PARALLEL}",
            options.parallel
        )));
    }
    Ok(what)
}

#[tonic::async_trait]
impl<N: Maintained + NodeView> MaintenanceService for MaintenanceCalls<N> {
    async fn get_maintenance(
        &self,
        _request: Request<GetMaintenanceRequest>,
    ) -> Result<Response<GetMaintenanceResponse>, Status> {
        let maintenance = self.count("GetMaintenance", || self.0.maintenance())?;
        Ok(Response::new(GetMaintenanceResponse {
            maintenance: Some(maintenance),
        }))
    }

    async fn cordon(
        &self,
        request: Request<CordonRequest>,
    ) -> Result<Response<CordonResponse>, Status> {
        let asked = request.get_ref();
        let wanted = (
            MaintenanceAction::Cordon,
            asked.node_name.as_str(),
            asked.dry_run,
        );
        let (maintenance, changed) = self.maintain("Cordon", &request, wanted)?;
        Ok(Response::new(CordonResponse {
            maintenance: Some(maintenance),
            changed,
        }))
    }

    async fn uncordon(
        &self,
        request: Request<UncordonRequest>,
    ) -> Result<Response<UncordonResponse>, Status> {
        let asked = request.get_ref();
        let wanted = (
            MaintenanceAction::Uncordon,
            asked.node_name.as_str(),
            asked.dry_run,
        );
        let (maintenance, changed) = self.maintain("Uncordon", &request, wanted)?;
        Ok(Response::new(UncordonResponse {
            maintenance: Some(maintenance),
            changed,
        }))
    }

    async fn drain(
        &self,
        request: Request<DrainRequest>,
    ) -> Result<Response<DrainResponse>, Status> {
        let asked = request.get_ref();
        let options = asked.options.unwrap_or_default();
        let wanted = (
            MaintenanceAction::Drain(options),
            asked.node_name.as_str(),
            asked.dry_run,
        );
        let (maintenance, cordoned) = self.maintain("Drain", &request, wanted)?;
        Ok(Response::new(DrainResponse {
            maintenance: Some(maintenance),
            cordoned,
        }))
    }

    async fn cancel_drain(
        &self,
        request: Request<CancelDrainRequest>,
    ) -> Result<Response<CancelDrainResponse>, Status> {
        let wanted = (
            MaintenanceAction::CancelDrain,
            request.get_ref().node_name.as_str(),
            false,
        );
        let (maintenance, changed) = self.maintain("CancelDrain", &request, wanted)?;
        Ok(Response::new(CancelDrainResponse {
            maintenance: Some(maintenance),
            changed,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_that_makes_no_sense_is_refused_with_the_field() {
        let answer_to =
            |options| checked(MaintenanceAction::Drain(options)).map_err(|error| error.to_string());
        let fair = DrainOptions {
            grace_period_seconds: Some(0),
            parallel: MOST_PARALLEL,
            ..DrainOptions::default()
        };
        assert_eq!(answer_to(fair), Ok(MaintenanceAction::Drain(fair)));
        for (options, field) in [
            (
                DrainOptions {
                    grace_period_seconds: Some(-1),
                    ..fair
                },
                "options.grace_period_seconds",
            ),
            (
                DrainOptions {
                    parallel: MOST_PARALLEL + 1,
                    ..fair
                },
                "options.parallel",
            ),
        ] {
            let refused = answer_to(options).expect_err("is refused");
            assert!(refused.contains(field), "{refused}");
        }
    }
}
