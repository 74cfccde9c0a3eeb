//! Who may do what: callers, the grants of the configuration, and the one place where calls are judged.

mod accounts;
mod caller;
mod certificate;
mod handle;
mod judge;
mod layer;
mod metered;
mod permit;
mod policy;
mod standing;

pub(crate) use accounts::group_number;
pub(crate) use caller::Caller;
pub(crate) use certificate::Subject;
pub use handle::Access;
pub(crate) use layer::AccessLayer;
pub(crate) use permit::Permit;
pub use policy::{Grant, Policy};
