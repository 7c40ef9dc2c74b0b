//! The executable of the DaemonSet.

use std::process::ExitCode;

use anyhow::Context;
use shunt_agent::agent::Agent;
use shunt_agent::options::{HELP, Options};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|it| matches!(it.as_str(), "-h" | "--help")) {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let options = match Options::read(arguments, std::env::var("NODE_NAME").ok()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("shunt-agent: {error}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shunt-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let config = kube::Config::infer().await.context("the cluster is unknown")?;
        let agent = Agent::new(options, config)?;
        let mut end = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async {
            tokio::select! {
                _ = end.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        agent.run(stop).await
    });
    // A thread may still wait for the daemon.
    runtime.shutdown_background();
    done
}
