//! libFuzzer's program for all targets; the environment variable `FUZZ_TARGET` names one.
#![no_main]

use std::sync::LazyLock;

use fuzz::{TARGETS, Target, target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("'{name}' is no target; targets: {}", names.join(" "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    (TARGET.run)(data);
});
