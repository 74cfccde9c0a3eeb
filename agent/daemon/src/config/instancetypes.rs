//! `[instancetypes]`: which common instance types and preferences the node has.

use agent_domain::CommonRelease;
use serde::Deserialize;

/// `[instancetypes]`
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Instancetypes {
    common: Common,
}

/// A release of them, or none.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum Common {
    #[default]
    #[serde(rename = "head")]
    Head,
    #[serde(rename = "v1.0.0")]
    First,
    #[serde(rename = "none")]
    Absent,
}

impl Instancetypes {
    /// The release.
    pub(crate) const fn common(self) -> Option<CommonRelease> {
        match self.common {
            Common::Head => Some(CommonRelease::Head),
            Common::First => Some(CommonRelease::V1_0_0),
            Common::Absent => None,
        }
    }
}
