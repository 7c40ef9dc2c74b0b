//! The executable that a container runtime runs for each command, and as a hook.

use std::io::Write;
use std::process::ExitCode;

use shunt_cni::hook;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|it| it == hook::ATTACH) {
        return match hook::attach(&arguments[1..], std::io::stdin()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "shunt-cni: {}", error.line());
                ExitCode::FAILURE
            }
        };
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
