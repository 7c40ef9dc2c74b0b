//! A daemon in this process, and guests that attach to it over its sockets as a VMM does.

mod arrivals;
mod blocking;
mod devices;
mod enforced;
mod guest;
mod host;
mod lifecycle;
mod log;
mod moves;
mod moving;
mod net;
mod offers;
mod rings;
mod sessions;
mod settings;
mod switchdev;
