//! Tests of virtio-net ports, with a guest at either end: what is sent arrives, byte for byte, in
//! whatever pieces either guest chose; and what cannot be delivered is counted.

mod capture;
mod contents;
mod counts;
mod deep;
mod events;
mod guests;
mod offload;
mod snapshot;
