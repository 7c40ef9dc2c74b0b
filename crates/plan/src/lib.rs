//! Planner: a model of network paths, and advice from it.

pub mod advise;
pub mod chains;
pub mod dma;
pub mod explain;
pub mod fit;
pub mod fleet;
pub mod frames;
pub mod limit;
pub mod load;
pub mod machine;
pub mod path;
pub mod pcie;
pub mod predict;
mod range;
pub mod units;
pub mod validate;
pub mod workload;

pub use range::CORES;
