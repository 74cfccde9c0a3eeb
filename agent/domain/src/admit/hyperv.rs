//! Hyper-V's enlightenments.
//!
//! As KubeVirt does it, what an enlightenment needs is switched on with it, and shown in the object;
//! where that was disabled the VMI is refused.

use proto_node::vmi::{DomainSpec, FeatureHyperv, FeatureState, HypervTimer};

use super::review::{Review, is_on};
use crate::cpu::{Enlightenment, HypervOptions};
use crate::error::{FieldError, Rule};

const HYPERV: &str = "spec.domain.features.hyperv";
const TIMER: &str = "spec.domain.clock.timer.hyperv";
/// KubeVirt's least number of tries, and its default.
const MIN_RETRIES: u32 = 4096;
const MAX_VENDOR_BYTES: usize = 12;

/// What CPUID shows of Hyper-V; `None` when nothing is on.
pub(super) fn options(domain: &mut DomainSpec, review: &mut Review<'_>) -> Option<HypervOptions> {
    let mut options = HypervOptions::default();
    let mut hyperv = domain
        .features
        .as_ref()
        .and_then(|features| features.hyperv.clone());
    let passthrough = domain
        .features
        .as_ref()
        .and_then(|features| features.hyperv_passthrough.as_ref());
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
    if let Some(hyperv) = &mut hyperv {
        if on(&timers(hyperv)) {
            need(
                "synictimer",
                &format!("{HYPERV}.synic"),
                &mut hyperv.synic,
                review,
            );
            need_clock(domain, review);
        }
        switch_needs_on(hyperv, review);
        options.enlightenments.extend(enlightenments(hyperv));
        numbers(hyperv, &mut options, review);
    }
    if let (Some(features), Some(_)) = (&mut domain.features, &hyperv) {
        features.hyperv = hyperv;
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
fn on(state: &Option<FeatureState>) -> bool {
    state.as_ref().is_some_and(is_on)
}

fn timers(hyperv: &FeatureHyperv) -> Option<FeatureState> {
    let timers = hyperv.synictimer.as_ref()?;
    Some(FeatureState {
        enabled: timers.enabled,
    })
}

fn flushes(hyperv: &FeatureHyperv) -> Option<FeatureState> {
    let flushes = hyperv.tlbflush.as_ref()?;
    Some(FeatureState {
        enabled: flushes.enabled,
    })
}

fn switch_needs_on(hyperv: &mut FeatureHyperv, review: &mut Review<'_>) {
    let who = [
        ("synic", on(&hyperv.synic)),
        ("ipi", on(&hyperv.ipi)),
        ("tlbflush", on(&flushes(hyperv))),
    ];
    let vpindex = format!("{HYPERV}.vpindex");
    for (name, _) in who.into_iter().filter(|(_, is_on)| *is_on) {
        need(name, &vpindex, &mut hyperv.vpindex, review);
    }
    if on(&hyperv.evmcs) {
        need(
            "evmcs",
            &format!("{HYPERV}.vapic"),
            &mut hyperv.vapic,
            review,
        );
    }
}

/// Switches `state` on unless it was disabled.
fn need(name: &str, path: &str, state: &mut Option<FeatureState>, review: &mut Review<'_>) {
    match state {
        None => {
            *state = Some(FeatureState {
                enabled: Some(true),
            })
        }
        Some(state) if is_on(state) => {}
        Some(_) => disabled(name, path, review),
    }
}

fn disabled(name: &str, path: &str, review: &mut Review<'_>) {
    let message = format!("'{HYPERV}.{name}' requires '{path}', which was disabled.");
    review.push(FieldError::new(
        format!("{HYPERV}.{name}"),
        Rule::Invalid,
        message,
    ));
}

/// Synthetic timers count by the reference clock, which is a timer of the machine's clock.
fn need_clock(domain: &mut DomainSpec, review: &mut Review<'_>) {
    match has_clock(domain) {
        Some(true) => {}
        Some(false) => disabled("synictimer", TIMER, review),
        None => {
            let clock = domain.clock.get_or_insert_default();
            clock.timer.get_or_insert_default().hyperv = Some(HypervTimer {
                present: Some(true),
            });
        }
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
    let timers = timers(hyperv);
    let direct_timers = hyperv.synictimer.as_ref().and_then(|timers| timers.direct);
    let flushes = flushes(hyperv);
    let flush = hyperv.tlbflush.unwrap_or_default();
    [
        (Relaxed, on(&hyperv.relaxed)),
        (Vapic, on(&hyperv.vapic)),
        (Vpindex, on(&hyperv.vpindex)),
        (Runtime, on(&hyperv.runtime)),
        (Synic, on(&hyperv.synic)),
        (Synictimer, on(&timers)),
        (SynictimerDirect, on(&timers) && on(&direct_timers)),
        (Reset, on(&hyperv.reset)),
        (Frequencies, on(&hyperv.frequencies)),
        (Reenlightenment, on(&hyperv.reenlightenment)),
        (Tlbflush, on(&flushes)),
        (TlbflushDirect, on(&flushes) && on(&flush.direct)),
        (TlbflushExtended, on(&flushes) && on(&flush.extended)),
        (Ipi, on(&hyperv.ipi)),
        (Evmcs, on(&hyperv.evmcs)),
    ]
    .into_iter()
    .filter_map(|(enlightenment, is_on)| is_on.then_some(enlightenment))
}

/// Spin locks and the signature, which are more than on or off.
fn numbers(hyperv: &mut FeatureHyperv, options: &mut HypervOptions, review: &mut Review<'_>) {
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && spinlocks.enabled.unwrap_or(true)
    {
        let retries = *spinlocks.spinlocks.get_or_insert(MIN_RETRIES);
        if retries < MIN_RETRIES {
            let path = format!("{HYPERV}.spinlocks.spinlocks");
            let message = format!("must be greater than or equal to {MIN_RETRIES}");
            review.unable(&path, &retries.to_string(), message);
        }
        options.spinlock_retries = retries;
    }
    if let Some(signature) = &hyperv.vendorid
        && signature.enabled.unwrap_or(true)
    {
        let vendor = &signature.vendorid;
        let is_printable = vendor.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if vendor.len() > MAX_VENDOR_BYTES || !is_printable {
            let path = format!("{HYPERV}.vendorid.vendorid");
            review.unable(&path, vendor, "must have at most 12 characters of ASCII");
        }
        options.vendor.clone_from(vendor);
    }
}
