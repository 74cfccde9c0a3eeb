//! What a VMI says of the walls of its networks.

use std::collections::BTreeMap;

use crate::admit::review::Review;

/// The annotation by which a VMI asks, with `off`, that nothing it sends to networks of the configuration be judged.
pub const NETWORK_WALLS_ANNOTATION: &str = "networks.kvmlet.io/walls";

const OFF: &str = "off";
const ON: &str = "on";

/// Whether it asks for none. Whether it gets that is the node's to decide, each time that it starts.
pub(in crate::admit) fn without_walls(
    annotations: &BTreeMap<String, String>,
    review: &mut Review<'_>,
) -> bool {
    let Some(value) = annotations.get(NETWORK_WALLS_ANNOTATION) else {
        return false;
    };
    if review.is_new() && ![OFF, ON].contains(&value.as_str()) {
        let path = format!("metadata.annotations[{NETWORK_WALLS_ANNOTATION}]");
        review.invalid(&path, value, "must be on or off");
    }
    value == OFF
}
