//! Objects of any kind, and what a write does to one: the semantics of Kubernetes' API machinery as pure functions.
//!
//! [`Kinds`] is the one table of kinds. A kind costs its message in `proto/node`, its entry and its admission; the
//! rest of the agent asks the table, and names a kind only where `tests/kinds_are_named_once.rs` lists it with the reason. Uids, times and random suffixes come from the caller.

#![forbid(unsafe_code)]

mod data;
mod garbage;
mod kind;
mod kinds;
mod kit;
mod live;
mod machine_requests;
mod managed;
mod object;
mod patch;
mod refusal;
mod selector;
mod unknown;
mod write;

pub use data::read::data_of;
pub use garbage::collect;
pub use kind::encoding::Encoding;
pub use kind::table::{Kinds, LastText};
pub use kind::{
    Admission, AdmitContext, Column, ColumnType, Convert, FillIn, Judge, MakeCompanions,
    ObjectKind, ReadData, Scale, Scope, Writer,
};
pub use kit::copy::{kit_copy, kit_reference};
pub use kit::{KitPart, Outdated, find_kit};
pub use live::{PLACEMENT_FIELDS, PlacementField, links_of_template, remove_live_fields, set_live};
pub use machine_requests::{
    ASKED_GENERATION, MachineChange, MachineRequest, MachineRequestError, change_state,
    spec_and_strategy, with_strategy,
};
pub use managed::{Manager, check_manager, manage};
pub use object::{Object, ObjectId, controller_of, owner_reference};
pub use patch::{LAST_APPLIED, applied, merge_patch, three_way};
pub use refusal::{INSTEAD_OF_NETWORK_POLICY, Refusal};
pub use selector::fields::FieldSelector;
pub use selector::{LabelSelector, SelectorError};
pub use unknown::UnknownMetadata;
pub use write::{
    Given, ORPHAN_FINALIZER, Part, Preconditions, Propagation, Write, Written, create, delete,
    patched, propagate, update,
};
