//! Messages as bytes, and the life of a device whose kernel is made up.

mod kernel;
mod life;
mod messages;
