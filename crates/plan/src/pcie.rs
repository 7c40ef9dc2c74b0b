//! PCIe link: rate available to transactions, and cost of transactions.
//!
//! # Model
//! Links are dual simplex: each direction has the whole rate. The line code takes its share (8b/10b
//! up to generation 2, 128b/130b after). So do skip ordered sets, acknowledgements and flow control
//! updates, one of each as often as the specification recommends. The rest carries transaction
//! layer packets (TLPs): a memory write and a completion carry data, a read request carries none.
//! "Up" is from the device to the host.
//!
//! # Sources
//! PCI Express Base Specification 5.0: 2.6.1.2 (flow control update latency), 3.6.3.1
//! (acknowledgement latency, tables 3-7 to 3-9), 4.2.1 and 4.2.2 (line codes), 4.2.7 (skip ordered
//! sets), 2.2 (headers). The same terms are those of Neugebauer et al., "Understanding PCIe
//! performance for end host networking", SIGCOMM 2018.
//!
//! # Limits
//! No bit errors, no exhausted credits, no IOMMU, no latency.

use serde::{Deserialize, Serialize};

use crate::units::{BitRate, Bytes};

/// Framing, sequence number and LCRC of a TLP, in bytes.
const TLP_FRAMING: f64 = 8.0;
/// TLP with a 64-bit address and no data: 16 bytes of header, and framing. Same for write and read
/// requests.
const REQUEST: f64 = TLP_FRAMING + 16.0;
/// A completion's header and framing.
const COMPLETION: f64 = TLP_FRAMING + 12.0;
/// Data link layer packet with framing: an acknowledgement or a flow control update.
const DLLP: f64 = 8.0;
/// Header and framing of a TLP, as in the specification's latency formula.
const TLP_OVERHEAD: f64 = 28.0;
/// A skip ordered set of 4 symbols after each 1538 symbols, on each lane.
const SKIP_SHARE: f64 = 4.0 / 1538.0;

/// Trained and configured PCIe link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcieLink {
    /// Generation, 1 to 5.
    pub generation: u8,
    /// Lanes: 1, 2, 4, 8 or 16.
    pub lanes: u8,
    /// Maximum payload size (MPS) of a TLP, in bytes: 128 to 4096, a power of two.
    pub max_payload: u16,
    /// Maximum read request size (MRRS), in bytes: 128 to 4096, a power of two.
    pub max_read_request: u16,
}

impl PcieLink {
    /// First invalid field, with its allowed values.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let size = |size: u16| size.is_power_of_two() && (128..=4096).contains(&size);
        let checks = [
            ("generation", (1..=5).contains(&self.generation), "1 to 5"),
            ("lanes", self.lanes.is_power_of_two() && self.lanes <= 16, "1, 2, 4, 8 or 16"),
            ("max_payload", size(self.max_payload), "128 to 4096, a power of two"),
            ("max_read_request", size(self.max_read_request), "128 to 4096, a power of two"),
        ];
        checks.into_iter().find(|(_, holds, _)| !holds).map(|(field, _, allowed)| (field, allowed))
    }

    /// Raw rate of one direction, after the line code.
    pub fn raw(&self) -> BitRate {
        let lane = match self.generation {
            1 | 2 => 2.5 * f64::from(self.generation) * 8.0 / 10.0,
            later => 8.0 * f64::from(1_u32 << (later - 3)) * 128.0 / 130.0,
        };
        BitRate::gbps(lane * f64::from(self.lanes))
    }

    /// Rate available to TLPs.
    pub fn tlp(&self) -> BitRate {
        let between = self.between_acknowledgements();
        self.raw() * (1.0 - 2.0 * DLLP / between - SKIP_SHARE)
    }

    /// Symbol times between acknowledgements, and between flow control updates: both recommended
    /// limits are equal. `(MPS + overhead) * factor / lanes + internal delay`, rounded down as in
    /// the specification's tables.
    fn between_acknowledgements(&self) -> f64 {
        let factor = match (self.lanes, self.max_payload) {
            (..=4, ..=256) => 1.4,
            (8, ..=256) => 2.5,
            (16, ..=256) => 3.0,
            _ => 1.0,
        };
        let factor = if self.lanes == 16 && self.max_payload >= 512 { 2.0 } else { factor };
        let internal = match self.generation {
            1 => 19.0,
            2 => 70.0,
            _ => 115.0,
        };
        let packet = f64::from(self.max_payload) + TLP_OVERHEAD;
        (packet * factor / f64::from(self.lanes) + internal).floor()
    }

    /// Bytes of a memory write, in the writer's direction.
    pub fn write(&self, bytes: f64) -> Bytes {
        Bytes((bytes / f64::from(self.max_payload)).ceil() * REQUEST + bytes)
    }

    /// Request bytes of a memory read, in the reader's direction.
    pub fn read_requests(&self, bytes: f64) -> Bytes {
        Bytes((bytes / f64::from(self.max_read_request)).ceil() * REQUEST)
    }

    /// Data bytes of a memory read, in the other direction. Counts full payloads; a root complex
    /// may split at smaller boundaries (RCB, 64 bytes).
    pub fn completions(&self, bytes: f64) -> Bytes {
        Bytes((bytes / f64::from(self.max_payload)).ceil() * COMPLETION + bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(generation: u8, lanes: u8, max_payload: u16) -> PcieLink {
        PcieLink { generation, lanes, max_payload, max_read_request: 512 }
    }

    /// Tables 3-7 to 3-9 of the specification.
    #[test]
    fn the_recommended_latencies_are_those_of_the_tables() {
        let table = [
            (1, 1, 128, 237.0),
            (1, 2, 256, 217.0),
            (1, 4, 128, 73.0),
            (1, 8, 256, 107.0),
            (1, 8, 512, 86.0),
            (1, 16, 128, 48.0),
            (2, 4, 256, 169.0),
            (2, 8, 1024, 201.0),
            (3, 1, 4096, 4239.0),
            (3, 8, 256, 203.0),
            (3, 8, 512, 182.0),
            (3, 16, 128, 144.0),
            (3, 16, 512, 182.0),
            (3, 16, 4096, 630.0),
        ];
        for (generation, lanes, payload, limit) in table {
            let link = link(generation, lanes, payload);
            assert_eq!(link.between_acknowledgements(), limit, "{link:?}");
        }
    }

    #[test]
    fn what_is_left_for_tlps_is_what_was_published() {
        let near =
            |rate: BitRate, gbps: f64| assert!((rate.as_gbps() - gbps).abs() < 0.01, "{rate:?}");
        near(link(3, 8, 256).raw(), 63.02);
        near(link(3, 8, 256).tlp(), 57.88);
        near(link(3, 16, 256).tlp(), 113.70);
        near(link(4, 16, 256).tlp(), 227.40);
    }
}
