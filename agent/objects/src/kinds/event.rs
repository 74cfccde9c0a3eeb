//! Kubernetes' Event.

use super::columns::text;
use crate::kind::{Column, ColumnType, ObjectKind};

pub(super) const KIND: ObjectKind = ObjectKind {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    message: "kvmlet.core.v1.Event",
    columns: &[
        Column {
            name: "LAST SEEN",
            shown: ColumnType::Date,
            json_path: ".lastTimestamp",
            wide: false,
        },
        text("TYPE", ".type"),
        text("REASON", ".reason"),
        text("OBJECT", ".involvedObject.name"),
        text("MESSAGE", ".message"),
    ],
    lasting: &[
        "firstTimestamp",
        "involvedObject.apiVersion",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "message",
        "reason",
        "source.component",
        "source.host",
        "type",
    ],
    ..ObjectKind::PLAIN
};
