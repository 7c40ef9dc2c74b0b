//! The engine with guests in this process: their rings are real, and so are the lanes.

mod changes;
mod counters;
mod forwarding;
mod kit;
mod lanes;
mod model;
mod sleep;
