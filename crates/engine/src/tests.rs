//! The engine with guests in this process: their rings are real, and so are the lanes.

mod ahead;
mod bridge;
mod busy;
mod capture;
mod charges;
mod counters;
mod drops;
mod filters;
mod forwarding;
mod instructions;
mod kit;
mod lanes;
mod lifecycle;
mod model;
mod parked;
mod paths;
mod placed;
mod quarantine;
mod sleep;
mod snapshots;
mod stages;
mod switch;
mod switchdev;
mod trace;
