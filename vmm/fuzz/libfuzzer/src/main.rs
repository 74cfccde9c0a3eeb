//! The targets of `vmm_fuzz::targets` for libFuzzer. The environment names one: its program is the same
//! for all of them, because each would be built and linked as a whole.
#![no_main]

use std::sync::OnceLock;

use vmm_fuzz::{Target, targets};

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("KVMLET_FUZZ_TARGET").expect("KVMLET_FUZZ_TARGET is the name of a target");
        targets::find(&name).expect("KVMLET_FUZZ_TARGET is one that vmm-fuzz --list prints")
    });
    (target.run)(bytes);
});
