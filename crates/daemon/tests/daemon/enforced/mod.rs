//! Every setting of an adapter, enforced on the guests' frames: on each path, with one lane and
//! two.

mod bridges;
mod changes;
pub(crate) mod drops;
mod limits;
mod links;
mod mirrors;
mod ports;
mod release;
mod shown;
mod sources;
mod vfs;
mod vlans;
mod wire;
