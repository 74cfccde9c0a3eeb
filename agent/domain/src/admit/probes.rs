//! Probes: KubeVirt's defaults and rules, and those of the pod that it would make.

mod endpoint;
mod request;

use std::time::Duration;

use proto_node::vmi::{ExecAction, Probe as WireProbe, VirtualMachineInstanceSpec};

use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::probe::{Probe, Probes, Question};

const LIVENESS: &str = "spec.livenessProbe";
const READINESS: &str = "spec.readinessProbe";

/// More words, or more bytes of all words, are no command.
const MAX_WORDS: usize = 256;
const MAX_COMMAND_BYTES: usize = 16 << 10;

/// Reads the probes.
pub(super) fn judge(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> Probes {
    let mut read = |path: &str, probe: Option<&WireProbe>| {
        probe.and_then(|probe| self::probe(path, probe, spec, review))
    };
    let probes = Probes {
        liveness: read(LIVENESS, spec.liveness_probe.as_ref()),
        readiness: read(READINESS, spec.readiness_probe.as_ref()),
    };
    if let Some(probe) = spec
        .liveness_probe
        .as_ref()
        .filter(|probe| probe.success_threshold != 1)
    {
        let field = format!("{LIVENESS}.successThreshold");
        review.invalid(&field, &probe.success_threshold.to_string(), "must be 1");
    }
    probes
}

fn probe(
    path: &str,
    probe: &WireProbe,
    spec: &VirtualMachineInstanceSpec,
    review: &mut Review<'_>,
) -> Option<Probe> {
    let question = question(path, probe, spec, review);
    let initial_delay = u64::try_from(probe.initial_delay_seconds).unwrap_or_else(|_| {
        review.unable(
            &format!("{path}.initialDelaySeconds"),
            &probe.initial_delay_seconds.to_string(),
            "must be greater than or equal to 0",
        );
        0
    });
    Some(Probe {
        initial_delay: Duration::from_secs(initial_delay),
        timeout: Duration::from_secs(positive(probe.timeout_seconds).into()),
        period: Duration::from_secs(positive(probe.period_seconds).into()),
        success_threshold: positive(probe.success_threshold),
        failure_threshold: positive(probe.failure_threshold),
        question: question?,
    })
}

/// A number that is at least 1 once defaults were filled in.
fn positive(value: i32) -> u32 {
    value.max(1).unsigned_abs()
}

/// The one question that is asked.
fn question(
    path: &str,
    probe: &WireProbe,
    spec: &VirtualMachineInstanceSpec,
    review: &mut Review<'_>,
) -> Option<Question> {
    let count = usize::from(probe.exec.is_some())
        + usize::from(probe.http_get.is_some())
        + usize::from(probe.tcp_socket.is_some())
        + usize::from(probe.guest_agent_ping.is_some());
    if count > 1 {
        let message = format!("{path} must have exactly one probe type set");
        review.push(FieldError::new(path, Rule::Invalid, message));
        return None;
    }
    if let Some(exec) = &probe.exec {
        return command(&format!("{path}.exec.command"), exec, review).map(Question::Exec);
    }
    if let Some(get) = &probe.http_get {
        return request::admit(&format!("{path}.httpGet"), get, spec, review).map(Question::Http);
    }
    if let Some(tcp) = &probe.tcp_socket {
        let path = format!("{path}.tcpSocket");
        let asked = (tcp.host.as_str(), tcp.port.as_slice());
        return endpoint::admit(&path, asked, spec, review).map(Question::Tcp);
    }
    if probe.guest_agent_ping.is_some() {
        return Some(Question::GuestAgentPing);
    }
    let message = format!(
        "either {path}.tcpSocket, {path}.exec or {path}.httpGet must be set if a {path} is specified"
    );
    review.push(FieldError::new(path, Rule::Required, message).fix("or guestAgentPing: {}"));
    None
}

fn command(path: &str, exec: &ExecAction, review: &mut Review<'_>) -> Option<Vec<String>> {
    let words = &exec.command;
    let bytes: usize = words.iter().map(String::len).sum();
    if words.first().is_none_or(String::is_empty) {
        // KubeVirt takes it, and the probe fails.
        review.missing(path, "");
    } else if words.iter().any(|word| word.contains('\0')) {
        review.invalid(path, &words.concat(), "must not contain NUL characters");
    } else if words.len() > MAX_WORDS || bytes > MAX_COMMAND_BYTES {
        let message = format!("at most {MAX_WORDS} words and {MAX_COMMAND_BYTES} bytes");
        let error = FieldError::new(path, Rule::Invalid, message);
        review.push(
            error
                .fix("put a script into the guest")
                .beyond(Bound::Release),
        );
    } else {
        return Some(words.clone());
    }
    None
}
