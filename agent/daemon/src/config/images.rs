//! `[images]`: how full disks in images may make their file system.

use agent_host::ImageStoreLimits;
use serde::Deserialize;

/// `[images]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Images {
    /// In use, in percent of the file system, when what no guest has is removed.
    high_percent: u64,
    /// In use at most when that ends.
    low_percent: u64,
    /// What images leave free.
    reserve_bytes: Option<u64>,
}

impl Default for Images {
    fn default() -> Self {
        let ImageStoreLimits {
            high_percent,
            low_percent,
            reserve_bytes,
        } = ImageStoreLimits::default();
        Self {
            high_percent,
            low_percent,
            reserve_bytes,
        }
    }
}

impl Images {
    /// The setting that is wrong, its value, and the rule.
    pub(super) fn fault(&self) -> Option<(&'static str, u64, &'static str)> {
        if !(1..=100).contains(&self.high_percent) {
            return Some(("images.high_percent", self.high_percent, "must be 1 to 100"));
        }
        (self.low_percent > self.high_percent).then_some((
            "images.low_percent",
            self.low_percent,
            "must be at most images.high_percent",
        ))
    }

    pub(crate) fn limits(&self) -> ImageStoreLimits {
        ImageStoreLimits {
            high_percent: self.high_percent,
            low_percent: self.low_percent,
            reserve_bytes: self.reserve_bytes,
        }
    }
}
