//! What the metadata of a VMI says of its machine.

use proto_machine::smbios::BaseBoardInfo;
use proto_node::meta::ObjectMeta;

use super::review::Review;
use super::{cloud_init, metadata, network, sidecars};
use crate::name::{Name, Namespace, Uid};

/// What the metadata of a VMI says of its machine.
pub(super) struct About {
    pub(super) uid: Uid,
    pub(super) namespace: Namespace,
    pub(super) name: Name,
    pub(super) generation: i64,
    pub(super) base_board: BaseBoardInfo,
    pub(super) instance_type: Option<String>,
    pub(super) without_walls: bool,
}

/// Judges metadata; nothing when names, labels, annotations or finalizers are not legal.
pub(super) fn judge(metadata: &ObjectMeta, review: &mut Review<'_>) -> Option<About> {
    let is_legal = metadata::judge(metadata, review);
    let annotations = &metadata.annotations;
    let base_board = sidecars::base_board(annotations, review);
    let without_walls = network::without_walls(annotations, review);
    is_legal.then(|| About {
        uid: Uid(metadata.uid.clone()),
        namespace: Namespace(metadata.namespace.clone()),
        name: Name(metadata.name.clone()),
        generation: metadata.generation,
        base_board,
        instance_type: cloud_init::instance_type(annotations),
        without_walls,
    })
}
