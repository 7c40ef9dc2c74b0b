//! `shunt-guest`: sets the VFs of a guest's virtual PF, as `ip link set ... vf` does on a physical
//! machine.
//!
//! Model: one request over the guest's channel, a virtio-serial port, and one answer, as in
//! `docs/guest-control.md`. The host decides which settings are allowed; its errors are shown like
//! the kernel's.
//!
//! Exit codes: 0 success, 1 channel error, 2 usage error or rejected by the host.

mod args;
mod channel;
mod errno;
mod json;
mod show;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Command, UsageError};
use channel::Channel;
use errno::HostError;
use json::Json;

/// Reasons for failure.
#[derive(Debug)]
enum Failure {
    /// The command line is wrong.
    UsageError(String),
    /// The host refused.
    Rejected(HostError),
    /// The channel failed.
    Channel(String),
}

fn main() -> ExitCode {
    let (json, outcome) = match args::parse(std::env::args().skip(1)) {
        Ok(args) => (args.json, run(&args.port, args.json, &args.command)),
        Err(UsageError(text)) => (false, Err(Failure::UsageError(text))),
    };
    let (code, text) = match outcome {
        Ok(text) => {
            // A closed pipe on stdout is not an error.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Failure::Rejected(error)) if json => (2, error.to_json().to_string()),
        Err(Failure::Rejected(error)) => (2, format!("shunt-guest: {error}")),
        Err(Failure::UsageError(text)) => (2, format!("shunt-guest: {text}; see --help")),
        Err(Failure::Channel(text)) => (1, format!("shunt-guest: {text}")),
    };
    eprintln!("{text}");
    ExitCode::from(code)
}

/// Runs the command; returns the text to print.
fn run(port: &Option<String>, json: bool, command: &Command) -> Result<String, Failure> {
    if let Command::Print(text) = command {
        return Ok(text.clone());
    }
    let mut channel = Channel::open(port.as_deref()).map_err(Failure::Channel)?;
    let mut ask = |request: &Json| -> Result<Json, Failure> {
        let answer = channel.ask(request).map_err(Failure::Channel)?;
        match answer.get("error") {
            Some(error) => Err(Failure::Rejected(HostError::of(error))),
            None => Ok(answer.get("result").cloned().unwrap_or(Json::Null)),
        }
    };
    let hello = |ask: &mut dyn FnMut(&Json) -> Result<Json, Failure>| ask(&request("hello"));
    match command {
        Command::Pf => {
            let hello = hello(&mut ask)?;
            Ok(if json { format!("{hello}\n") } else { show::pf(&hello) })
        }
        Command::List(vf) => {
            let hello = hello(&mut ask)?;
            let mut asked = request("list");
            if let Some(vf) = vf {
                asked.put("vf", Json::Number(f64::from(*vf)));
            }
            let list = ask(&asked)?;
            let device = show::device_of(&hello);
            Ok(match json {
                true => format!("{}\n", show::list_json(&hello, &list, device.as_deref())),
                false => show::list(&hello, &list, device.as_deref()),
            })
        }
        Command::Reset(vf) => {
            let mut asked = request("reset");
            asked.put("vf", Json::Number(f64::from(*vf)));
            ask(&asked).map(|_| String::new())
        }
        Command::Set(vf, settings) => {
            let mut asked = request("set");
            asked.put("vf", Json::Number(f64::from(*vf)));
            settings.iter().for_each(|(name, value)| asked.put(name, value.clone()));
            ask(&asked).map(|_| String::new())
        }
        Command::Print(text) => Ok(text.clone()),
    }
}

/// A request without its number, which the channel adds.
fn request(op: &str) -> Json {
    let mut request = Json::Object(Vec::new());
    request.put("v", Json::Number(1.0));
    request.put("op", Json::Text(op.to_owned()));
    request
}
