//! The node of the agent in memory: cordoned, drained, and open again.

use proto_node::node::eviction::Step;
use proto_node::node::maintenance_service_server::MaintenanceService;
use proto_node::node::*;
use proto_node::{FailureReason, failure};
use tonic::{Request, Response, Status};

use super::agent::{Agent, MaintenanceState, Store};

fn check(node_name: &str) -> Result<(), Status> {
    if node_name.is_empty() || node_name == "node1" {
        return Ok(());
    }
    let text = format!("this is node \"node1\", not {node_name:?}");
    Err(failure(FailureReason::Conflict, &text))
}

impl Store {
    /// Guests end at the second look, but for those that must not.
    fn maintenance(&self, reads: u32) -> Maintenance {
        let maintenance = &self.maintenance;
        let drain = maintenance.drain.as_ref().map(|options| DrainStatus {
            options: Some(*options),
            evictions: self.evictions(options, reads),
            ..DrainStatus::default()
        });
        Maintenance {
            node_name: "node1".to_owned(),
            unschedulable: maintenance.cordoned,
            drain,
            ..Maintenance::default()
        }
    }

    fn evictions(&self, options: &DrainOptions, reads: u32) -> Vec<Eviction> {
        let vmis = self.objects.iter().filter_map(|(name, vmi)| {
            let strategy = vmi.spec.clone().unwrap_or_default().eviction_strategy;
            let step = match (strategy.as_str(), reads) {
                ("LiveMigrate", _) if !options.force => Step::Blocked,
                ("External", _) => Step::External,
                (_, 0) => Step::Waiting,
                (_, 1) => Step::Ending,
                _ => return None,
            };
            Some(Eviction {
                namespace: "default".to_owned(),
                name: name.clone(),
                uid: format!("uid-of-{name}"),
                step: step.into(),
                message: match step {
                    Step::Blocked => "it cannot be moved: drain with --force".to_owned(),
                    _ => String::new(),
                },
                eviction_strategy: strategy,
                grace_period_seconds: options.grace_period_seconds.unwrap_or(30),
            })
        });
        vmis.collect()
    }
}

#[tonic::async_trait]
impl MaintenanceService for Agent {
    async fn get_maintenance(
        &self,
        _request: Request<GetMaintenanceRequest>,
    ) -> Result<Response<GetMaintenanceResponse>, Status> {
        let mut store = self.store.lock().unwrap();
        store.maintenance.reads += 1;
        let reads = store.maintenance.reads;
        Ok(Response::new(GetMaintenanceResponse {
            maintenance: Some(store.maintenance(reads)),
        }))
    }

    async fn cordon(
        &self,
        request: Request<CordonRequest>,
    ) -> Result<Response<CordonResponse>, Status> {
        let request = request.into_inner();
        check(&request.node_name)?;
        let mut store = self.store.lock().unwrap();
        let changed = !store.maintenance.cordoned;
        store.maintenance.cordoned |= !request.dry_run;
        Ok(Response::new(CordonResponse {
            maintenance: Some(store.maintenance(0)),
            changed,
        }))
    }

    async fn uncordon(
        &self,
        request: Request<UncordonRequest>,
    ) -> Result<Response<UncordonResponse>, Status> {
        check(&request.into_inner().node_name)?;
        let mut store = self.store.lock().unwrap();
        let before = std::mem::take(&mut store.maintenance);
        Ok(Response::new(UncordonResponse {
            maintenance: Some(store.maintenance(0)),
            changed: before.cordoned,
        }))
    }

    async fn drain(
        &self,
        request: Request<DrainRequest>,
    ) -> Result<Response<DrainResponse>, Status> {
        let request = request.into_inner();
        check(&request.node_name)?;
        let mut store = self.store.lock().unwrap();
        let cordoned = !store.maintenance.cordoned;
        let before = std::mem::take(&mut store.maintenance);
        store.maintenance = MaintenanceState {
            cordoned: true,
            drain: request.options,
            reads: 0,
        };
        let maintenance = Some(store.maintenance(0));
        if request.dry_run {
            store.maintenance = before;
        }
        Ok(Response::new(DrainResponse {
            maintenance,
            cordoned,
        }))
    }

    async fn cancel_drain(
        &self,
        request: Request<CancelDrainRequest>,
    ) -> Result<Response<CancelDrainResponse>, Status> {
        check(&request.into_inner().node_name)?;
        let mut store = self.store.lock().unwrap();
        let changed = store.maintenance.drain.take().is_some();
        Ok(Response::new(CancelDrainResponse {
            maintenance: Some(store.maintenance(0)),
            changed,
        }))
    }
}
