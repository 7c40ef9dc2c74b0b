//! libFuzzer's entry to [`fuzz_rings::logged_rings`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_rings::logged_rings(data);
});
