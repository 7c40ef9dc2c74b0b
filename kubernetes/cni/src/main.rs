//! The executable that a container runtime runs for each command, and as a hook.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use shunt_cni::{hook, install};

/// This program.
const SELF: &str = "/proc/self/exe";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some(hook::ATTACH) => {
            Some(hook::attach(&arguments[1..], std::io::stdin()).map_err(|error| error.line()))
        }
        Some(install::INSTALL) => Some(install::install(&arguments[1..], Path::new(SELF))),
        _ => None,
    };
    match done {
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "shunt-cni: {error}");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    let (printed, code) = match shunt_cni::run(|name| std::env::var(name).ok(), std::io::stdin()) {
        Ok(printed) => (printed, ExitCode::SUCCESS),
        Err(error) => (Some(error), ExitCode::FAILURE),
    };
    let Some(printed) = printed else { return code };
    match writeln!(std::io::stdout(), "{printed:#}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE, // the runtime is gone
    }
}
