//! Reading the data of an object whose kind holds some.

use std::collections::BTreeMap;

use crate::object::Object;
use crate::refusal::Refusal;

/// The data that a VMI can be given of a Secret or a ConfigMap: bytes by key.
///
/// # Errors
/// [`Refusal::Malformed`] when the object has not the form of its kind, [`Refusal::Forbidden`] when objects of its kind
/// hold no data.
pub fn data_of(object: &Object) -> Result<BTreeMap<String, Vec<u8>>, Refusal> {
    let kinds = crate::kind::table::Kinds::this_release();
    let Some(read) = kinds.named(&object.kind)?.data else {
        let text = format!("a {} holds no data", object.kind);
        return Err(Refusal::Forbidden(text));
    };
    read(object)
}
