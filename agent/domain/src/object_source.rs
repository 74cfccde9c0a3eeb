//! Where an object comes from, and which sources may change it.

use std::collections::BTreeMap;
use std::fmt;

/// On an object that was not made by a gRPC caller: `file:NAME` or `control-plane:NAME`.
pub const SOURCE_ANNOTATION: &str = "kvmlet.io/source";

const FILE: &str = "file:";
const CONTROL_PLANE: &str = "control-plane:";

/// Where an object comes from; only that source changes its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSource {
    /// Whoever calls the service of the node.
    GrpcCaller,
    /// The manifest directory.
    ManifestDirectory {
        /// The file that asks for it.
        file: String,
    },
    /// A control plane that the node dials.
    ControlPlane {
        /// Its name on this node.
        name: String,
    },
}

impl ObjectSource {
    /// The source by an object's annotations.
    #[must_use]
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        let annotation = annotations.get(SOURCE_ANNOTATION).map(String::as_str);
        let file = annotation.and_then(|annotation| annotation.strip_prefix(FILE));
        let control_plane =
            annotation.and_then(|annotation| annotation.strip_prefix(CONTROL_PLANE));
        match (file, control_plane) {
            (Some(file), _) => Self::ManifestDirectory {
                file: file.to_owned(),
            },
            (None, Some(name)) => Self::ControlPlane {
                name: name.to_owned(),
            },
            (None, None) => Self::GrpcCaller,
        }
    }

    /// The value of [`SOURCE_ANNOTATION`]; none on objects of gRPC callers.
    #[must_use]
    pub fn annotation(&self) -> Option<String> {
        match self {
            Self::GrpcCaller => None,
            Self::ManifestDirectory { file } => Some(format!("{FILE}{file}")),
            Self::ControlPlane { name } => Some(format!("{CONTROL_PLANE}{name}")),
        }
    }

    /// Whether the object may be changed by `who`. Files of one directory are one source.
    #[must_use]
    pub fn allows_change_by(&self, who: &Self) -> bool {
        match (self, who) {
            (Self::ManifestDirectory { .. }, Self::ManifestDirectory { .. }) => true,
            _ => self == who,
        }
    }

    /// Whether the object may be deleted by `who`. A VMI of a file that a caller deletes is made anew by its
    /// file; one of a control plane would be missing.
    #[must_use]
    pub fn allows_delete_by(&self, who: &Self) -> bool {
        let is_made_anew =
            matches!(self, Self::ManifestDirectory { .. }) && *who == Self::GrpcCaller;
        is_made_anew || self.allows_change_by(who)
    }

    /// What somebody else can do, for messages.
    #[must_use]
    pub fn way_out(&self) -> String {
        match self {
            Self::GrpcCaller => {
                String::from("delete it with kvmctl delete, or choose another name")
            }
            Self::ManifestDirectory { file } => {
                format!("change or remove {file}, or choose another name")
            }
            Self::ControlPlane { name } => format!(
                "ask {name} for it; once control_plane.name of this node is no longer {name:?}, anybody may delete it"
            ),
        }
    }
}

impl fmt::Display for ObjectSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GrpcCaller => out.write_str("a caller of the node's service"),
            Self::ManifestDirectory { file } => write!(out, "the manifest directory ({file})"),
            Self::ControlPlane { name } => write!(out, "the control plane {name:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> ObjectSource {
        ObjectSource::ManifestDirectory {
            file: name.to_owned(),
        }
    }

    fn control_plane(name: &str) -> ObjectSource {
        ObjectSource::ControlPlane {
            name: name.to_owned(),
        }
    }

    #[test]
    fn a_source_is_read_back_from_the_annotation_that_it_wrote() {
        for source in [
            ObjectSource::GrpcCaller,
            file("a.yaml"),
            control_plane("north"),
        ] {
            let annotations = source
                .annotation()
                .map(|value| (SOURCE_ANNOTATION.to_owned(), value))
                .into_iter()
                .collect();
            assert_eq!(ObjectSource::of(&annotations), source);
        }
    }

    #[test]
    fn only_its_source_changes_an_object() {
        let sources = [
            ObjectSource::GrpcCaller,
            file("a.yaml"),
            control_plane("north"),
        ];
        for one in &sources {
            for other in &sources {
                assert_eq!(one.allows_change_by(other), one == other);
            }
        }
        assert!(file("a.yaml").allows_change_by(&file("b.yaml")));
        assert!(!control_plane("north").allows_change_by(&control_plane("south")));
    }

    #[test]
    fn a_caller_may_have_a_file_make_its_vmi_anew_and_takes_nothing_from_a_control_plane() {
        assert!(file("a.yaml").allows_delete_by(&ObjectSource::GrpcCaller));
        assert!(!control_plane("north").allows_delete_by(&ObjectSource::GrpcCaller));
        assert!(!ObjectSource::GrpcCaller.allows_delete_by(&file("a.yaml")));
    }
}
