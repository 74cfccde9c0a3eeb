//! The service.

mod counted;
mod node_service;
mod serve;
mod services;
#[cfg(test)]
mod tests;
mod traced;

#[cfg(test)]
pub(crate) use self::serve::serve_on;
pub use self::serve::{Listeners, MAX_RESPONSE_BYTES, ServeError, serve};
pub use self::services::Services;
