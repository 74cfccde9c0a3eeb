//! The kinds of this release.

mod columns;
mod config_map;
mod controller_revision;
mod event;
mod form;
mod instancetype;
mod namespace;
mod node;
mod replica_set;
mod secret;
mod service_account;
mod virtual_machine;
mod vmi;

use crate::kind::ObjectKind;

pub(crate) const ALL: &[ObjectKind] = &[
    config_map::KIND,
    controller_revision::KIND,
    event::KIND,
    instancetype::CLUSTER_PREFERENCE,
    instancetype::CLUSTER_TYPE,
    instancetype::NAMESPACED_PREFERENCE,
    instancetype::NAMESPACED_TYPE,
    namespace::KIND,
    node::KIND,
    replica_set::KIND,
    secret::KIND,
    service_account::KIND,
    virtual_machine::KIND,
    vmi::KIND,
];
