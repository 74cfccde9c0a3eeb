//! Types of objects and how people write them.

use agent_objects::{Kinds, ObjectKind};
use proto_node::object::{EVENT_KIND, VMI_KIND};

use crate::failure::Failure;
use crate::machines;
use crate::validate::kinds;

/// Types that people type before a name and that are not in the table: those of clusters, and short names of KubeVirt's types.
const ELSEWHERE: [&str; 30] = [
    "dv",
    "dvs",
    "kv",
    "kvs",
    "no",
    "node",
    "nodes",
    "persistentvolumeclaim",
    "persistentvolumeclaims",
    "po",
    "pod",
    "pods",
    "pvc",
    "service",
    "services",
    "svc",
    "vmclone",
    "vmclones",
    "vmexport",
    "vmexports",
    "vmim",
    "vmims",
    "vmipreset",
    "vmipresets",
    "vmpool",
    "vmpools",
    "vmrestore",
    "vmrestores",
    "vmsnapshot",
    "vmsnapshots",
];

/// A type of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Vmi,
    Event,
}

impl Resource {
    /// Reads a type as kubectl does: kind, plural, singular or short name, with the group or without.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        Self::of_type(text).ok_or_else(|| {
            Failure::Refused(format!(
                "error: the server doesn't have a resource type {text:?} (there are vmi and events)"
            ))
        })
    }

    /// The same; nothing when it is another type, or none.
    fn of_type(text: &str) -> Option<Self> {
        let lower = text.to_lowercase();
        let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
        let group_fits = |wanted: &str| group.is_empty() || group == wanted;
        match name {
            "vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances"
                if group_fits("kubevirt.io") || group == "v1.kubevirt.io" =>
            {
                Some(Self::Vmi)
            }
            "ev" | "event" | "events" if group_fits("") => Some(Self::Event),
            _ => None,
        }
    }

    /// Kind in manifests.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Vmi => VMI_KIND,
            Self::Event => EVENT_KIND,
        }
    }

    /// The name before the slash in output.
    pub const fn full_name(self) -> &'static str {
        match self {
            Self::Vmi => "virtualmachineinstance.kubevirt.io",
            Self::Event => "event",
        }
    }

    /// The full name of a kind.
    pub fn of_kind(kind: &str) -> &'static str {
        if kind == EVENT_KIND {
            Self::Event.full_name()
        } else {
            Self::Vmi.full_name()
        }
    }
}

/// A type and the names that were given.
pub struct Target {
    pub resource: Resource,
    pub names: Vec<String>,
}

impl Target {
    /// Reads `TYPE`, `TYPE NAME...` or `TYPE/NAME...`.
    pub fn parse(words: &[String]) -> Result<Self, Failure> {
        let Some(first) = words.first() else {
            return Err(Failure::Usage("a type is missing, such as vmi".to_owned()));
        };
        if !first.contains('/') {
            let names = words.get(1..).unwrap_or_default().to_vec();
            if let Some(odd) = names.iter().find(|name| name.contains('/')) {
                return Err(Failure::Usage(format!(
                    "{odd:?}: there is no need to name the type twice"
                )));
            }
            return Ok(Self {
                resource: Resource::parse(first)?,
                names,
            });
        }
        let mut target: Option<Self> = None;
        for word in words {
            let Some((kind, name)) = word.split_once('/') else {
                return Err(Failure::Usage(format!("{word:?}: TYPE/NAME was expected")));
            };
            let resource = Resource::parse(kind)?;
            match &mut target {
                None => {
                    target = Some(Self {
                        resource,
                        names: vec![name.to_owned()],
                    });
                }
                Some(target) if target.resource == resource => target.names.push(name.to_owned()),
                Some(_) => {
                    return Err(Failure::Usage("one type at a time".to_owned()));
                }
            }
        }
        target.ok_or_else(|| Failure::Usage("a type is missing, such as vmi".to_owned()))
    }

    /// The same, where at least one name is needed.
    pub fn parse_named(words: &[String]) -> Result<Self, Failure> {
        let target = Self::parse(words)?;
        if target.names.is_empty() || target.names.iter().any(String::is_empty) {
            return Err(Failure::Usage(
                "a name is missing, such as vmi/web".to_owned(),
            ));
        }
        Ok(target)
    }
}

