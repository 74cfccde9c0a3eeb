//! Hyper-V's enlightenments.
//!
//! What an enlightenment needs is switched on with it by default; where that was disabled the VMI is refused.

use proto_machine::hyperv::{Enlightenment, MAX_HYPERV_VENDOR_BYTES, MIN_SPINLOCK_RETRIES};
use proto_node::vmi::{DomainSpec, FeatureHyperv, FeatureState};

use super::review::{Review, is_on};
use crate::cpu::HypervOptions;
use crate::error::{FieldError, Rule};

const HYPERV: &str = "spec.domain.features.hyperv";
const TIMER: &str = "spec.domain.clock.timer.hyperv";

/// What CPUID shows of Hyper-V; `None` when nothing is on.
pub(super) fn options(domain: &DomainSpec, review: &mut Review<'_>) -> Option<HypervOptions> {
    let mut options = HypervOptions::default();
    let features = domain.features.as_ref();
    let hyperv = features.and_then(|features| features.hyperv.as_ref());
    let passthrough = features.and_then(|features| features.hyperv_passthrough.as_ref());
    if passthrough.is_some_and(is_on) {
        options.passthrough = true;
        if hyperv.is_some() {
            review.push(FieldError::new(
                HYPERV,
                Rule::Invalid,
                "Cannot explicitly set hyperv features if HypervPassthrough is being used",
            ));
        }
    }
    if let Some(hyperv) = hyperv {
        check_needs(domain, hyperv, review);
        options.enlightenments.extend(enlightenments(hyperv));
        numbers(hyperv, &mut options, review);
    }
    if has_clock(domain) == Some(true) {
        options.enlightenments.insert(Enlightenment::Time);
    }
    (options != HypervOptions::default()).then_some(options)
}

/// Whether the guest needs a CPU with virtualisation.
pub(super) fn needs_vmx(options: Option<&HypervOptions>) -> bool {
    options.is_some_and(|options| options.enlightenments.contains(&Enlightenment::Evmcs))
}

/// Whether a state is there and on.
pub(super) fn on(state: &Option<FeatureState>) -> bool {
    state.as_ref().is_some_and(is_on)
}

/// Whether the guest has synthetic timers.
pub(super) fn has_timers(hyperv: &FeatureHyperv) -> bool {
    let timers = hyperv.synictimer.as_ref();
    timers.is_some_and(|timers| timers.enabled.unwrap_or(true))
}

fn has_flushes(hyperv: &FeatureHyperv) -> bool {
    let flushes = hyperv.tlbflush.as_ref();
    flushes.is_some_and(|flushes| flushes.enabled.unwrap_or(true))
}

/// Enlightenments that are on and need numbers of processors.
pub(super) fn needing_vpindex(hyperv: &FeatureHyperv) -> impl Iterator<Item = &'static str> {
    let who = [
        ("synic", on(&hyperv.synic)),
        ("ipi", on(&hyperv.ipi)),
        ("tlbflush", has_flushes(hyperv)),
    ];
    who.into_iter()
        .filter_map(|(name, is_on)| is_on.then_some(name))
}

/// What was left open is on; the rest may have been disabled.
fn check_needs(domain: &DomainSpec, hyperv: &FeatureHyperv, review: &mut Review<'_>) {
    let mut need = |name: &str, path: &str, is_on: bool| {
        if !is_on {
            let message = format!("'{HYPERV}.{name}' requires '{path}', which was disabled.");
            let field = format!("{HYPERV}.{name}");
            review.push(FieldError::new(field, Rule::Invalid, message));
        }
    };
    if has_timers(hyperv) {
        let path = format!("{HYPERV}.synic");
        need("synictimer", &path, on(&hyperv.synic));
        need("synictimer", TIMER, has_clock(domain) == Some(true));
    }
    for name in needing_vpindex(hyperv) {
        let path = format!("{HYPERV}.vpindex");
        need(name, &path, on(&hyperv.vpindex));
    }
    if on(&hyperv.evmcs) {
        let path = format!("{HYPERV}.vapic");
        need("evmcs", &path, on(&hyperv.vapic));
    }
}

/// Whether the reference clock is on; `None` where it is not given.
fn has_clock(domain: &DomainSpec) -> Option<bool> {
    let timer = domain.clock.as_ref()?.timer.as_ref()?.hyperv.as_ref()?;
    Some(timer.present.unwrap_or(true))
}

fn enlightenments(hyperv: &FeatureHyperv) -> impl Iterator<Item = Enlightenment> {
    use Enlightenment::{
        Evmcs, Frequencies, Ipi, Reenlightenment, Relaxed, Reset, Runtime, Synic, Synictimer,
        SynictimerDirect, Tlbflush, TlbflushDirect, TlbflushExtended, Vapic, Vpindex,
    };
    let (timers, flushes) = (has_timers(hyperv), has_flushes(hyperv));
    let direct_timers = hyperv.synictimer.as_ref().and_then(|timers| timers.direct);
    let flush = hyperv.tlbflush.unwrap_or_default();
    [
        (Relaxed, on(&hyperv.relaxed)),
        (Vapic, on(&hyperv.vapic)),
        (Vpindex, on(&hyperv.vpindex)),
        (Runtime, on(&hyperv.runtime)),
        (Synic, on(&hyperv.synic)),
        (Synictimer, timers),
        (SynictimerDirect, timers && on(&direct_timers)),
        (Reset, on(&hyperv.reset)),
        (Frequencies, on(&hyperv.frequencies)),
        (Reenlightenment, on(&hyperv.reenlightenment)),
        (Tlbflush, flushes),
        (TlbflushDirect, flushes && on(&flush.direct)),
        (TlbflushExtended, flushes && on(&flush.extended)),
        (Ipi, on(&hyperv.ipi)),
        (Evmcs, on(&hyperv.evmcs)),
    ]
    .into_iter()
    .filter_map(|(enlightenment, is_on)| is_on.then_some(enlightenment))
}

/// Spin locks and the signature, which are more than on or off.
fn numbers(hyperv: &FeatureHyperv, options: &mut HypervOptions, review: &mut Review<'_>) {
    if let Some(spinlocks) = &hyperv.spinlocks
        && spinlocks.enabled.unwrap_or(true)
    {
        let retries = spinlocks.spinlocks.unwrap_or(MIN_SPINLOCK_RETRIES);
        if retries < MIN_SPINLOCK_RETRIES {
            let path = format!("{HYPERV}.spinlocks.spinlocks");
            let message = format!("must be greater than or equal to {MIN_SPINLOCK_RETRIES}");
            review.unable(&path, &retries.to_string(), message);
        }
        options.spinlock_retries = retries;
    }
    if let Some(signature) = &hyperv.vendorid
        && signature.enabled.unwrap_or(true)
    {
        let vendor = &signature.vendorid;
        let is_printable = vendor.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if vendor.len() > MAX_HYPERV_VENDOR_BYTES || !is_printable {
            let path = format!("{HYPERV}.vendorid.vendorid");
            review.unable(&path, vendor, "must have at most 12 characters of ASCII");
        }
        options.vendor.clone_from(vendor);
    }
}
