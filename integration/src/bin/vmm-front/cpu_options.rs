//! Values of flags about what CPUID shows a guest.

use std::str::FromStr;

use anyhow::{Context, bail};
use proto_vmm::v1;

/// `NAME=POLICY`.
#[derive(Clone, Debug)]
pub struct FeatureFlag(pub v1::CpuFeature);

/// Hyper-V's enlightenments.
#[derive(Clone, Debug)]
pub struct HypervFlag(pub v1::Hyperv);

/// KVM's features in CPUID.
#[derive(Clone, Copy, Debug)]
pub struct KvmFlag(pub v1::KvmFeatures);

impl FromStr for FeatureFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, policy) = text.split_once('=').unwrap_or((text, "require"));
        let mut feature = v1::CpuFeature {
            name: name.to_owned(),
            ..v1::CpuFeature::default()
        };
        feature.set_policy(match policy {
            "force" => v1::CpuFeaturePolicy::Force,
            "require" => v1::CpuFeaturePolicy::Require,
            "optional" => v1::CpuFeaturePolicy::Optional,
            "disable" => v1::CpuFeaturePolicy::Disable,
            "forbid" => v1::CpuFeaturePolicy::Forbid,
            other => bail!("{other} is no policy"),
        });
        Ok(Self(feature))
    }
}

impl FromStr for HypervFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut hyperv = v1::Hyperv::default();
        for part in text.split(',') {
            if let Some((key, value)) = part.split_once('=') {
                match key {
                    "spinlocks" => hyperv.spinlocks = value.parse()?,
                    "vendorid" => value.clone_into(&mut hyperv.vendorid),
                    _ => bail!("{part} is not known here"),
                }
            } else {
                *enlightenment(&mut hyperv, part)
                    .with_context(|| format!("{part} is no enlightenment"))? = true;
            }
        }
        Ok(Self(hyperv))
    }
}

fn enlightenment<'a>(hyperv: &'a mut v1::Hyperv, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "passthrough" => &mut hyperv.passthrough,
        "relaxed" => &mut hyperv.relaxed,
        "vapic" => &mut hyperv.vapic,
        "vpindex" => &mut hyperv.vpindex,
        "runtime" => &mut hyperv.runtime,
        "synic" => &mut hyperv.synic,
        "synictimer" => &mut hyperv.synictimer,
        "synictimer_direct" => &mut hyperv.synictimer_direct,
        "reset" => &mut hyperv.reset,
        "frequencies" => &mut hyperv.frequencies,
        "reenlightenment" => &mut hyperv.reenlightenment,
        "tlbflush" => &mut hyperv.tlbflush,
        "tlbflush_extended" => &mut hyperv.tlbflush_extended,
        "tlbflush_direct" => &mut hyperv.tlbflush_direct,
        "ipi" => &mut hyperv.ipi,
        "evmcs" => &mut hyperv.evmcs,
        "time" => &mut hyperv.time,
        "crash" => &mut hyperv.crash,
        _ => return None,
    })
}

impl FromStr for KvmFlag {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut kvm = v1::KvmFeatures::default();
        for part in text.split(',') {
            let toggle = match part.split_once('=').map(|(_, value)| value) {
                None if part == "hidden" => {
                    kvm.hidden = true;
                    continue;
                }
                Some("on") => v1::Toggle::On,
                Some("off") => v1::Toggle::Off,
                _ => bail!("{part} is not known here"),
            };
            match part.split('=').next() {
                Some("clock") => kvm.set_clock(toggle),
                Some("spinlocks") => kvm.set_spinlocks(toggle),
                Some("eoi") => kvm.set_end_of_interrupt(toggle),
                _ => bail!("{part} is not known here"),
            }
        }
        Ok(Self(kvm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_required_unless_its_policy_says_otherwise() {
        let flag: FeatureFlag = "avx2=forbid".parse().unwrap();
        assert_eq!(flag.0.name, "avx2");
        assert_eq!(flag.0.policy(), v1::CpuFeaturePolicy::Forbid);
        let flag: FeatureFlag = "avx2".parse().unwrap();
        assert_eq!(flag.0.policy(), v1::CpuFeaturePolicy::Require);
        assert!("avx2=maybe".parse::<FeatureFlag>().is_err());
    }

    #[test]
    fn enlightenments_have_names_and_some_have_values() {
        let flag: HypervFlag = "vpindex,spinlocks=8191,synictimer_direct".parse().unwrap();
        assert!(flag.0.vpindex && flag.0.synictimer_direct && !flag.0.synic);
        assert_eq!(flag.0.spinlocks, 8191);
        assert!("vpindex,warp".parse::<HypervFlag>().is_err());
        assert!("vpindex=1".parse::<HypervFlag>().is_err());
    }

    #[test]
    fn features_of_kvm_are_switched_one_by_one() {
        let flag: KvmFlag = "hidden,clock=off,eoi=on".parse().unwrap();
        assert!(flag.0.hidden);
        assert_eq!(flag.0.clock(), v1::Toggle::Off);
        assert_eq!(flag.0.end_of_interrupt(), v1::Toggle::On);
        assert_eq!(flag.0.spinlocks(), v1::Toggle::Unspecified);
        assert!("clock".parse::<KvmFlag>().is_err());
        assert!("warp=on".parse::<KvmFlag>().is_err());
    }
}
