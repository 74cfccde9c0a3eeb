//! Judging: whether a VMI with all its defaults is legal and can be honoured, and what its fields mean.
//!
//! A judge that finds a value in order has read it, and gives what it read to [`convert`](super::convert), which asks nothing
//! again.

#[cfg(test)]
mod tests;

use std::time::Duration;

use proto_machine::smbios::SmbiosConfig;
use proto_node::vmi::{Devices, DomainSpec, VirtualMachineInstanceSpec};

use super::about::{self, About};
use super::admitted::Remark;
use super::boot::Booted;
use super::compute::Compute;
use super::defaults::Defaulted;
use super::review::Review;
use super::{
    access, boot, boot_order, clock, compute, disks, dns, identity, life, machine, metadata,
    network, pci, probes, rules, unsupported,
};
use crate::access::AccessCredential;
use crate::cpu::ClockOptions;
use crate::error::FieldError;
use crate::pod::GuestNames;
use crate::probe::Probes;
use crate::vmi::{BootDevice, Disk, Interface, PanicDevices, WatchdogAction};

/// What was found of a VMI.
pub struct Judgement<'a> {
    /// The VMI, or every rule that is broken.
    pub outcome: Result<JudgedVmi<'a>, Vec<FieldError>>,
    /// Advice to whoever applies, one sentence each.
    pub warnings: Vec<String>,
    /// Fields that were accepted and have no effect: path and reason.
    pub ignored: Vec<Remark>,
    /// Devices that are provided as virtio instead of what was asked: path and sentence.
    pub substituted: Vec<Remark>,
}

/// A VMI that breaks no rule, and what was read of it. Nothing but [`judge_vmi`] makes one.
pub struct JudgedVmi<'a> {
    pub(super) about: About,
    pub(super) spec: &'a VirtualMachineInstanceSpec,
    pub(super) domain: &'a DomainSpec,
    pub(super) devices: &'a Devices,
    pub(super) compute: Compute,
    pub(super) booted: Booted,
    pub(super) parts: Parts,
}

/// What judges read of the parts of a spec, each its own.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Parts {
    pub(super) grace_period: Duration,
    pub(super) start_paused: bool,
    pub(super) disks: Vec<Disk>,
    pub(super) access_credentials: Vec<AccessCredential>,
    pub(super) interfaces: Vec<Interface>,
    pub(super) probes: Probes,
    pub(super) names: GuestNames,
    compute: Option<Compute>,
    pub(super) clock: ClockOptions,
    pub(super) identity: SmbiosConfig,
    booted: Option<Booted>,
    pub(super) watchdog: Option<WatchdogAction>,
    pub(super) panic: PanicDevices,
    pub(super) boot_order: Vec<BootDevice>,
}

/// Judges one part of a spec. It looks at the spec alone, and neither at what others found nor at what they read: judges may
/// be asked in any order. One of a part that is not there, which was reported already where it must be, is not asked.
#[derive(Clone, Copy)]
enum Judge {
    Spec(fn(&VirtualMachineInstanceSpec, &mut Review<'_>, &mut Parts)),
    Domain(fn(&DomainSpec, &mut Review<'_>, &mut Parts)),
    Devices(fn(&Devices, &mut Review<'_>, &mut Parts)),
}

/// All judges of a spec, in the order in which errors are reported.
const JUDGES: [Judge; 19] = [
    Judge::Spec(|spec, review, _| machine::check_architecture(spec, review)),
    Judge::Spec(|spec, review, _| metadata::check_names(spec, review)),
    Judge::Spec(|spec, review, _| unsupported::check(spec, review)),
    Judge::Spec(|spec, review, parts| parts.grace_period = life::grace_period(spec, review)),
    Judge::Spec(|spec, review, parts| parts.start_paused = life::start_paused(spec, review)),
    Judge::Spec(|spec, review, parts| parts.disks = disks::judge(spec, review)),
    Judge::Spec(|spec, review, parts| parts.access_credentials = access::judge(spec, review)),
    Judge::Spec(|spec, review, parts| parts.interfaces = network::judge(spec, review)),
    Judge::Spec(|spec, review, parts| parts.probes = probes::judge(spec, review)),
    Judge::Spec(|spec, review, parts| parts.names = dns::judge(spec, review)),
    Judge::Spec(|spec, review, parts| parts.compute = compute::judge(spec, review)),
    Judge::Domain(|domain, review, parts| parts.clock = clock::judge(domain, review)),
    Judge::Domain(|domain, review, parts| parts.identity = identity::judge(domain, review)),
    Judge::Domain(|domain, review, parts| parts.booted = boot::judge(domain, review)),
    Judge::Devices(|devices, review, parts| parts.watchdog = life::watchdog(devices, review)),
    Judge::Devices(|devices, review, parts| parts.panic = life::panic_devices(devices, review)),
    Judge::Domain(|domain, review, parts| parts.boot_order = boot_order::judge(domain, review)),
    Judge::Devices(|devices, review, _| pci::check_count(devices, review)),
    Judge::Devices(|devices, review, _| pci::check(devices, review)),
];

impl Judge {
    fn ask(self, spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>, parts: &mut Parts) {
        let domain = spec.domain.as_ref();
        let devices = domain.and_then(|domain| domain.devices.as_ref());
        match self {
            Self::Spec(judge) => judge(spec, review, parts),
            Self::Domain(judge) => domain.into_iter().for_each(|it| judge(it, review, parts)),
            Self::Devices(judge) => devices.into_iter().for_each(|it| judge(it, review, parts)),
        }
    }
}

/// Judges a VMI: the rules that its descriptors state, its metadata, and its spec part by part. Every rule is
/// judged even when others are broken, so that a caller sees all errors at once.
#[must_use]
pub fn judge_vmi<'a>(defaulted: &'a Defaulted<'_>) -> Judgement<'a> {
    let object = defaulted.object();
    let mut review = Review::new(defaulted.purpose());
    // The status is the node's own.
    rules::check(object, &["status"], &mut review);
    let about = object
        .metadata
        .as_ref()
        .and_then(|metadata| about::judge(metadata, &mut review));
    if let Some(about) = &about {
        review.namespace.clone_from(&about.namespace.0);
    }
    let mut parts = Parts::default();
    if let Some(spec) = &object.spec {
        for judge in JUDGES {
            judge.ask(spec, &mut review, &mut parts);
        }
    }
    let judged = object
        .spec
        .as_ref()
        .and_then(|spec| judged(spec, about, parts));
    Judgement {
        outcome: match judged {
            Some(judged) if review.errors.is_empty() => Ok(judged),
            _ => Err(review.errors),
        },
        warnings: review.warnings,
        ignored: review.ignored,
        substituted: review.substituted,
    }
}

/// All that a VMI needs; a judge that did not read its part has reported why.
fn judged(
    spec: &VirtualMachineInstanceSpec,
    about: Option<About>,
    mut parts: Parts,
) -> Option<JudgedVmi<'_>> {
    let domain = spec.domain.as_ref()?;
    Some(JudgedVmi {
        about: about?,
        spec,
        domain,
        devices: domain.devices.as_ref()?,
        compute: parts.compute.take()?,
        booted: parts.booted.take()?,
        parts,
    })
}
