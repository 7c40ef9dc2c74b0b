//! Every setting of an adapter, as guests see it enforced on their frames: on each path, and with
//! one lane and two.

mod bridges;
mod changes;
mod limits;
mod links;
mod mirrors;
mod ports;
mod release;
mod sources;
mod vfs;
mod vlans;
mod wire;
