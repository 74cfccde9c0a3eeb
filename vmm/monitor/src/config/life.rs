//! Watchdog, what follows a panic, generation id.

use proto_vmm::v1;
use vmm_machine::{DeviceConfig, GenerationId, LifeConfig, PanicPolicy, WatchdogAction};

use super::error::{FieldError, unknown};

pub(super) fn life(wire: &v1::MachineConfig) -> Result<LifeConfig, FieldError> {
    let on_panic = match v1::PanicPolicy::try_from(wire.on_panic) {
        Ok(v1::PanicPolicy::Unspecified) => PanicPolicy::End,
        Ok(v1::PanicPolicy::Pause) => PanicPolicy::Pause,
        Ok(v1::PanicPolicy::Restart) => PanicPolicy::Restart,
        Err(_) => return Err(unknown("on_panic", wire.on_panic)),
    };
    Ok(LifeConfig {
        on_panic,
        vm_gen_id: generation_id(&wire.vm_gen_id)?,
    })
}

fn generation_id(wire: &[u8]) -> Result<Option<GenerationId>, FieldError> {
    if wire.is_empty() {
        return Ok(None);
    }
    GenerationId::try_from(wire).map(Some).map_err(|_| {
        let rule = format!("has {} bytes; a generation id has 16", wire.len());
        FieldError::new("vm_gen_id", rule)
    })
}

pub(super) fn watchdog(path: &str, wire: v1::I6300Esb) -> Result<DeviceConfig, FieldError> {
    let action = match v1::WatchdogAction::try_from(wire.action) {
        Ok(v1::WatchdogAction::Unspecified) => WatchdogAction::Reset,
        Ok(v1::WatchdogAction::Shutdown) => WatchdogAction::Shutdown,
        Ok(v1::WatchdogAction::Poweroff) => WatchdogAction::PowerOff,
        Ok(v1::WatchdogAction::Pause) => WatchdogAction::Pause,
        Ok(v1::WatchdogAction::None) => WatchdogAction::None,
        Err(_) => {
            let field = format!("{path}.i6300esb.action");
            return Err(unknown(&field, wire.action));
        }
    };
    Ok(DeviceConfig::I6300Esb { action })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_ends_a_guest_that_panics_and_resets_one_that_stands_still() {
        let life = life(&v1::MachineConfig::default());
        assert_eq!(life, Ok(LifeConfig::default()));
        let device = watchdog("d", v1::I6300Esb::default());
        let action = WatchdogAction::Reset;
        assert!(matches!(device, Ok(DeviceConfig::I6300Esb { action: a }) if a == action));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let config = v1::MachineConfig {
            on_panic: 9,
            ..v1::MachineConfig::default()
        };
        assert_eq!(life(&config).unwrap_err().field, "on_panic");
        let config = v1::MachineConfig {
            vm_gen_id: vec![1; 15],
            ..v1::MachineConfig::default()
        };
        assert_eq!(life(&config).unwrap_err().field, "vm_gen_id");
        let error = watchdog("devices[3]", v1::I6300Esb { action: -1 }).unwrap_err();
        assert_eq!(error.field, "devices[3].i6300esb.action");
    }
}
