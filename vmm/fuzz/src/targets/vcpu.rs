//! The state of a vCPU, as whoever restores one reads it before there is a vCPU: sound but for what a
//! program changes, and then any bytes of it others. Bytes are not enough for a whole one: four KiB are
//! those of XSAVE alone.

use prost::Message;
use vmm_machine::fuzzing;

use crate::input::Input;

/// Lengths of `struct kvm_regs`, `kvm_sregs`, `kvm_xsave`, `kvm_xcrs`, `kvm_debugregs`,
/// `kvm_lapic_state` and `kvm_vcpu_events` (`linux/kvm.h`).
const LENGTHS: [usize; 7] = [144, 312, 4096, 392, 128, 1024, 64];
/// The header of `struct kvm_nested_state`.
const NESTED_BYTES: usize = 128;
/// More than a host has, and than is read.
const MANY_MSRS: usize = 5000;

/// As vmm-kvm writes it.
#[derive(Clone, PartialEq, Message)]
struct Vcpu {
    #[prost(bytes = "vec", tag = "1")]
    registers: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    special: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    xsave: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    extended_control: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    debug: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    lapic: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    events: Vec<u8>,
    #[prost(uint32, tag = "8")]
    run_state: u32,
    #[prost(message, repeated, tag = "9")]
    msrs: Vec<Msr>,
    #[prost(uint32, tag = "10")]
    tsc_khz: u32,
    #[prost(bytes = "vec", tag = "11")]
    nested: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Msr {
    #[prost(uint32, tag = "1")]
    index: u32,
    #[prost(fixed64, tag = "2")]
    value: u64,
}

impl Vcpu {
    fn sound() -> Self {
        let [
            registers,
            special,
            xsave,
            extended_control,
            debug,
            lapic,
            events,
        ] = LENGTHS.map(|length| vec![0; length]);
        Self {
            registers,
            special,
            xsave,
            extended_control,
            debug,
            lapic,
            events,
            ..Self::default()
        }
    }

    fn structure(&mut self, number: usize) -> &mut Vec<u8> {
        match number {
            0 => &mut self.registers,
            1 => &mut self.special,
            2 => &mut self.xsave,
            3 => &mut self.extended_control,
            4 => &mut self.debug,
            5 => &mut self.lapic,
            6 => &mut self.events,
            _ => &mut self.nested,
        }
    }

    fn has_its_lengths(&self) -> bool {
        let lengths = [
            &self.registers,
            &self.special,
            &self.extended_control,
            &self.debug,
            &self.lapic,
            &self.events,
        ];
        let wanted = [0, 1, 3, 4, 5, 6].map(|index: usize| LENGTHS[index]);
        lengths.map(Vec::len) == wanted && self.xsave.len() >= 4096 && self.msrs.len() <= 4096
    }
}

/// Changes to a sound state, then bytes that are others.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut state = Vcpu::sound();
    for _ in 0..input.below(8) {
        change(&mut state, &mut input);
    }
    let mut written = state.encode_to_vec();
    let is_altered = !input.is_empty();
    while !input.is_empty() {
        let at = usize::from(input.u16());
        let value = input.u8();
        if let Some(byte) = written.get_mut(at) {
            *byte = value;
        }
    }
    let read = fuzzing::read_vcpu(&written);
    if is_altered {
        return;
    }
    if !state.has_its_lengths() {
        read.expect_err("a state of other lengths");
    } else if state.nested.is_empty() && state.xsave.len() == 4096 {
        read.expect("a sound state");
    }
}

fn change(state: &mut Vcpu, input: &mut Input<'_>) {
    match input.below(6) {
        0 => {
            let structure = state.structure(input.below(8));
            let length = usize::from(input.u16());
            structure.resize(length, input.u8());
        }
        1 => {
            let structure = state.structure(input.below(8));
            let at = usize::from(input.u16()) % (structure.len() + 1);
            let data = input.access();
            for (byte, value) in structure.iter_mut().skip(at).zip(data) {
                *byte = value;
            }
        }
        2 => state.msrs.push(Msr {
            index: input.u32(),
            value: input.u64(),
        }),
        3 => state
            .msrs
            .resize(usize::from(input.u16()) % MANY_MSRS, Msr::default()),
        4 => {
            // Nearly right: flags, format, length.
            let length = NESTED_BYTES + usize::from(input.u16() % 8400);
            let mut nested = input.u16().to_le_bytes().to_vec();
            nested.extend(u16::from(input.u8() % 3).to_le_bytes());
            let said = length + input.below(2);
            nested.extend(u32::try_from(said).unwrap_or(0).to_le_bytes());
            nested.resize(length, input.u8());
            state.nested = nested;
        }
        _ => {
            state.run_state = input.u32();
            state.tsc_khz = input.u32();
        }
    }
}
