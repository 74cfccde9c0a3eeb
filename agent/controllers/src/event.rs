//! Events of controllers.

/// Something to record as an event of the object that a controller works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerEvent {
    /// A warning rather than what is normal.
    pub is_warning: bool,
    /// Short CamelCase word for machines.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
}

impl ControllerEvent {
    pub(crate) fn normal(reason: &'static str, message: String) -> Self {
        Self {
            is_warning: false,
            reason,
            message,
        }
    }

    pub(crate) fn warning(reason: &'static str, message: String) -> Self {
        Self {
            is_warning: true,
            ..Self::normal(reason, message)
        }
    }
}
