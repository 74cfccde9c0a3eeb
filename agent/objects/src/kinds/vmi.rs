//! KubeVirt's VirtualMachineInstance.

use super::columns::{AGE, text, wide};
use crate::kind::{ObjectKind, Writer};

pub(super) const KIND: ObjectKind = ObjectKind {
    group: "kubevirt.io",
    versions: &["v1", "v1alpha3"],
    kind: "VirtualMachineInstance",
    plural: "virtualmachineinstances",
    singular: "virtualmachineinstance",
    short_names: &["vmi", "vmis"],
    categories: &["all"],
    message: "kubevirt.v1.VirtualMachineInstance",
    columns: &[
        AGE,
        text("PHASE", ".status.phase"),
        text("IP", ".status.interfaces[0].ipAddress"),
        text("NODENAME", ".status.nodeName"),
        text("READY", ".status.conditions[?(@.type=='Ready')].status"),
        wide(text(
            "LIVE-MIGRATABLE",
            ".status.conditions[?(@.type=='LiveMigratable')].status",
        )),
        wide(text(
            "PAUSED",
            ".status.conditions[?(@.type=='Paused')].status",
        )),
    ],
    // The guest's actor writes it.
    has_status: true,
    frozen: &["spec"],
    frozen_words: Some("update of VMI object is restricted"),
    writer: Writer::Guests,
    ..ObjectKind::PLAIN
};
