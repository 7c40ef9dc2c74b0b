//! Results of lab runs as data, and all their presentations.
//!
//! Model: a [`Point`] is one measurement. [`Results`] are the points of one run, with the machine
//! and the command. Everything else is computed from these: [`table`] and [`verdict`] for the
//! terminal, [`json`] and [`csv`] for programs, [`html`] with its plots for readers, [`write()`]
//! for files. All values shown come from points, except published ones ([`published`]), which are
//! labelled.
//!
//! Words: if the generator is the bottleneck of a point, its rate is a lower bound for the switch.
//! It is shown as such (`> 12.3`) everywhere. If a point was measured several times, tables show
//! each, and plots and verdicts use the one of median Mpps.

pub mod by_band;
mod columns;
pub mod copy;
pub mod copy_table;
pub mod copy_verdict;
pub mod csv;
mod error;
pub mod experiment;
mod files;
mod format;
pub mod html;
pub mod json;
mod names;
mod pinned;
pub mod published;
pub mod receive;
pub mod results;
pub mod scaling;
pub mod stages;
pub mod statistics;
mod svg;
pub mod table;
pub mod text_table;
pub mod time;
pub mod transfer;
pub mod transfer_table;
pub mod verdict;
mod view;

#[cfg(any(test, feature = "testing"))]
pub mod samples;
#[cfg(test)]
mod tests;

pub use error::ReportError;
pub use files::{RESULTS, folder_name, read, save, write};
pub use format::three;
pub use results::{
    Bottleneck, CopySetup, Cpu, FileCopy, GeneratorLoad, GuestRates, ParseNameError, PathKind,
    Pattern, Pinned, Point, PointError, Receive, Results, RingKind, SocketWorkload, Started,
    Transfer,
};
pub use stages::Stages;
pub use svg::escape as escape_xml;
pub use text_table::{Align, TextFormat, wrap};
pub use transfer::{LayerCpu, RoundTrip, Spread, TransferError};
pub use view::TrafficKind;
