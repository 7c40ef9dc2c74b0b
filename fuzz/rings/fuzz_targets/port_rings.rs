//! libFuzzer's entry to [`fuzz_rings::port_rings`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_rings::port_rings(data);
});
