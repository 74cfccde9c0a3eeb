//! Host name and DNS settings of a guest: `hostname`, `subdomain`, `dnsPolicy` and `dnsConfig`.

use std::net::IpAddr;

use proto_node::vmi::{DnsConfig, VirtualMachineInstanceSpec};

use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::name::is_dns_subdomain;
use crate::pod::GuestNames;

const POLICIES: &[&str] = &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 6;
const MAX_SEARCH_CHARS: usize = 256;
const MAX_OPTIONS: usize = 64;

/// Only the pod network sends them to a guest, by DHCP.
const UNUSED: &str =
    "the pod network's DHCP server passes it on, and the guest has no interface there";

/// Judges what is new; what runs is left alone.
pub(super) fn judge(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> GuestNames {
    check_policy(&spec.dns_policy, review);
    let config = spec.dns_config.clone().unwrap_or_default();
    if check_servers_are_there(spec, review) {
        check_config(&config, review);
    }
    note_unused(spec, review);
    GuestNames {
        subdomain: spec.subdomain.clone(),
        own_only: spec.dns_policy == "None",
        servers: config
            .nameservers
            .iter()
            .filter_map(|server| server.parse().ok())
            .collect(),
        searches: config.searches,
    }
}

fn check_policy(policy: &str, review: &mut Review<'_>) {
    if review.is_new() && !policy.is_empty() && !POLICIES.contains(&policy) {
        let message = format!(
            "DNSPolicy: {policy} is not supported, valid values: [{} ]",
            POLICIES.join(" ")
        );
        let error = FieldError::new("spec.dnsPolicy", Rule::NotSupported, message);
        review.push(error.value(policy).beyond(Bound::Api));
    }
}

/// A policy of no servers needs those that are to be asked instead.
fn check_servers_are_there(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> bool {
    if spec.dns_policy != "None" || !review.is_new() {
        return true;
    }
    let (path, message) = match &spec.dns_config {
        None => (
            "spec.dnsConfig",
            "must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        Some(config) if config.nameservers.is_empty() => (
            "nameservers",
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ),
        Some(_) => return true,
    };
    review.push(FieldError::new(path, Rule::Required, message));
    false
}

/// KubeVirt names the fields by these bare words.
fn check_config(config: &DnsConfig, review: &mut Review<'_>) {
    if !review.is_new() {
        return;
    }
    let servers = &config.nameservers;
    if servers.len() > MAX_SERVERS {
        let message = format!(
            "must not have more than {MAX_SERVERS} nameservers: [{}]",
            servers.join(" ")
        );
        review.push(FieldError::new("nameservers", Rule::Invalid, message));
    }
    for server in servers.iter().take(MAX_SERVERS) {
        if server.parse::<IpAddr>().is_err() {
            review.invalid(
                "nameservers",
                server,
                format!("must be valid IP address: {server}"),
            );
        }
    }
    check_searches(&config.searches, review);
    for option in config.options.iter().take(MAX_OPTIONS) {
        if option.name.is_empty() {
            let message = "Option.Name must not be empty";
            review.push(FieldError::new("options", Rule::Invalid, message));
        }
    }
}

fn check_searches(searches: &[String], review: &mut Review<'_>) {
    let field = "searchDomains";
    if searches.len() > MAX_SEARCHES {
        let message = format!("must not have more than {MAX_SEARCHES} search paths");
        review.push(FieldError::new(field, Rule::Invalid, message));
    }
    if searches.join(" ").len() > MAX_SEARCH_CHARS {
        let message = format!(
            "must not have more than {MAX_SEARCH_CHARS} characters (including spaces) in the search list"
        );
        review.push(FieldError::new(field, Rule::Invalid, message));
    }
    for search in searches.iter().take(MAX_SEARCHES) {
        if !is_dns_subdomain(search) {
            review.invalid(field, search, super::metadata::DNS_SUBDOMAIN_RULE);
        }
    }
}

/// Notes fields without effect: only DHCP of the pod network gives them to a guest.
fn note_unused(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    if spec.networks.iter().any(|network| network.pod.is_some()) {
        return;
    }
    let has_cloud_init = spec.volumes.iter().any(|volume| {
        volume.cloud_init_no_cloud.is_some() || volume.cloud_init_config_drive.is_some()
    });
    for (path, is_given) in [
        (
            "spec.hostname",
            !spec.hostname.is_empty() && !has_cloud_init,
        ),
        ("spec.subdomain", !spec.subdomain.is_empty()),
        ("spec.dnsPolicy", !spec.dns_policy.is_empty()),
        ("spec.dnsConfig", spec.dns_config.is_some()),
    ] {
        if is_given {
            review.ignore(path.to_owned(), UNUSED);
        }
    }
}
