//! What the calls on machines are carried out by.

use agent_objects::{MachineRequest, Object};

use crate::error::ApiError;
use crate::objects::WriteBy;

/// The agent, as the service of its machines sees it.
pub trait MachineRegistry: Clone + Send + Sync + 'static {
    /// Changes a machine, named by namespace and name. The change is on disk when this returns.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`] when the request does not fit the machine.
    fn change_machine(
        &self,
        name: (&str, &str),
        request: MachineRequest,
        by: &WriteBy,
    ) -> Result<Object, ApiError>;
}
