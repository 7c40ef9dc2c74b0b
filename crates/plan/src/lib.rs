//! The planner: the model and its advice.

pub mod advise;
pub mod dma;
pub mod explain;
pub mod fit;
pub mod fleet;
pub mod frames;
pub mod limit;
pub mod load;
pub mod machine;
pub mod pcie;
pub mod predict;
pub mod units;
pub mod validate;
mod within;
pub mod workload;

pub use within::{CORES, ValueError};
