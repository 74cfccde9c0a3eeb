//! What one call may touch.

use std::collections::BTreeSet;

use proto_node::node::Role;

use crate::error::ApiError;
use crate::registry::{Kind, ObjectRef};

/// What a judged call may touch. Every call that got past the layer carries one.
#[derive(Clone, Debug)]
pub(crate) struct Permit {
    /// Who calls, for people.
    pub(crate) caller: String,
    /// Key of the budget that all calls of this caller share.
    pub(crate) budget: String,
    /// What the call needs.
    pub(super) role: Role,
    /// Where the caller has that; everywhere when absent.
    pub(super) namespaces: Option<BTreeSet<String>>,
    /// Where he has each of the higher roles, for objects whose kind asks for more than the call does.
    pub(super) higher: Vec<(Role, Option<BTreeSet<String>>)>,
    /// The highest role that the caller has anywhere.
    pub(super) has: Option<Role>,
    /// The setting that would grant it.
    pub(super) way_out: String,
}

impl Permit {
    /// The permit of a call, which the layer gave it.
    ///
    /// # Errors
    /// [`ApiError::Internal`] for a call that came past the layer.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Result<Self, ApiError> {
        let permit = request.extensions().get::<Self>().cloned();
        permit.ok_or_else(|| ApiError::Internal(String::from("the call was not judged")))
    }

    /// For tests of what is done with one.
    #[cfg(test)]
    pub(crate) fn everything() -> Self {
        Self {
            caller: String::new(),
            budget: String::new(),
            role: Role::Admin,
            namespaces: None,
            higher: Vec::new(),
            has: Some(Role::Admin),
            way_out: String::new(),
        }
    }

    /// What the call may touch when that takes at least `role`.
    pub(crate) fn raised(&self, role: Role) -> Self {
        if role <= self.role {
            return self.clone();
        }
        let nowhere = (role, Some(BTreeSet::new()));
        let known = self.higher.iter().find(|(known, _)| *known == role);
        let (role, namespaces) = known.cloned().unwrap_or(nowhere);
        Self {
            role,
            namespaces,
            ..self.clone()
        }
    }

    /// Whether a namespace may be touched.
    pub(crate) fn covers(&self, namespace: &str) -> bool {
        self.namespaces
            .as_ref()
            .is_none_or(|namespaces| namespaces.contains(namespace))
    }

    /// Whether all namespaces may be touched.
    pub(crate) fn covers_all(&self) -> bool {
        self.namespaces.is_none()
    }

    /// Whether this one grants whatever the other one does.
    pub(super) fn covers_all_of(&self, other: &Self) -> bool {
        let covers = |ours: &Option<BTreeSet<String>>, theirs: &Option<BTreeSet<String>>| match (
            ours, theirs,
        ) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => theirs.is_subset(ours),
        };
        let mut higher = self.higher.iter().zip(&other.higher);
        covers(&self.namespaces, &other.namespaces)
            && higher.all(|((_, ours), (_, theirs))| covers(ours, theirs))
    }

    /// Whether no namespace may be touched.
    pub(crate) fn covers_none(&self) -> bool {
        self.namespaces.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Refuses a namespace that may not be touched, before anybody looks what is in it.
    ///
    /// # Errors
    /// [`ApiError::Denied`].
    pub(crate) fn check(&self, namespace: &str) -> Result<(), ApiError> {
        if self.covers(namespace) {
            return Ok(());
        }
        Err(self.denied(&format!("in namespace {namespace:?}")))
    }

    /// Refuses what concerns all namespaces to who may not touch them all.
    ///
    /// # Errors
    /// [`ApiError::Denied`].
    pub(crate) fn check_all(&self) -> Result<(), ApiError> {
        if self.covers_all() {
            return Ok(());
        }
        Err(self.denied("on the whole node"))
    }

    /// The object that a call names, if it may be touched. An empty namespace is `default`.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`], [`ApiError::Denied`].
    pub(crate) fn target(
        &self,
        kind: Kind,
        namespace: String,
        name: String,
    ) -> Result<ObjectRef, ApiError> {
        if name.is_empty() {
            return Err(ApiError::BadRequest(String::from("name is missing")));
        }
        let namespace = if namespace.is_empty() {
            String::from("default")
        } else {
            namespace
        };
        self.check(&namespace)?;
        Ok(ObjectRef {
            kind,
            namespace,
            name,
        })
    }

    /// A refusal that says who, what and which setting would grant it.
    pub(crate) fn denied(&self, place: &str) -> ApiError {
        let has = self.has.map_or("none at all", role_word);
        let needs = role_word(self.role);
        ApiError::Denied(format!(
            "{} may not do this {place}: it needs role {needs} there (the highest that it has anywhere: {has}); \
             who administers the node can grant it: {}",
            self.caller, self.way_out
        ))
    }
}

/// The name in the configuration.
pub(super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::Unspecified => "none",
        Role::View => "view",
        Role::Console => "console",
        Role::Operate => "operate",
        Role::Admin => "admin",
    }
}