/// The VMIs that `NAME...`, `TYPE NAME...` or `TYPE/NAME...` means: where the first word is no type, all
/// of them are names. The type of other objects is none that was meant for a name.
pub fn vmi_names(words: &[String]) -> Result<Vec<String>, Failure> {
    // A machine's VMI bears its name.
    if let Some(names) = machines::typed_names(words)? {
        return Ok(names);
    }
    if let Some(first) = words.first()
        && !words.iter().any(|word| word.contains('/'))
        && Resource::of_type(first).is_none()
    {
        let names = words.get(1..).unwrap_or_default().join(" ");
        if names.is_empty() || !is_other_type(first) {
            return Ok(words.to_vec());
        }
        return Err(no_vmi(first, &format!("vmi {names}")));
    }
    for (kind, name) in words.iter().filter_map(|word| word.split_once('/')) {
        if Resource::of_type(kind).is_none() {
            return Err(no_vmi(kind, &format!("vmi/{name}")));
        }
    }
    let target = Target::parse_named(words)?;
    if target.resource != Resource::Vmi {
        return Err(Failure::Usage(format!(
            "a VMI was expected, not {}",
            target.resource.full_name()
        )));
    }
    Ok(target.names)
}

/// The VMI that `NAME`, `vm/NAME` or `vmi/NAME` means; a word alone is a name, even that of a type.
pub fn vmi_name(word: &str) -> Result<String, Failure> {
    if !word.contains('/') {
        return Ok(word.to_owned());
    }
    let names = vmi_names(&[word.to_owned()])?;
    Ok(names.into_iter().next().unwrap_or_default())
}

fn no_vmi(kind: &str, meant: &str) -> Failure {
    Failure::Refused(format!(
        "error: a VMI was expected, not {kind:?}: type {meant}"
    ))
}

/// Whether a word is the type of other objects, whether or not a node has them.
fn is_other_type(word: &str) -> bool {
    let lower = word.to_lowercase();
    let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
    // Names of VMIs may have dots, too.
    let is_type = group.is_empty() || group.ends_with("kubevirt.io");
    is_type && (ELSEWHERE.contains(&name) || kinds::is_type(name) || served(word).is_some())
}

/// The kind of this release that a type means: plural, singular or short name, with the group or without.
pub fn served(word: &str) -> Option<&'static ObjectKind> {
    let lower = word.to_lowercase();
    let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
    let mut kinds = Kinds::this_release().all();
    kinds.find(|kind| {
        let is_name =
            kind.singular == name || kind.plural == name || kind.short_names.contains(&name);
        is_name && (group.is_empty() || group == kind.group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn types_are_read_as_kubectl_reads_them() {
        for text in [
            "vmi",
            "vmis",
            "VirtualMachineInstance",
            "virtualmachineinstances.kubevirt.io",
        ] {
            assert_eq!(Resource::parse(text).ok(), Some(Resource::Vmi), "{text}");
        }
        assert_eq!(Resource::parse("ev").ok(), Some(Resource::Event));
        assert!(Resource::parse("pods").is_err());
        assert!(Resource::parse("vmi.example.com").is_err());
    }

    #[test]
    fn names_follow_the_type_or_a_slash() {
        for text in ["vmi web db", "vmi/web vmis/db"] {
            assert_eq!(
                Target::parse(&words(text)).ok().map(|target| target.names),
                Some(words("web db"))
            );
        }
        for text in ["vmi/web db", "vmi web/x", "vmi/web ev/x"] {
            assert!(Target::parse(&words(text)).is_err(), "{text}");
        }
        for text in ["vmi", "vmi/", "vmi/web vmi/"] {
            assert!(Target::parse_named(&words(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn guests_are_named_as_virtctl_and_kubectl_name_them() {
        let read = |text: &str| vmi_names(&words(text)).ok();
        for text in [
            "web",
            "vmi web",
            "vmi/web",
            "VirtualMachineInstance web",
            "vm web",
            "vm/web",
        ] {
            assert_eq!(read(text), Some(vec!["web".to_owned()]), "{text}");
        }
        for text in ["web db", "vmi web db", "vmi/web vmi/db"] {
            assert_eq!(read(text), Some(words("web db")), "{text}");
        }
        for text in ["vmi", "event x", "web vmi/db", "vmi/"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn the_type_of_other_objects_is_no_name() {
        for kind in [
            "vmim",
            "virtualmachineinstancemigrations",
            "pod",
            "node",
            "dv",
            "cm",
            "vmirs",
            "Secrets",
        ] {
            let refused = vmi_names(&words(&format!("{kind} web db")));
            let message = refused.err().map(|failure| failure.to_string());
            let wanted = format!("error: a VMI was expected, not {kind:?}: type vmi web db");
            assert_eq!(message, Some(wanted));
            let refused = vmi_names(&words(&format!("{kind}/web")));
            let message = refused.err().map(|failure| failure.to_string());
            let wanted = format!("error: a VMI was expected, not {kind:?}: type vmi/web");
            assert_eq!(message, Some(wanted));
            let alone = vmi_names(&words(kind)).ok();
            assert_eq!(alone, Some(words(kind)));
        }
        for text in ["vmi vm web", "vm.example.com web"] {
            let meant = vmi_names(&words(text)).ok();
            let names = text.strip_prefix("vmi ").unwrap_or(text);
            assert_eq!(meant, Some(words(names)), "{text}");
        }
    }
}
