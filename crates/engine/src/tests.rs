//! The engine with guests in this process: their rings are real, and so are the lanes.

mod bridge;
mod changes;
mod charges;
mod comings;
mod counters;
mod filters;
mod forwarding;
mod kept;
mod kit;
mod lanes;
mod model;
mod paths;
mod pipes;
mod placed;
mod quarantine;
mod sleep;
mod stages;
mod switch;
