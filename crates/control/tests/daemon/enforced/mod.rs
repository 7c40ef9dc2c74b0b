//! Every setting of an adapter, as guests see it enforced on their frames: on each path, and with
//! one lane and two.

mod sources;
mod vlans;
