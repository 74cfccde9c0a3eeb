//! What a check has found.

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// As it should be.
    Ok,
    /// Something goes without, or slower.
    Warn,
    /// Guests cannot run, or not those that need it.
    Fail,
}

impl Health {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, such as `kvm`.
    pub check: &'static str,
    /// Severity of the finding.
    pub health: Health,
    /// What was seen and, unless all is well, what follows from it.
    pub message: String,
    /// What to do; empty when all is well.
    pub way_out: String,
}

impl Finding {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self {
            check,
            health: Health::Ok,
            message: message.into(),
            way_out: String::new(),
        }
    }

    pub(super) fn warn(
        check: &'static str,
        message: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            check,
            health: Health::Warn,
            message: message.into(),
            way_out: way_out.into(),
        }
    }

    pub(super) fn fail(
        check: &'static str,
        message: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self {
            health: Health::Fail,
            ..Self::warn(check, message, way_out)
        }
    }
}
