//! Tests of ports with a virtio-net guest at one or both ends. Frames arrive unchanged, byte for
//! byte, in any buffer layout of either guest; undeliverable frames are counted.

mod capture;
mod contents;
mod counts;
mod direct;
mod events;
mod guests;
mod header;
mod lent;
mod logged;
mod offload;
mod parked;
mod pcap;
mod snapshots;
mod stream;
mod tap;
mod vxlan;
mod xdp;
