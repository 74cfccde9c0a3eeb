//! Guests as `virtctl` names them where it connects to one: `vm/NAME`, `vmi/NAME/NAMESPACE`.

use crate::failure::Failure;
use crate::machines;
use crate::resource::Resource;
use crate::scope::Scope;

/// A guest that is named. A machine's guest bears the machine's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Named by its VirtualMachine.
    pub is_machine: bool,
    pub name: String,
    /// Empty where none is named.
    pub namespace: String,
}

impl Guest {
    /// Reads `TYPE/NAME[/NAMESPACE]`; the words for what is wrong are `virtctl`'s (v1.7).
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let refuse = |why: &str| Err(Failure::Usage(why.to_owned()));
        if text.is_empty() {
            return refuse("target cannot be empty");
        }
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, name, namespace) = match parts.as_slice() {
            [_] => return refuse("target must contain type and name separated by '/'"),
            [kind, name] => (*kind, *name, ""),
            [_, _, ""] => return refuse("namespace cannot be empty"),
            [kind, name, namespace] => (*kind, *name, *namespace),
            _ => return refuse("target is not valid with more than two '/'"),
        };
        let is_machine = machines::is_type(kind);
        if !is_machine && !matches!(Resource::parse(kind), Ok(Resource::Vmi)) {
            return refuse(&format!("unsupported resource type '{kind}'"));
        }
        if name.is_empty() {
            return refuse("name cannot be empty");
        }
        Ok(Self {
            is_machine,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
        })
    }

    /// The same in a namespace: its own, else that of the command line.
    pub fn placed(mut self, scope: &Scope) -> Self {
        if self.namespace.is_empty() {
            scope.namespace().clone_into(&mut self.namespace);
        }
        self
    }

    /// The short name of its type.
    pub const fn type_name(&self) -> &'static str {
        if self.is_machine { "vm" } else { "vmi" }
    }
}

impl std::fmt::Display for Guest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.type_name(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_named_as_virtctl_names_them() {
        let read = |text: &str| {
            let guest = Guest::parse(text).ok()?;
            Some((guest.is_machine, guest.name, guest.namespace))
        };
        let found = |is_machine, name: &str, namespace: &str| {
            Some((is_machine, name.to_owned(), namespace.to_owned()))
        };
        for (text, wanted) in [
            ("vmi/web", found(false, "web", "")),
            ("vmis/web/team", found(false, "web", "team")),
            ("VirtualMachine/web", found(true, "web", "")),
            ("vms/web/team", found(true, "web", "team")),
            // Before 1.7 a dot began the namespace.
            ("vmi/web.with.dots", found(false, "web.with.dots", "")),
            ("vm/web.x/team.y", found(true, "web.x", "team.y")),
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
        for (text, why) in [
            ("", "target cannot be empty"),
            ("web", "target must contain type and name separated by '/'"),
            ("vmi/web/", "namespace cannot be empty"),
            ("//", "namespace cannot be empty"),
            ("vmi/web/a/b", "target is not valid with more than two '/'"),
            ("pod/web", "unsupported resource type 'pod'"),
            ("/", "unsupported resource type ''"),
            ("vmi/", "name cannot be empty"),
        ] {
            let refused = Guest::parse(text).err().map(|failure| failure.to_string());
            assert_eq!(refused, Some(format!("error: {why}")), "{text}");
        }
    }
}
