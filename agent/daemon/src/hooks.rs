//! Hook points: what an operator's programs and servers say about machines.

use std::path::{Path, PathBuf};

use agent_domain::{DiskSource, Vmi, cloud_init_volumes, describe, with_cloud_init, with_machine};
use agent_host::{HookPoint, hook_programs, meta_data, run_hook_program};
use agent_plan::{Action, Failure, FailureClass, PciAddresses};
use agent_sources::HookSocket;
use proto_node::hooks::{
    CloudInit, OnDefineDomainRequest, OnDefineDomainResponse, PreCloudInitIsoRequest,
    PreCloudInitIsoResponse, ShutdownRequest,
};
use proto_node::vmi::VirtualMachineInstance;
use proto_node::{Node, from_node, to_json};
use tracing::warn;

use crate::config::{FailurePolicy, Hooks};

/// One who is asked.
enum Hook {
    Program(PathBuf),
    Socket(PathBuf),
}

impl Hook {
    fn path(&self) -> &Path {
        match self {
            Self::Program(path) | Self::Socket(path) => path,
        }
    }
}

/// Asks whoever is to be asked before an action, and gives the VMI that it is carried out with.
///
/// # Errors
/// When a hook fails, unless the policy is to go on without it.
pub(crate) async fn before(
    action: &Action,
    settings: &Hooks,
    object: &VirtualMachineInstance,
    vmi: &Vmi,
) -> Result<Vmi, Failure> {
    match action {
        Action::ConfigureVmm { .. } => on_define_domain(settings, object, vmi).await,
        Action::PressPowerButton { .. } => {
            shutdown(settings, object).await;
            Ok(vmi.clone())
        }
        _ => Ok(vmi.clone()),
    }
}

/// Every hook sees what those before it made of the machine.
async fn on_define_domain(
    settings: &Hooks,
    object: &VirtualMachineInstance,
    vmi: &Vmi,
) -> Result<Vmi, Failure> {
    let mut vmi = vmi.clone();
    for hook in hooks(settings).await? {
        let request = OnDefineDomainRequest {
            vmi: Some(object.clone()),
            machine: Some(describe(&vmi)),
        };
        match define(settings, &hook, request, &vmi).await {
            Ok(changed) => vmi = changed,
            Err(why) => fail(settings, hook.path(), &why)?,
        }
    }
    Ok(vmi)
}

async fn define(
    settings: &Hooks,
    hook: &Hook,
    request: OnDefineDomainRequest,
    vmi: &Vmi,
) -> Result<Vmi, String> {
    let response: OnDefineDomainResponse = match hook {
        Hook::Program(program) => {
            let input = to_json(&request).to_string();
            let answer =
                answer_of(&ask(settings, program, HookPoint::OnDefineDomain, &input).await?)?;
            from_node(&answer).map_err(|errors| joined(&errors))?
        }
        Hook::Socket(path) => {
            let limit = settings.limit();
            let answer = HookSocket { path, limit }.on_define_domain(request).await;
            answer.map_err(|status| status.message().to_owned())?
        }
    };
    match response.machine {
        Some(machine) => with_machine(vmi, machine).map_err(|errors| joined(&errors)),
        None => Ok(vmi.clone()),
    }
}

/// Asks whoever is to be asked before the volumes for cloud-init are made, once all that is to be on them was read, and
/// gives the VMI with what is to be on them.
///
/// # Errors
/// When a hook fails, unless the policy is to go on without it.
pub(crate) async fn before_iso(
    action: &Action,
    settings: &Hooks,
    (object, addresses): (&VirtualMachineInstance, &PciAddresses),
    mut vmi: Vmi,
) -> Result<Vmi, Failure> {
    if !matches!(action, Action::ConfigureVmm { .. }) || cloud_init_volumes(&vmi).is_empty() {
        return Ok(vmi);
    }
    let hooks = hooks(settings).await?;
    if !hooks.is_empty() {
        fill_meta_data(&mut vmi, addresses)?;
    }
    for hook in hooks {
        // Each hook sees what those before it made of the volume.
        for cloud_init in cloud_init_volumes(&vmi) {
            let request = PreCloudInitIsoRequest {
                vmi: Some(object.clone()),
                cloud_init: Some(cloud_init.clone()),
            };
            match pre_cloud_init_iso(settings, &hook, request).await {
                Ok(None) => {}
                Ok(Some(changed)) => match with_cloud_init(&vmi, &cloud_init.volume, changed) {
                    Ok(with) => vmi = with,
                    Err(error) => fail(settings, hook.path(), &joined(&[error]))?,
                },
                Err(why) => fail(settings, hook.path(), &why)?,
            }
        }
    }
    Ok(vmi)
}

