//! Tests of ports, with a guest of virtio-net at one end or both: what is sent arrives, byte for
//! byte, in whatever pieces either guest chose; and what cannot be delivered is counted.

mod capture;
mod contents;
mod counts;
mod deep;
mod direct;
mod events;
mod guests;
mod kept;
mod logged;
mod offload;
mod pcap;
mod snapshot;
mod stream;
mod tap;
mod vxlan;
mod xdp;
