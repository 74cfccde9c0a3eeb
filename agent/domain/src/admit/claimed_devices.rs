//! Devices that are claimed through dynamic resource allocation, by KubeVirt's rules; this release allocates none.

use std::collections::{BTreeMap, BTreeSet};

use proto_node::vmi::{ResourceClaim, VirtualMachineInstanceSpec};

use super::metadata::{DNS_LABEL_RULE, DNS_SUBDOMAIN_RULE};
use super::review::Review;
use crate::error::{FieldError, Rule};
use crate::name::{is_dns_label, is_dns_subdomain};

/// What a device says of where it comes from.
struct Device<'a> {
    device_name: &'a str,
    claim: &'a str,
    request: &'a str,
}

impl Device<'_> {
    const fn has_claim(&self) -> bool {
        !self.claim.is_empty() || !self.request.is_empty()
    }

    const fn is_claimed(&self) -> bool {
        self.device_name.is_empty() && self.has_claim()
    }
}

/// A list of devices.
struct Devices<'a> {
    /// The member of `spec.domain.devices`.
    list: &'static str,
    /// KubeVirt's word for one.
    word: &'static str,
    /// Some may be claimed and others not.
    may_be_mixed: bool,
    devices: Vec<Device<'a>>,
}

/// Claims and requests that are in use: by which device.
type UsedClaims<'a> = BTreeMap<(&'a str, &'a str), String>;

/// Judges claims, and the devices and networks that are of them.
pub(super) fn check(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    claims(&spec.resource_claims, review);
    let mut taken = UsedClaims::new();
    let mut used = BTreeSet::new();
    for devices in lists(spec) {
        check_devices(&devices, &mut taken, &mut used, review);
    }
    networks(spec, &mut taken, review);
    let is_known = |name: &&str| {
        spec.resource_claims
            .iter()
            .any(|claim| claim.name == **name)
    };
    if !used.iter().all(is_known) {
        let message = "vmi.spec.resourceClaims must specify all claims used in vmi.spec.domain.devices.gpus and \
                       vmi.spec.domain.devices.hostDevices";
        review.push(FieldError::new(
            "spec.resourceClaims",
            Rule::Invalid,
            message,
        ));
    }
}

fn claims(claims: &[ResourceClaim], review: &mut Review<'_>) {
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = format!("spec.resourceClaims[{index}]");
        let field = format!("{path}.name");
        let name = claim.name.as_str();
        if !name.is_empty() && !seen.insert(name) {
            let message = format!("duplicate resourceClaims name {name:?}");
            review.push(FieldError::new(field, Rule::Duplicate, message).value(name));
        } else if !name.is_empty() && !is_dns_label(name) {
            let message = format!(
                "{field} does not conform to the kubernetes DNS_LABEL rules: {DNS_LABEL_RULE}"
            );
            review.invalid(&field, name, message);
        }
        let names = [
            ("resourceClaimName", &claim.resource_claim_name),
            (
                "resourceClaimTemplateName",
                &claim.resource_claim_template_name,
            ),
        ];
        let given = names.iter().filter(|(_, name)| !name.is_empty()).count();
        if given > 1 {
            let message =
                "at most one of resourceClaimName or resourceClaimTemplateName may be specified";
            review.push(FieldError::new(path.as_str(), Rule::Invalid, message));
        } else if given == 0 {
            let message = "must specify one of: resourceClaimName, resourceClaimTemplateName";
            review.push(FieldError::new(path.as_str(), Rule::Invalid, message));
        }
        for (member, name) in names {
            if !name.is_empty() && !is_dns_subdomain(name) {
                review.invalid(&format!("{path}.{member}"), name, DNS_SUBDOMAIN_RULE);
            }
        }
    }
}

fn lists(spec: &VirtualMachineInstanceSpec) -> Vec<Devices<'_>> {
    let devices = spec.domain.as_ref().and_then(|it| it.devices.as_ref());
    let Some(devices) = devices else {
        return Vec::new();
    };
    let gpus = devices.gpus.iter().map(|gpu| Device {
        device_name: &gpu.device_name,
        claim: &gpu.claim_name,
        request: &gpu.request_name,
    });
    let others = devices.host_devices.iter().map(|device| Device {
        device_name: &device.device_name,
        claim: &device.claim_name,
        request: &device.request_name,
    });
    vec![
        Devices {
            list: "gpus",
            word: "GPU",
            may_be_mixed: false,
            devices: gpus.collect(),
        },
        Devices {
            list: "hostDevices",
            word: "HostDevice",
            may_be_mixed: true,
            devices: others.collect(),
        },
    ]
}

