//! What a line of a table says.

/// One system call that threads of a kind may make.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The call's name, with `SYS_`.
    pub name: &'static str,
    /// Number of the call on x86-64.
    pub number: i64,
    /// With which arguments.
    pub arguments: Arguments,
    /// Why the filter allows the call.
    pub reason: Reason,
}

/// The arguments that a call may have. Arguments count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// No argument is looked at.
    Any,
    /// The lower half of one is this number.
    Is(u8, u32),
    /// The lower half of one has none of these bits.
    Lacks(u8, u32),
}

impl Arguments {
    /// Whether a call with `arguments` is meant.
    #[must_use]
    pub fn allow(self, arguments: &[u64]) -> bool {
        let half = |index: u8| {
            let argument = arguments.get(usize::from(index)).copied().unwrap_or(0);
            argument & u64::from(u32::MAX)
        };
        match self {
            Self::Any => true,
            Self::Is(index, number) => half(index) == u64::from(number),
            Self::Lacks(index, bits) => half(index) & u64::from(bits) == 0,
        }
    }
}

/// What a call is for.
#[derive(Clone, Copy, Debug)]
pub enum Reason {
    /// The tests of the VMM make it: `cargo xtask syscalls` fails when they do not.
    Seen(&'static str),
    /// No test on every host makes it, and this is why it must be allowed.
    Unseen(&'static str),
}

impl Reason {
    /// The reason itself.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Seen(text) | Self::Unseen(text) => text,
        }
    }
}

/// Writes rules, a line each: `call, arguments => reason;`.
macro_rules! table {
    ($($call:ident, $arguments:expr => $reason:expr;)*) => {
        &[$(Rule {
            name: stringify!($call),
            number: libc::$call,
            arguments: $arguments,
            reason: $reason,
        }),*]
    };
}
pub(super) use table;
