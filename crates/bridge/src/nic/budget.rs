//! Capacity of a real card: its link, its bus, its packet engine.
//!
//! Model: one bucket for each limit. A lane asks if the budget is open before it takes a burst, and
//! charges the burst afterwards, even beyond the limit; then the budget stays closed until the debt
//! is paid. A frame between a function and the wire crosses the bus once and passes the packet
//! engine once. A frame between two functions does both twice, out of the host and back in. So such
//! traffic stays flat on a real card, however many VFs there are.
//!
//! Limits: one budget for a NIC. Lanes that share it need a lock around it, or one part each.

use crate::PortId;
use crate::rate::TokenBucket;

/// Capacity of a card's parts; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The uplink in each direction, in Mbit/s.
    pub wire_mbit: Option<u32>,
    /// The bus, both directions together, in Mbit/s.
    pub pcie_mbit: Option<u32>,
    /// The packet engine, in passes a second.
    pub packets_per_second: Option<u32>,
}

impl Capacity {
    /// Scales the capacity to `thousandths`, so that a small machine shows the limits of a large
    /// card.
    pub fn scaled(self, thousandths: u32) -> Self {
        let scale = |limit: u32| {
            let scaled = u64::from(limit) * u64::from(thousandths) / 1000;
            scaled.clamp(1, u64::from(u32::MAX)) as u32
        };
        Self {
            wire_mbit: self.wire_mbit.map(scale),
            pcie_mbit: self.pcie_mbit.map(scale),
            packets_per_second: self.packets_per_second.map(scale),
        }
    }
}

/// Remaining capacity of a card; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Budget {
    /// From the wire, to the wire, over the bus, through the packet engine.
    buckets: [Option<TokenBucket>; 4],
}

impl Budget {
    /// Makes a full budget.
    pub fn new(capacity: Capacity, now_ns: u64) -> Self {
        let bytes = |mbit: Option<u32>| mbit.map(|mbit| TokenBucket::of_bytes(mbit, now_ns));
        let wire = capacity.wire_mbit;
        let packets = capacity.packets_per_second;
        let packets = packets.map(|packets| TokenBucket::of_packets(packets, now_ns));
        Self { buckets: [bytes(wire), bytes(wire), bytes(capacity.pcie_mbit), packets] }
    }

    /// Checks if a burst from a port may be taken now.
    ///
    /// The destination of a burst is unknown before it is taken, so a burst from a function also
    /// waits for the wire.
    ///
    /// # Errors
    /// Time of the next try, ns.
    pub fn open(&mut self, from: PortId, now_ns: u64) -> Result<(), u64> {
        let [in_wire, out_wire, pcie, packets] = &mut self.buckets;
        let wire = if from == PortId::UPLINK { in_wire } else { out_wire };
        let mut wait_ns = 0;
        for bucket in [wire, pcie, packets].into_iter().flatten() {
            if bucket.fill(now_ns) < 1 {
                wait_ns = wait_ns.max(bucket.ready_ns(1));
            }
        }
        if wait_ns == 0 { Ok(()) } else { Err(wait_ns) }
    }

    /// Charges frames that went from one port to another.
    pub fn charge(&mut self, from: PortId, to: PortId, frames: u64, bytes: u64) {
        let [in_wire, out_wire, pcie, packets] = &mut self.buckets;
        let hops = match (from, to) {
            (PortId::UPLINK, _) | (_, PortId::UPLINK) => 1,
            _ => 2,
        };
        let charges = [
            (in_wire, if from == PortId::UPLINK { bytes } else { 0 }),
            (out_wire, if to == PortId::UPLINK { bytes } else { 0 }),
            (pcie, bytes.saturating_mul(hops)),
            (packets, frames.saturating_mul(hops)),
        ];
        for (bucket, amount) in charges {
            if let Some(bucket) = bucket {
                bucket.take(amount);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const VF0: PortId = PortId::vf(0);
    const VF1: PortId = PortId::vf(1);

    /// Mbit/s and frames a second carried in bursts of 32 within a second.
    fn carried(capacity: Capacity, from: PortId, to: PortId, frame: u64) -> (f64, f64) {
        let mut budget = Budget::new(capacity, 0);
        let (mut now, mut frames) = (0, 0);
        while now < 1000 * MS {
            match budget.open(from, now) {
                Ok(()) => {
                    budget.charge(from, to, 32, 32 * frame);
                    frames += 32;
                    now += 100;
                }
                Err(wait_ns) => {
                    assert!(wait_ns > now);
                    now = wait_ns;
                }
            }
        }
        ((frames * frame * 8) as f64 / 1e6, frames as f64)
    }

    fn near(is: f64, should: f64) {
        assert!((is / should - 1.0).abs() < 0.01, "{is} is not {should}");
    }

    #[test]
    fn a_hop_between_functions_costs_twice() {
        let pcie = Capacity { pcie_mbit: Some(9_000), ..Capacity::default() };
        near(carried(pcie, VF0, PortId::UPLINK, 1514).0, 9_000.0);
        near(carried(pcie, PortId::UPLINK, PortId::PF, 1514).0, 9_000.0);
        near(carried(pcie, VF0, VF1, 1514).0, 4_500.0);
        let packets = Capacity { packets_per_second: Some(390_000), ..Capacity::default() };
        near(carried(packets, VF0, PortId::UPLINK, 60).1, 390_000.0);
        near(carried(packets, PortId::PF, VF1, 60).1, 195_000.0);
    }

    #[test]
    fn the_wire_has_two_directions_and_limits_nobody_else() {
        let wire = Capacity { wire_mbit: Some(1000), ..Capacity::default() };
        let mut budget = Budget::new(wire, 0);
        budget.charge(VF0, PortId::UPLINK, 1000, 1_514_000);
        assert!(budget.open(VF0, MS).is_err());
        assert_eq!(budget.open(PortId::UPLINK, MS), Ok(()));
        let local = carried(wire, VF0, VF1, 1514).0;
        assert!(local > 100_000.0, "{local}");
    }

    #[test]
    fn a_scale_keeps_the_shape() {
        let card = Capacity {
            wire_mbit: Some(40_000),
            pcie_mbit: Some(90_000),
            packets_per_second: Some(39_000_000),
        };
        let small = card.scaled(100);
        assert_eq!(small.wire_mbit, Some(4_000));
        assert_eq!(small.pcie_mbit, Some(9_000));
        assert_eq!(small.packets_per_second, Some(3_900_000));
        assert_eq!(card.scaled(1000), card);
        assert_eq!(card.scaled(0).wire_mbit, Some(1));
        assert_eq!(card.scaled(u32::MAX).wire_mbit, Some(u32::MAX));
        assert_eq!(Capacity::default().scaled(7), Capacity::default());
    }
}
