//! The shunt binary: one command line, one daemon.
//!
//! Exit codes: 0 done, 1 something failed, 2 the command line or the configuration is wrong.

mod lab;
mod stats;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Network I/O for virtual machines and containers, with SR-IOV at its centre.
#[derive(Debug, Parser)]
#[command(name = "shunt", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    Lab(lab::Lab),
    Stats(stats::Stats),
}

/// A mistake of the user's, in the command line or a file: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Mistake(String);

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::builder()
                .with_default_directive(tracing::Level::INFO.into())
                .with_env_var("SHUNT_LOG")
                .from_env_lossy(),
        )
        .init();
    let outcome = match cli.command {
        Command::Up(up) => up.run(),
        Command::Lab(lab) => lab.run(),
        Command::Stats(stats) => stats.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Mistake>() => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("shunt: {error:#}");
            ExitCode::FAILURE
        }
    }
}
