//! Kernels and initial RAM disks, as a user hands them over.

use std::fs::File;
use std::io::Write;

use vmm_machine::fuzzing::load_kernel;
use vmm_machine::{KernelConfig, KernelEntry};
use vmm_memory::{Layout, create_ram};

use crate::input::Input;

const RAM_BYTES: u64 = 4 << 20;

/// How it is entered, a command line, and the file.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let choice = input.u8();
    let entry = match choice % 3 {
        0 => KernelEntry::Default,
        1 => KernelEntry::Pvh,
        _ => KernelEntry::Linux64,
    };
    let initrd = (choice & 0x80 != 0).then(|| file(&[choice; 100]));
    let cmdline = usize::from(choice >> 3 & 7);
    let config = KernelConfig {
        cmdline: input.bytes(cmdline).to_vec(),
        kernel: file(input.rest()),
        initrd,
        entry,
        maps_pci: false,
    };
    let layout = Layout::new(RAM_BYTES, 40).expect("a layout");
    let ram = create_ram(&layout).expect("memory");
    // Refused or loaded.
    let _ = load_kernel(&ram, &layout, &config);
}

fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(content).expect("written");
    file
}