/// Has hooks see what is to be in the meta-data.
fn fill_meta_data(vmi: &mut Vmi, addresses: &PciAddresses) -> Result<(), Failure> {
    let of = vmi.clone();
    for disk in &mut vmi.disks {
        if let DiskSource::CloudInit(cloud_init) = &mut disk.source {
            let bytes = meta_data(&of, addresses, cloud_init).map_err(|error| {
                let name = disk.name.as_str();
                failed(format!("the meta-data of volume {name:?}: {error}"))
            })?;
            cloud_init.meta_data = Some(bytes);
        }
    }
    Ok(())
}

async fn pre_cloud_init_iso(
    settings: &Hooks,
    hook: &Hook,
    request: PreCloudInitIsoRequest,
) -> Result<Option<CloudInit>, String> {
    let response: PreCloudInitIsoResponse = match hook {
        Hook::Program(program) => {
            let input = to_json(&request).to_string();
            let answer =
                answer_of(&ask(settings, program, HookPoint::PreCloudInitIso, &input).await?)?;
            from_node(&answer).map_err(|errors| joined(&errors))?
        }
        Hook::Socket(path) => {
            let limit = settings.limit();
            let answer = HookSocket { path, limit }.pre_cloud_init_iso(request).await;
            answer.map_err(|status| status.message().to_owned())?
        }
    };
    Ok(response.cloud_init)
}

/// What a program answered; nothing means that all is as it should be.
fn answer_of(output: &[u8]) -> Result<Node, String> {
    if output.is_empty() {
        return Ok(Node::from(serde_json::json!({})));
    }
    let json: serde_json::Value = serde_json::from_slice(output)
        .map_err(|error| format!("its answer is no JSON: {error}"))?;
    Ok(Node::from(json))
}

/// Nobody keeps a guest from being ended by failing.
async fn shutdown(settings: &Hooks, object: &VirtualMachineInstance) {
    let hooks = match hooks(settings).await {
        Ok(hooks) => hooks,
        Err(failure) => return warn!("{}", failure.message),
    };
    for hook in hooks {
        let request = ShutdownRequest {
            vmi: Some(object.clone()),
        };
        let called = match &hook {
            Hook::Program(program) => {
                let input = to_json(&request).to_string();
                ask(settings, program, HookPoint::Shutdown, &input)
                    .await
                    .map(drop)
            }
            Hook::Socket(path) => {
                let limit = settings.limit();
                let answer = HookSocket { path, limit }.shutdown(request).await;
                answer
                    .map(drop)
                    .map_err(|status| status.message().to_owned())
            }
        };
        if let Err(why) = called {
            warn!("{}", message_of(hook.path(), &why));
        }
    }
}

async fn ask(
    settings: &Hooks,
    program: &Path,
    point: HookPoint,
    input: &str,
) -> Result<Vec<u8>, String> {
    let helper = std::env::current_exe().map_err(|error| error.to_string())?;
    run_hook_program(&helper, program, point, input.as_bytes(), settings.limit())
        .await
        .map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

/// Who is asked, in order.
async fn hooks(settings: &Hooks) -> Result<Vec<Hook>, Failure> {
    let programs = hook_programs(&settings.directory).await;
    let programs = programs.map_err(|error| failed(format!("{:#}", anyhow::Error::from(error))))?;
    let programs = programs.into_iter().map(Hook::Program);
    let sockets = settings.sockets.iter().cloned().map(Hook::Socket);
    Ok(programs.chain(sockets).collect())
}

/// Applies the failure policy to a hook that failed.
fn fail(settings: &Hooks, hook: &Path, why: &str) -> Result<(), Failure> {
    let message = message_of(hook, why);
    match settings.failure_policy {
        FailurePolicy::Fail => Err(failed(message)),
        FailurePolicy::Ignore => {
            warn!("{message}; the guest is started without it (hooks.failure_policy)");
            Ok(())
        }
    }
}

fn message_of(hook: &Path, why: &str) -> String {
    format!("hook {}: {why}", hook.display())
}

fn failed(message: String) -> Failure {
    Failure {
        class: FailureClass::Retry,
        reason: String::from("HookFailed"),
        message,
    }
}

fn joined<E: ToString>(errors: &[E]) -> String {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    format!("its answer is refused: {}", texts.join("; "))
}
