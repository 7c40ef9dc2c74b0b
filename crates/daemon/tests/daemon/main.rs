//! A daemon in this process, and guests that attach to it over its sockets as a VMM does.

mod arrivals;
mod blocking;
mod devices;
mod enforced;
mod faults;
mod guest;
mod honest;
mod host;
mod leftovers;
mod lifecycle;
mod limits;
mod log;
mod moves;
mod moving;
mod net;
mod offers;
mod rings;
mod sessions;
mod settings;
mod socket_access;
mod standing;
mod switchdev;
