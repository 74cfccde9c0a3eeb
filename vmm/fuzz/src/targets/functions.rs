//! PCI functions that are no virtio devices: every access to configuration space and BARs, moves to
//! another process, damaged state.

use std::sync::Arc;

use vmm_devices::pci::root_port::RootPort;
use vmm_devices::pvpanic::PvpanicPci;
use vmm_devices::watchdog::i6300esb::I6300Esb;
use vmm_devices::{Payload, Payloads, PciFunction, WatchdogAction};

use crate::guest::{NoMsi, nobody, settle};
use crate::input::Input;

const MAX_STEPS: usize = 200;

/// How a function is made: new, or of state.
type Make = fn(Option<&mut Payloads>) -> Option<Box<dyn PciFunction>>;

/// A root port with a device behind it.
pub fn root_port(bytes: &[u8]) {
    run(bytes, |state| {
        let msi = Arc::new(NoMsi::default());
        let port = match state {
            None => RootPort::new(16, true, msi),
            Some(payloads) => RootPort::restored(16, true, msi, payloads),
        };
        port.ok().map(|port| Box::new(port) as _)
    });
}

/// The target `watchdog`: accesses to a 6300ESB.
pub fn watchdog(bytes: &[u8]) {
    run(bytes, |state| {
        let (action, nobody) = (WatchdogAction::Reset, nobody());
        let watchdog = match state {
            None => I6300Esb::new(action, nobody),
            Some(payloads) => I6300Esb::restored(action, nobody, payloads),
        };
        watchdog.ok().map(|watchdog| Box::new(watchdog) as _)
    });
}

/// A panic device.
pub fn pvpanic(bytes: &[u8]) {
    run(bytes, |state| {
        let device = match state {
            None => PvpanicPci::new(nobody()),
            Some(payloads) => PvpanicPci::restored(nobody(), payloads),
        };
        device.ok().map(|device| Box::new(device) as _)
    });
}

fn run(bytes: &[u8], make: Make) {
    let mut input = Input::new(bytes);
    let mut function = make(None).expect("a function");
    let identity = identity_of(&mut *function);
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        function = step(function, make, &mut input);
        assert_eq!(
            identity_of(&mut *function),
            identity,
            "it became another one"
        );
    }
    settle(&mut *function);
    function.reset();
    for window in function.bars() {
        assert!(!window.decoded, "a BAR answers after a reset");
    }
}

fn identity_of(function: &mut dyn PciFunction) -> [u8; 4] {
    let mut identity = [0; 4];
    function.config_read(0, &mut identity);
    identity
}

fn step(
    mut function: Box<dyn PciFunction>,
    make: Make,
    input: &mut Input<'_>,
) -> Box<dyn PciFunction> {
    match input.below(8) {
        0..=3 => access(&mut *function, input),
        4 => {
            let offset = u64::from(input.u16() % 4096);
            let data = input.access();
            function.bar_write(0, offset, &data);
        }
        5 => {
            let offset = input.u64() >> (input.u8() % 64);
            let mut data = input.access();
            function.bar_read(input.below(6), offset, &mut data);
        }
        6 => {
            settle(&mut *function);
            if let Some(bridge) = function.bridge() {
                let _ = (bridge.routing(), bridge.take_secondary_reset());
            }
        }
        _ => return moved(&*function, make, input),
    }
    function
}

fn access(function: &mut dyn PciFunction, input: &mut Input<'_>) {
    // Most registers are among the first 256 bytes.
    let offset = if input.flag() {
        u16::from(input.u8())
    } else {
        input.u16() % 4096
    };
    let mut data = input.access();
    data.truncate(4 - usize::from(offset % 4));
    if data.len() == 3 {
        data.pop();
    }
    let _ = function.config_write(offset, &data);
    function.config_read(offset, &mut data);
    let _ = function.bars();
}

fn moved(function: &dyn PciFunction, make: Make, input: &mut Input<'_>) -> Box<dyn PciFunction> {
    let saved = function.save();
    let mut damaged = saved.clone();
    let index = input.below(damaged.len());
    if let Some(Payload { bytes, .. }) = damaged.get_mut(index) {
        let at = usize::from(input.u16()) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= input.u8();
        }
    }
    for payloads in [damaged, saved] {
        let mut payloads = Payloads::new(payloads);
        if let Some(mut function) = make(Some(&mut payloads)) {
            function.resume();
            return function;
        }
    }
    panic!("a function does not take its own state");
}
