//! The methods of services and who may call them, from the descriptors alone.

use prost_reflect::Value;

use crate::kvmlet::node::v1::{MethodRules, Role};
use crate::schema::schema;

/// One method of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Full name of the service, such as `kvmlet.node.v1.NodeService`.
    pub service: String,
    /// Name of the method, such as `Apply`.
    pub name: String,
    /// What a caller needs; [`Role::Unspecified`] where the method does not say.
    pub role: Role,
    /// The role must hold in all namespaces.
    pub whole_node: bool,
}

/// All methods of all services of this crate's `.proto` files.
#[must_use]
pub fn methods() -> Vec<Method> {
    let pool = &schema().pool;
    let extension = pool.get_extension_by_name("kvmlet.node.v1.call");
    let methods = pool
        .services()
        .flat_map(|service| service.methods().collect::<Vec<_>>());
    let read = methods.map(|method| {
        let options = method.options();
        let rules = extension
            .as_ref()
            .filter(|extension| options.has_extension(extension))
            .and_then(
                |extension| match options.get_extension(extension).as_ref() {
                    Value::Message(message) => message.transcode_to::<MethodRules>().ok(),
                    _ => None,
                },
            )
            .unwrap_or_default();
        Method {
            service: method.parent_service().full_name().to_owned(),
            name: method.name().to_owned(),
            role: rules.role(),
            whole_node: rules.whole_node,
        }
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_a_node_says_who_may_call_it() {
        let methods = methods();
        let served = methods
            .iter()
            .filter(|method| method.service.starts_with("kvmlet.node."));
        let silent: Vec<_> = served
            .clone()
            .filter(|method| method.role == Role::Unspecified)
            .map(|method| &method.name)
            .collect();
        assert!(silent.is_empty(), "without `option (call)`: {silent:?}");
        let role = |name: &str| {
            let found = served.clone().find(|method| method.name == name);
            found.map(|method| method.role)
        };
        assert_eq!(role("Get"), Some(Role::View));
        assert_eq!(role("Console"), Some(Role::Console));
        assert_eq!(role("Apply"), Some(Role::Operate));
    }
}
