//! A port device that several threads use.

use std::sync::{Arc, Mutex};

use vmm_devices::BusDevice;

/// A device that several ports lead to.
pub(crate) type SharedDevice = Arc<Mutex<dyn BusDevice>>;
