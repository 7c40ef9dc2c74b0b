//! libFuzzer's entry to [`fuzz_vhost_user::messages`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_vhost_user::messages(data);
});
