//! CPUs and clocks of a VMI, for its VMM.

use agent_domain::{ClockTime, HypervOptions, KvmOptions, Vmi};
use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::hyperv::Enlightenment;
use proto_vmm::v1;

use crate::zone::{self, ZoneError};

/// vCPUs.
pub(super) fn cpus(vmi: &Vmi) -> v1::Cpus {
    let options = &vmi.cpu;
    let mut hyperv = options.hyperv.as_ref().map(hyperv);
    if vmi.panic_devices.hyperv {
        hyperv.get_or_insert_default().crash = true;
    }
    v1::Cpus {
        count: vmi.cpus.count(),
        sockets: vmi.cpus.sockets,
        cores: vmi.cpus.cores,
        threads: vmi.cpus.threads,
        max_sockets: options.max_sockets,
        model: options.model.clone(),
        features: options
            .features
            .iter()
            .map(|feature| v1::CpuFeature {
                name: feature.name.clone(),
                policy: policy(feature.policy).into(),
            })
            .collect(),
        hyperv,
        kvm: Some(kvm(options.kvm)),
        ..v1::Cpus::default()
    }
}

fn policy(policy: FeaturePolicy) -> v1::CpuFeaturePolicy {
    match policy {
        FeaturePolicy::Force => v1::CpuFeaturePolicy::Force,
        FeaturePolicy::Require => v1::CpuFeaturePolicy::Require,
        FeaturePolicy::Optional => v1::CpuFeaturePolicy::Optional,
        FeaturePolicy::Disable => v1::CpuFeaturePolicy::Disable,
        FeaturePolicy::Forbid => v1::CpuFeaturePolicy::Forbid,
    }
}

fn hyperv(options: &HypervOptions) -> v1::Hyperv {
    let mut wire = v1::Hyperv {
        passthrough: options.passthrough,
        spinlocks: options.spinlock_retries,
        vendorid: options.vendor.clone(),
        ..v1::Hyperv::default()
    };
    for enlightenment in &options.enlightenments {
        *match enlightenment {
            Enlightenment::Relaxed => &mut wire.relaxed,
            Enlightenment::Vapic => &mut wire.vapic,
            // Said by the number of tries.
            Enlightenment::Spinlocks => continue,
            Enlightenment::Vpindex => &mut wire.vpindex,
            Enlightenment::Runtime => &mut wire.runtime,
            Enlightenment::Time => &mut wire.time,
            Enlightenment::Synic => &mut wire.synic,
            Enlightenment::Synictimer => &mut wire.synictimer,
            Enlightenment::SynictimerDirect => &mut wire.synictimer_direct,
            Enlightenment::Reset => &mut wire.reset,
            Enlightenment::Frequencies => &mut wire.frequencies,
            Enlightenment::Reenlightenment => &mut wire.reenlightenment,
            Enlightenment::Tlbflush => &mut wire.tlbflush,
            Enlightenment::TlbflushDirect => &mut wire.tlbflush_direct,
            Enlightenment::TlbflushExtended => &mut wire.tlbflush_extended,
            Enlightenment::Ipi => &mut wire.ipi,
            Enlightenment::Evmcs => &mut wire.evmcs,
            Enlightenment::Crash => &mut wire.crash,
        } = true;
    }
    wire
}

fn kvm(options: KvmOptions) -> v1::KvmFeatures {
    let toggle = |choice: Option<bool>| match choice {
        None => v1::Toggle::Unspecified.into(),
        Some(true) => v1::Toggle::On.into(),
        Some(false) => v1::Toggle::Off.into(),
    };
    v1::KvmFeatures {
        hidden: options.hidden,
        clock: toggle(options.clock),
        spinlocks: toggle(options.spinlocks),
        end_of_interrupt: toggle(options.end_of_interrupt),
    }
}

/// Clocks that are not the CPUs'.
pub(super) fn clock(vmi: &Vmi) -> Result<v1::Clock, ZoneError> {
    Ok(v1::Clock {
        rtc_offset_seconds: match &vmi.clock.time {
            ClockTime::Utc { offset_seconds } => *offset_seconds,
            ClockTime::Zone { name } => zone::offset_now(name)?,
        },
        no_pit: !vmi.clock.pit,
        pit_discards_missed_ticks: vmi.clock.pit && vmi.clock.pit_discards_missed_ticks,
    })
}
