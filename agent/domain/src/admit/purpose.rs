//! For what an object is admitted.

use crate::caps::NodeCaps;

/// KubeVirt's word for the architecture of this release.
pub(super) const ARCHITECTURE: &str = "amd64";

/// For what an object is admitted: what holds beside the object itself.
#[derive(Clone, Copy, Debug)]
pub enum AdmissionPurpose<'a> {
    /// It is new on a node.
    New(&'a NodeCaps),
    /// It is new, and there is no node to ask: it is judged for one that has all that this release can use.
    NewAnywhere,
    /// It was admitted before. What depends on the node is not judged again, and what is the server's may stand in it.
    Stored,
}

impl<'a> AdmissionPurpose<'a> {
    /// It is new: on a node, if there is one to ask.
    pub(super) fn creation(caps: Option<&'a NodeCaps>) -> Self {
        caps.map_or(Self::NewAnywhere, Self::New)
    }

    /// The node, if it is one's.
    pub(super) const fn caps(self) -> Option<&'a NodeCaps> {
        match self {
            Self::New(caps) => Some(caps),
            Self::NewAnywhere | Self::Stored => None,
        }
    }

    /// The object is its caller's, who may not write what is the server's.
    pub(super) const fn is_new(self) -> bool {
        match self {
            Self::New(_) | Self::NewAnywhere => true,
            Self::Stored => false,
        }
    }

    /// The architecture of a VMI that names none. One that is stored has its own.
    pub(super) fn architecture(self) -> Option<&'a str> {
        match self {
            Self::New(caps) => Some(&caps.architecture),
            Self::NewAnywhere => Some(ARCHITECTURE),
            Self::Stored => None,
        }
    }
}
