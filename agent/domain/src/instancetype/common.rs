//! The common instance types and preferences, as the project of that name publishes them (Apache-2.0): what `u1.small`
//! and `debian` mean everywhere.

use serde_json::{Value, json};

/// The label by which objects of a release are known.
pub const RELEASE_LABEL: &str = "instancetype.kubevirt.io/common-instancetypes-version";

/// A release of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommonRelease {
    /// 39 types and 32 preferences, of April 2024.
    V1_0_0,
    /// 65 types and 57 preferences: the development head of August 2026.
    Head,
}

impl CommonRelease {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Head, Self::V1_0_0];

    /// The release's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1_0_0 => "v1.0.0",
            Self::Head => "head",
        }
    }

    /// The release of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|release| release.as_str() == name)
    }

    /// Its objects, without what a server gives. Empty only when this program is broken, which its tests show.
    #[must_use]
    pub fn objects(self) -> Vec<Value> {
        let text = match self {
            Self::V1_0_0 => include_str!("common/v1.0.0.json"),
            Self::Head => include_str!("common/head.json"),
        };
        let mut objects: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        for object in &mut objects {
            object["apiVersion"] = json!("instancetype.kubevirt.io/v1beta1");
            let labels = &mut object["metadata"]["labels"];
            labels[RELEASE_LABEL] = json!(self.as_str());
            labels["app.kubernetes.io/managed-by"] = json!("kvmlet");
        }
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_hold_as_many_objects_as_were_published() {
        for (release, types, preferences) in [
            (CommonRelease::V1_0_0, 39, 32),
            (CommonRelease::Head, 65, 57),
        ] {
            let objects = release.objects();
            let count = |kind: &str| {
                objects
                    .iter()
                    .filter(|object| object["kind"] == kind)
                    .count()
            };
            assert_eq!(count("VirtualMachineClusterInstancetype"), types);
            assert_eq!(count("VirtualMachineClusterPreference"), preferences);
        }
    }
}
