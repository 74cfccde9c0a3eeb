//! What Hyper-V's enlightenments need: as KubeVirt does it, it is switched on with them, and shown in the object.

use proto_machine::hyperv::MIN_SPINLOCK_RETRIES;
use proto_node::vmi::{DomainSpec, FeatureState, HypervTimer};

use crate::admit::hyperv::{has_timers, needing_vpindex, on};

/// What was disabled stays so, and is refused.
pub(super) fn fill(domain: &mut DomainSpec) {
    let features = domain.features.as_mut();
    let Some(hyperv) = features.and_then(|features| features.hyperv.as_mut()) else {
        return;
    };
    let has_timers = has_timers(hyperv);
    if has_timers {
        switch_on(&mut hyperv.synic);
    }
    if needing_vpindex(hyperv).next().is_some() {
        switch_on(&mut hyperv.vpindex);
    }
    if on(&hyperv.evmcs) {
        switch_on(&mut hyperv.vapic);
    }
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && spinlocks.enabled.unwrap_or(true)
    {
        spinlocks.spinlocks.get_or_insert(MIN_SPINLOCK_RETRIES);
    }
    // Synthetic timers count by the reference clock, which is a timer of the machine's clock.
    if has_timers {
        let clock = domain.clock.get_or_insert_default();
        let timer = clock.timer.get_or_insert_default();
        timer.hyperv.get_or_insert(HypervTimer {
            present: Some(true),
        });
    }
}

fn switch_on(state: &mut Option<FeatureState>) {
    state.get_or_insert(FeatureState {
        enabled: Some(true),
    });
}
