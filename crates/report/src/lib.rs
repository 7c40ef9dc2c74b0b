//! What a run of the lab says: its results as data, and everything that shows them.
//!
//! Model: a [`Point`] is one measurement, [`Results`] are the points of one run with the machine
//! and the command they belong to. All else is a function of these: [`table`] and [`verdict`] for
//! the terminal, [`json`] and [`csv`] for programs, [`html`] with its plots for readers,
//! [`write()`] for all three as files. Nothing here measures, and nothing shows a figure that no
//! point holds, with one exception that is labelled as such: the values of nfv-2017 beside ours
//! ([`published`]).
//!
//! Words: a point whose bottleneck is the generator tells nothing about the switch but that it can
//! do no less. It is shown as a lower bound (`> 12.3`) wherever it appears. Where the same point
//! was measured more than once, the tables show each, and plots and verdicts take the one of median
//! Mpps.

pub mod beside;
pub mod by_band;
mod columns;
pub mod copy;
pub mod copy_table;
pub mod csv;
pub mod experiment;
mod figure;
mod files;
pub mod html;
pub mod json;
mod names;
pub mod published;
pub mod receive;
pub mod results;
pub mod stages;
pub mod statistics;
mod svg;
pub mod table;
pub mod time;
pub mod transfer;
pub mod transfer_table;
pub mod verdict;
mod view;

#[cfg(any(test, feature = "testing"))]
pub mod samples;
#[cfg(test)]
mod tests;

pub use files::{RESULTS, ReportError, folder_name, read, save, write};
pub use results::{
    Bottleneck, CopySetup, Cpu, FileCopy, Guest, Load, ParseNameError, PathKind, Pattern, Pinned,
    Point, PointError, Receive, Results, RingKind, Started, Transfer, Workload,
};
pub use stages::Stages;
pub use transfer::{Layers, RoundTrip, Spread, TransferError};
pub use view::TrafficKind;
