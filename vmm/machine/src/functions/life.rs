//! Functions that watch over the guest's life: the watchdog, the panic device.

use vmm_devices::pvpanic::PvpanicPci;
use vmm_devices::watchdog::i6300esb::I6300Esb;
use vmm_devices::{NoticeSink, Payloads, PciFunction, WatchdogAction};

use crate::functions::error::DeviceErrorKind;

pub(super) fn watchdog(
    action: WatchdogAction,
    notices: NoticeSink,
    state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let function = match state {
        None => I6300Esb::new(action, notices)?,
        Some(mut payloads) => {
            let function = I6300Esb::restored(action, notices, &mut payloads)?;
            payloads.finish()?;
            function
        }
    };
    Ok(Box::new(function))
}

pub(super) fn pvpanic(
    notices: NoticeSink,
    state: Option<Payloads>,
) -> Result<Box<dyn PciFunction>, DeviceErrorKind> {
    let function = match state {
        None => PvpanicPci::new(notices)?,
        Some(mut payloads) => {
            let function = PvpanicPci::restored(notices, &mut payloads)?;
            payloads.finish()?;
            function
        }
    };
    Ok(Box::new(function))
}