fn check_devices<'a>(
    all: &Devices<'a>,
    taken: &mut UsedClaims<'a>,
    used: &mut BTreeSet<&'a str>,
    review: &mut Review<'_>,
) {
    let Devices { list, word, .. } = all;
    let path = format!("spec.domain.devices.{list}");
    let claimed = all.devices.iter().filter(|device| device.is_claimed());
    let is_mixed = (1..all.devices.len()).contains(&claimed.count());
    if is_mixed && !all.may_be_mixed {
        let message = format!(
            "vmi.{path} contains both DRA and non-DRA {word}s; each {word} must be either DRA or non-DRA"
        );
        review.push(FieldError::new(path, Rule::Invalid, message));
        return;
    }
    for (index, device) in all.devices.iter().enumerate() {
        if device.is_claimed() {
            used.extend(Some(device.claim).filter(|claim| !claim.is_empty()));
            let place = format!("{path}[{index}]");
            check_request(&place, word, (device.claim, device.request), review);
            take(&place, (device.claim, device.request), taken, review);
        } else if device.device_name.is_empty() {
            let message = format!(
                "vmi.{path} contains {word}s without deviceName or claimRequest; each {word} must specify either a deviceName \
                 or a claimRequest"
            );
            review.required(&path, message);
        } else if device.has_claim() {
            let message =
                format!("vmi.{path} contains {word}s with both deviceName and claimRequest");
            review.push(FieldError::new(path.as_str(), Rule::Invalid, message));
        }
    }
}

/// A claim and a request of it: both must be named.
fn check_request(path: &str, word: &str, (claim, request): (&str, &str), review: &mut Review<'_>) {
    for (member, name) in [("claimName", claim), ("requestName", request)] {
        if name.is_empty() {
            let message = format!("{member} is required for DRA {word}");
            review.required(&format!("{path}.{member}"), message);
        }
    }
}

/// Checks that no other device is of the same request of a claim.
fn take<'a>(
    path: &str,
    (claim, request): (&'a str, &'a str),
    taken: &mut UsedClaims<'a>,
    review: &mut Review<'_>,
) {
    if claim.is_empty() || request.is_empty() {
        return;
    }
    let key = format!("{claim}/{request}");
    if let Some(other) = taken.get(&(claim, request)) {
        let message = format!("duplicate claimName/requestName pair {key:?}");
        let error = FieldError::new(path, Rule::Duplicate, message).value(key);
        review.push(error.fix(format!("{other} is of it too")));
        return;
    }
    taken.insert((claim, request), path.to_owned());
}

fn networks<'a>(
    spec: &'a VirtualMachineInstanceSpec,
    taken: &mut UsedClaims<'a>,
    review: &mut Review<'_>,
) {
    let mut networks = spec.networks.iter();
    let has_multus = networks.any(|network| network.multus.is_some());
    let mut networks = spec.networks.iter();
    if has_multus && networks.any(|network| network.resource_claim.is_some()) {
        let message =
            "mixing Multus and DRA resourceClaim networks in the same VMI is not supported";
        review.push(FieldError::new("spec.networks", Rule::Invalid, message));
        return;
    }
    for (index, network) in spec.networks.iter().enumerate() {
        let Some(claim) = &network.resource_claim else {
            continue;
        };
        let path = format!("spec.networks[{index}].resourceClaim");
        let (name, request) = (claim.claim_name.as_str(), claim.request_name.as_str());
        check_request(&path, "network", (name, request), review);
        if name.is_empty() || request.is_empty() {
            continue;
        }
        if !spec.resource_claims.iter().any(|known| known.name == name) {
            let message = format!(
                "network references resourceClaim {name:?} which is not defined in spec.resourceClaims"
            );
            let field = format!("{path}.claimName");
            review.push(FieldError::new(field, Rule::NotFound, message));
        }
        take(&path, (name, request), taken, review);
    }
}
