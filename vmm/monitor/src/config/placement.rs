//! Where threads run on the host: the pins of `cpus` of a machine's configuration.

use std::collections::BTreeMap;

use proto_vmm::v1;
use vmm_machine::{AffinityMask, CpuTopology, PciAddress, Placed, Placement, PlacementError};
use vmm_sys::affinity::MAX_HOST_CPUS;

use super::error::FieldError;

/// Checks all that can be known without trying.
pub(super) fn placement(
    wire: Option<&v1::Cpus>,
    topology: CpuTopology,
    io_threads: &BTreeMap<PciAddress, String>,
) -> Result<Placement, FieldError> {
    let Some(wire) = wire else {
        return Ok(Placement::default());
    };
    let entries = wire.vcpu_pins.len();
    let count = topology.count();
    if entries > 0 && u32::try_from(entries) != Ok(count) {
        let rule = format!("has {entries} entries; it must have {count}, one a vCPU, or none");
        return Err(FieldError::new("cpus.vcpu_pins", rule));
    }
    let mut placement = Placement::default();
    for (index, cpus) in (0u32..).zip(&wire.vcpu_pins) {
        if !cpus.cpus.is_empty() {
            let cpus = set(&vcpu_field(index), cpus)?;
            placement.vcpus.insert(index, cpus);
        }
    }
    if let Some(cpus) = &wire.emulator_pin {
        placement.emulator = Some(set(EMULATOR, cpus)?);
    }
    for (index, pin) in wire.io_thread_pins.iter().enumerate() {
        let path = format!("cpus.io_thread_pins[{index}]");
        let name = &pin.io_thread;
        if !io_threads.values().any(|known| known == name) {
            let rule = format!("is {name:?}, which is no thread of a device");
            return Err(FieldError::new(format!("{path}.io_thread"), rule));
        }
        let cpus = pin.cpus.clone().unwrap_or_default();
        let cpus = set(&format!("{path}.cpus"), &cpus)?;
        if placement.io_threads.insert(name.clone(), cpus).is_some() {
            let rule = format!("is {name:?}, which another entry pins");
            return Err(FieldError::new(format!("{path}.io_thread"), rule));
        }
    }
    Ok(placement)
}

const EMULATOR: &str = "cpus.emulator_pin";

fn vcpu_field(index: u32) -> String {
    format!("cpus.vcpu_pins[{index}]")
}

/// The field of a place that the host does not have.
pub fn field(error: &PlacementError) -> String {
    match error {
        PlacementError::NoCpu { thread, .. } => match thread {
            Placed::Vcpu(index) => vcpu_field(*index),
            Placed::Emulator => EMULATOR.to_owned(),
            Placed::IoThread(_) => "cpus.io_thread_pins".to_owned(),
        },
        PlacementError::Host(_) => String::new(),
    }
}

fn set(field: &str, wire: &v1::HostCpus) -> Result<AffinityMask, FieldError> {
    if wire.cpus.is_empty() {
        return Err(FieldError::new(field, "has no CPU"));
    }
    AffinityMask::new(wire.cpus.iter().copied()).ok_or_else(|| {
        let rule = format!("has a CPU above {}", MAX_HOST_CPUS - 1);
        FieldError::new(field, rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(cpus: &[u32]) -> v1::HostCpus {
        v1::HostCpus {
            cpus: cpus.to_vec(),
        }
    }

    fn wire() -> v1::Cpus {
        v1::Cpus {
            vcpu_pins: vec![cpus(&[3]), cpus(&[])],
            emulator_pin: Some(cpus(&[0, 1])),
            io_thread_pins: vec![v1::IoThreadPin {
                io_thread: "disk".to_owned(),
                cpus: Some(cpus(&[2])),
            }],
            ..v1::Cpus::default()
        }
    }

    fn check(wire: &v1::Cpus) -> Result<Placement, FieldError> {
        let topology = CpuTopology::new(1, 2, 1).unwrap();
        let address = PciAddress::new(0, 1).unwrap();
        let io_threads = BTreeMap::from([(address, "disk".to_owned())]);
        placement(Some(wire), topology, &io_threads)
    }

    #[test]
    fn pins_are_taken_over_and_an_empty_one_is_none() {
        let placement = check(&wire()).unwrap();
        let set = |cpus: &[u32]| AffinityMask::new(cpus.iter().copied()).unwrap();
        assert_eq!(placement.vcpus, BTreeMap::from([(0, set(&[3]))]));
        assert_eq!(placement.emulator, Some(set(&[0, 1])));
        assert_eq!(placement.io_threads["disk"], set(&[2]));
        assert_eq!(check(&v1::Cpus::default()), Ok(Placement::default()));
    }

    #[test]
    fn every_wrong_field_is_named() {
        let field_of = |change: fn(&mut v1::Cpus)| {
            let mut wire = wire();
            change(&mut wire);
            check(&wire).unwrap_err().field
        };
        let pins = |wire: &mut v1::Cpus| wire.vcpu_pins.push(cpus(&[0]));
        assert_eq!(field_of(pins), "cpus.vcpu_pins");
        let far = |wire: &mut v1::Cpus| wire.vcpu_pins[1] = cpus(&[MAX_HOST_CPUS]);
        assert_eq!(field_of(far), "cpus.vcpu_pins[1]");
        let none = |wire: &mut v1::Cpus| wire.emulator_pin = Some(cpus(&[]));
        assert_eq!(field_of(none), "cpus.emulator_pin");
        let unknown = |wire: &mut v1::Cpus| wire.io_thread_pins[0].io_thread = "net".to_owned();
        assert_eq!(field_of(unknown), "cpus.io_thread_pins[0].io_thread");
        let twice = |wire: &mut v1::Cpus| {
            let pin = wire.io_thread_pins[0].clone();
            wire.io_thread_pins.push(pin);
        };
        assert_eq!(field_of(twice), "cpus.io_thread_pins[1].io_thread");
        let without = |wire: &mut v1::Cpus| wire.io_thread_pins[0].cpus = None;
        assert_eq!(field_of(without), "cpus.io_thread_pins[0].cpus");
    }
}
