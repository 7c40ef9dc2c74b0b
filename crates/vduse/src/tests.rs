//! Messages as bytes, and the life of a device with a simulated kernel.

mod kernel;
mod life;
mod messages;
