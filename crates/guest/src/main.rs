//! `shunt-guest`: in a guest whose PF is virtual, sets its VFs as `ip link set ... vf` does on a
//! physical machine.
//!
//! Model: one request over the guest's channel, a virtio-serial port, and one answer; the words are
//! those of `docs/guest-control.md`. What may be set is the host's to say, and its refusals are
//! shown as the kernel's would be.
//!
//! Exit codes: 0 done, 1 the channel failed, 2 the command line is wrong or the host refused.

mod args;
mod channel;
mod errno;
mod json;
mod show;

use std::io::{self, Write};
use std::process::ExitCode;

use args::{Command, UsageError};
use channel::Channel;
use errno::Refusal;
use json::Json;

/// Why nothing was done.
#[derive(Debug)]
enum Failure {
    /// The command line is wrong.
    UsageError(String),
    /// The host refused.
    Refused(Refusal),
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
            // A reader that has seen enough is no error.
            let _ = io::stdout().lock().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Failure::Refused(refusal)) if json => (2, refusal.to_json().to_string()),
        Err(Failure::Refused(refusal)) => (2, format!("shunt-guest: {refusal}")),
        Err(Failure::UsageError(text)) => (2, format!("shunt-guest: {text}; see --help")),
        Err(Failure::Channel(text)) => (1, format!("shunt-guest: {text}")),
    };
    eprintln!("{text}");
    ExitCode::from(code)
}

/// Does what is asked; gives what is to be shown.
fn run(port: &Option<String>, json: bool, command: &Command) -> Result<String, Failure> {
    if let Command::Say(text) = command {
        return Ok(text.clone());
    }
    let mut channel = Channel::open(port.as_deref()).map_err(Failure::Channel)?;
    let mut ask = |request: &Json| -> Result<Json, Failure> {
        let answer = channel.ask(request).map_err(Failure::Channel)?;
        match answer.get("error") {
            Some(error) => Err(Failure::Refused(Refusal::of(error))),
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
        Command::Say(text) => Ok(text.clone()),
    }
}

/// A request without its number, which the channel gives.
fn request(op: &str) -> Json {
    let mut request = Json::Object(Vec::new());
    request.put("v", Json::Number(1.0));
    request.put("op", Json::Text(op.to_owned()));
    request
}
