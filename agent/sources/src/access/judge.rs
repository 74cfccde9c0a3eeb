//! Judging a call before it is carried out.

use std::collections::HashMap;
use std::sync::LazyLock;

use proto_node::Method;
use proto_node::node::Role;

use super::caller::Caller;
use super::handle::Access;
use super::permit::Permit;
use crate::error::ApiError;

/// Standard services that tell what the server is and not what it has. Whoever may connect may call them.
pub(super) const OPEN: [&str; 2] = [
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
];

/// What methods need, by the path of the request.
pub(super) static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
    let methods = proto_node::methods().into_iter();
    methods
        .map(|method| (format!("/{}/{}", method.service, method.name), method))
        .collect()
});

/// What a call may touch, or why it is refused.
pub(super) fn judge(
    access: &Access,
    caller: Option<&Caller>,
    method: &Method,
) -> Result<Permit, ApiError> {
    let Some(caller) = caller else {
        let text = String::from("the caller is not known");
        return Err(ApiError::Denied(text));
    };
    let permit = access.policy().permit(caller, method.role);
    if method.role == Role::Unspecified {
        return Err(permit.denied("on this node"));
    }
    if method.whole_node && !permit.covers_all() {
        return Err(permit.denied("on the whole node"));
    }
    if permit.covers_none() {
        return Err(permit.denied("in any namespace"));
    }
    Ok(permit)
}
