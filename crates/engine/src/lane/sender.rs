//! State of a transmit ring from burst to burst.

use bridge::rate::StormLimit;
use port::virtio_net::NextLines;

/// State of a transmit ring that a lane keeps from burst to burst.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Flow caches of the classifiers.
    pub(crate) nic_flows: bridge::nic::Flows,
    pub(crate) switch_flows: bridge::switch::Flows,
    pub(crate) storm: StormLimit,
    storm_per_second: u32,
    /// The time, ns.
    pub(crate) now_ns: u64,
    /// Lines that its next burst touches first: in its ring, and in the last receiver's.
    pub(crate) next: [Option<NextLines>; 2],
}

impl Sender {
    pub(crate) fn new() -> Sender {
        let (nic_flows, switch_flows) = (bridge::nic::Flows::new(), bridge::switch::Flows::new());
        let storm = StormLimit::new(0, 0);
        Sender { nic_flows, switch_flows, storm, storm_per_second: 0, now_ns: 0, next: [None; 2] }
    }

    /// Limits broadcasts and multicasts a second; 0 for no limit.
    pub(crate) fn limit_storms(&mut self, per_second: u32, now_ns: u64) {
        if per_second != self.storm_per_second {
            self.storm_per_second = per_second;
            self.storm = StormLimit::new(per_second, now_ns);
        }
    }
}
