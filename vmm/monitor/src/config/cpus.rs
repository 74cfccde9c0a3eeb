//! `cpus` of a machine's configuration.

use proto_machine::cpu_features::FeaturePolicy;
use proto_machine::cpu_models::NamedModel;
use proto_machine::hyperv::{Enlightenment, MAX_HYPERV_VENDOR_BYTES, MIN_SPINLOCK_RETRIES};
use proto_vmm::v1;
use vmm_machine::{
    CpuConfig, CpuModel, CpuTopology, Feature, HypervConfig, KvmConfig, Toggle, TscConfig,
};

use super::error::{FieldError, unknown};

/// More than there are features with names.
const MAX_FEATURES: usize = 512;

/// Checks all that can be known without the host.
pub(super) fn cpus(wire: Option<&v1::Cpus>) -> Result<CpuConfig, FieldError> {
    let wire = wire.ok_or_else(|| FieldError::new("cpus", "is missing"))?;
    let hyperv = wire.hyperv.as_ref().map(hyperv).transpose()?;
    let tsc = wire.tsc.unwrap_or_default();
    let config = CpuConfig {
        topology: topology(wire)?,
        model: model(&wire.model)?,
        features: features(&wire.features)?,
        hyperv: hyperv.unwrap_or_default(),
        kvm: kvm(wire.kvm.unwrap_or_default())?,
        tsc: TscConfig {
            khz: (tsc.khz > 0).then_some(tsc.khz),
            leaves: tsc.leaves,
        },
    };
    config.hyperv.check().map_err(|error| {
        let field = format!("cpus.{}", error.field());
        FieldError::new(field, format!("cannot be: {error}"))
    })?;
    Ok(config)
}

fn topology(wire: &v1::Cpus) -> Result<CpuTopology, FieldError> {
    let max_sockets = if wire.max_sockets == 0 {
        wire.sockets
    } else {
        wire.max_sockets
    };
    let topology = CpuTopology::new(max_sockets, wire.cores, wire.threads)
        .and_then(|topology| topology.with_boot_sockets(wire.sockets))
        .map_err(|error| FieldError::new("cpus", format!("cannot be built: {error}")))?;
    if topology.count() != wire.count {
        let rule = format!(
            "is {}, but sockets, cores and threads make {}",
            wire.count,
            topology.count()
        );
        return Err(FieldError::new("cpus.count", rule));
    }
    Ok(topology)
}

fn model(name: &str) -> Result<CpuModel, FieldError> {
    match name {
        "" | "host-passthrough" => Ok(CpuModel::HostPassthrough),
        "host-model" => Ok(CpuModel::HostModel),
        _ => NamedModel::by_name(name)
            .map(CpuModel::Named)
            .ok_or_else(|| {
                let rule = format!(
                    "is {name:?}; known are host-passthrough, host-model, {}",
                    NamedModel::names()
                );
                FieldError::new("cpus.model", rule)
            }),
    }
}

fn features(wire: &[v1::CpuFeature]) -> Result<Vec<(Feature, FeaturePolicy)>, FieldError> {
    if wire.len() > MAX_FEATURES {
        let rule = format!("has {} entries, more than {MAX_FEATURES}", wire.len());
        return Err(FieldError::new("cpus.features", rule));
    }
    let mut features: Vec<(Feature, FeaturePolicy)> = Vec::with_capacity(wire.len());
    for (index, entry) in wire.iter().enumerate() {
        let name = || format!("cpus.features[{index}].name");
        let feature = Feature::by_name(&entry.name).ok_or_else(|| {
            let rule = format!(
                "is {:?}, which is no feature that has a name here",
                entry.name
            );
            FieldError::new(name(), rule)
        })?;
        if let Some(first) = features.iter().position(|(known, _)| *known == feature) {
            let rule = format!("is {feature}, as that of features[{first}] is");
            return Err(FieldError::new(name(), rule));
        }
        features.push((feature, policy(index, entry.policy)?));
    }
    Ok(features)
}

fn policy(index: usize, wire: i32) -> Result<FeaturePolicy, FieldError> {
    use v1::CpuFeaturePolicy as Wire;
    Ok(match Wire::try_from(wire) {
        Ok(Wire::Unspecified | Wire::Require) => FeaturePolicy::Require,
        Ok(Wire::Force) => FeaturePolicy::Force,
        Ok(Wire::Optional) => FeaturePolicy::Optional,
        Ok(Wire::Disable) => FeaturePolicy::Disable,
        Ok(Wire::Forbid) => FeaturePolicy::Forbid,
        Err(_) => return Err(unknown(&format!("cpus.features[{index}].policy"), wire)),
    })
}

fn hyperv(wire: &v1::Hyperv) -> Result<HypervConfig, FieldError> {
    if (1..MIN_SPINLOCK_RETRIES).contains(&wire.spinlocks) {
        let rule = format!(
            "is {}; it must be 0 or at least {MIN_SPINLOCK_RETRIES}",
            wire.spinlocks
        );
        return Err(FieldError::new("cpus.hyperv.spinlocks", rule));
    }
    let vendor = wire.vendorid.as_str();
    let is_printable = vendor.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if vendor.len() > MAX_HYPERV_VENDOR_BYTES || !is_printable {
        let rule =
            format!("is {vendor:?}; at most {MAX_HYPERV_VENDOR_BYTES} bytes of ASCII are allowed");
        return Err(FieldError::new("cpus.hyperv.vendorid", rule));
    }
    let enlightenments = Enlightenment::ALL
        .into_iter()
        .filter(|enlightenment| is_on(wire, *enlightenment))
        .collect();
    Ok(HypervConfig {
        enlightenments,
        passthrough: wire.passthrough,
        spinlock_retries: wire.spinlocks,
        vendor: (!vendor.is_empty()).then(|| vendor.to_owned()),
    })
}

