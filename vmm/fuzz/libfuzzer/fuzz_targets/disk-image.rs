//! See `vmm_fuzz::targets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = vmm_fuzz::targets::find("disk-image").expect("a target");
    (target.run)(bytes);
});
