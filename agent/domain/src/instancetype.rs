//! Instance types and preferences, and how they change the template of a machine that names some.
//!
//! Types, preferences and templates are JSON trees here, in the form that the descriptors give them: "not set" is then
//! the same for every field, and a preferred value fills in a field of whatever type. Order, paths and texts are those of
//! KubeVirt's `pkg/instancetype`.

mod admit;
mod common;
mod defaults;
mod expand;
mod kit;
mod matcher;
mod origin;
mod preference;
mod quantity_text;
mod requirements;
mod size;
mod topology;
mod tree;
mod upgrade;

pub use admit::{judge_instancetype, judge_preference};
pub use common::{CommonRelease, RELEASE_LABEL};
pub(crate) use defaults::{fill_in_defaults, machine_type};
pub use expand::expand;
pub use kit::{Kit, apply, conflict_text};
pub(crate) use matcher::is_inferred;
pub use matcher::{
    FindKit, Named, Sort, check_matcher_changes, check_matchers, leave_out_matchers, named,
};
pub use origin::origin;
pub use requirements::{Shortfall, check_requirements};
pub use topology::check_spread;
pub use upgrade::{STORED_VERSION, later_fields, upgrade};
