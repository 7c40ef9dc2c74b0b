//! libFuzzer's entry to [`fuzz_rings::device_ring`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_rings::device_ring(data);
});
