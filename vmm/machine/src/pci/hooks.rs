//! Functions by which the bus reaches the rest of the machine.

use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

/// Undoes a binding of [`BindKick`].
pub(crate) type Unbind = Box<dyn FnOnce() + Send>;

/// Makes writes at a guest-physical address signal an eventfd. `None` when it is not possible:
/// kicks are vCPU exits then.
pub(crate) type BindKick = Box<dyn Fn(&Arc<EventFd>, u64) -> Option<Unbind> + Send + Sync>;

/// Keeps the guest from going on before all functions have come to rest.
pub(crate) type AwaitQuiesce = Box<dyn Fn() + Send + Sync>;