fn is_on(wire: &v1::Hyperv, enlightenment: Enlightenment) -> bool {
    match enlightenment {
        Enlightenment::Relaxed => wire.relaxed,
        Enlightenment::Vapic => wire.vapic,
        Enlightenment::Spinlocks => wire.spinlocks > 0,
        Enlightenment::Vpindex => wire.vpindex,
        Enlightenment::Runtime => wire.runtime,
        Enlightenment::Synic => wire.synic,
        Enlightenment::Synictimer => wire.synictimer,
        Enlightenment::SynictimerDirect => wire.synictimer_direct,
        Enlightenment::Reset => wire.reset,
        Enlightenment::Frequencies => wire.frequencies,
        Enlightenment::Reenlightenment => wire.reenlightenment,
        Enlightenment::Tlbflush => wire.tlbflush,
        Enlightenment::TlbflushExtended => wire.tlbflush_extended,
        Enlightenment::TlbflushDirect => wire.tlbflush_direct,
        Enlightenment::Ipi => wire.ipi,
        Enlightenment::Evmcs => wire.evmcs,
        Enlightenment::Time => wire.time,
        Enlightenment::Crash => wire.crash,
    }
}

fn kvm(wire: v1::KvmFeatures) -> Result<KvmConfig, FieldError> {
    Ok(KvmConfig {
        hidden: wire.hidden,
        clock: toggle("cpus.kvm.clock", wire.clock)?,
        spinlocks: toggle("cpus.kvm.spinlocks", wire.spinlocks)?,
        end_of_interrupt: toggle("cpus.kvm.end_of_interrupt", wire.end_of_interrupt)?,
    })
}

fn toggle(field: &str, wire: i32) -> Result<Toggle, FieldError> {
    Ok(match v1::Toggle::try_from(wire) {
        Ok(v1::Toggle::Unspecified) => Toggle::HostDefault,
        Ok(v1::Toggle::Off) => Toggle::Off,
        Ok(v1::Toggle::On) => Toggle::On,
        Err(_) => return Err(unknown(field, wire)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> v1::Cpus {
        v1::Cpus {
            count: 2,
            sockets: 1,
            cores: 2,
            threads: 1,
            ..v1::Cpus::default()
        }
    }

    fn feature(name: &str, policy: i32) -> v1::CpuFeature {
        v1::CpuFeature {
            name: name.to_owned(),
            policy,
        }
    }

    fn field_of(wire: &v1::Cpus) -> String {
        cpus(Some(wire)).unwrap_err().field
    }

    #[test]
    fn what_is_left_out_is_the_hosts() {
        let topology = CpuTopology::new(1, 2, 1).unwrap();
        assert_eq!(cpus(Some(&wire())), Ok(CpuConfig::passthrough(topology)));
        assert_eq!(cpus(None).unwrap_err().field, "cpus");
    }

    #[test]
    fn sockets_may_be_yet_to_come() {
        let mut cpus_wire = wire();
        cpus_wire.max_sockets = 4;
        let topology = cpus(Some(&cpus_wire)).unwrap().topology;
        assert_eq!((topology.count(), topology.max_count()), (2, 8));
        cpus_wire.sockets = 5;
        cpus_wire.count = 10;
        assert_eq!(field_of(&cpus_wire), "cpus");
    }

    #[test]
    fn every_wrong_field_is_named() {
        let mut cpus = wire();
        cpus.model = "Pentium".to_owned();
        assert_eq!(field_of(&cpus), "cpus.model");

        let mut cpus = wire();
        cpus.features = vec![feature("aes", 0), feature("ase", 0)];
        assert_eq!(field_of(&cpus), "cpus.features[1].name");
        cpus.features = vec![
            feature("sse4_1", 0),
            feature("aes", 2),
            feature("sse4.1", 4),
        ];
        assert_eq!(field_of(&cpus), "cpus.features[2].name");
        cpus.features = vec![feature("aes", 9)];
        assert_eq!(field_of(&cpus), "cpus.features[0].policy");

        let mut cpus = wire();
        cpus.kvm = Some(v1::KvmFeatures {
            spinlocks: 3,
            ..v1::KvmFeatures::default()
        });
        assert_eq!(field_of(&cpus), "cpus.kvm.spinlocks");
    }

    #[test]
    fn hyperv_is_checked_as_far_as_can_be_without_a_host() {
        let with = |hyperv| v1::Cpus {
            hyperv: Some(hyperv),
            ..wire()
        };
        let synic = v1::Hyperv {
            synic: true,
            ..v1::Hyperv::default()
        };
        assert_eq!(field_of(&with(synic)), "cpus.hyperv.synic");
        let few = v1::Hyperv {
            spinlocks: 4095,
            ..v1::Hyperv::default()
        };
        assert_eq!(field_of(&with(few)), "cpus.hyperv.spinlocks");
        let long = v1::Hyperv {
            vendorid: "thirteen byte".to_owned(),
            ..v1::Hyperv::default()
        };
        assert_eq!(field_of(&with(long)), "cpus.hyperv.vendorid");
        let fine = v1::Hyperv {
            vpindex: true,
            synic: true,
            spinlocks: 8191,
            ..v1::Hyperv::default()
        };
        let config = cpus(Some(&with(fine))).unwrap().hyperv;
        let on = [
            Enlightenment::Spinlocks,
            Enlightenment::Vpindex,
            Enlightenment::Synic,
        ];
        assert_eq!(config.enlightenments, on);
        assert_eq!(config.spinlock_retries, 8191);
    }
}
