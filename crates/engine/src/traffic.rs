//! Traffic of a port.

/// Frames and bytes that a guest has sent and received, in total and by the uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortTraffic {
    /// Frames sent.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Copies of them that went to the uplink.
    pub tx_uplink_frames: u64,
    /// Their bytes.
    pub tx_uplink_bytes: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames received from the uplink.
    pub rx_uplink_frames: u64,
    /// Their bytes.
    pub rx_uplink_bytes: u64,
}

impl std::iter::Sum for PortTraffic {
    fn sum<I: Iterator<Item = PortTraffic>>(all: I) -> PortTraffic {
        all.fold(PortTraffic::default(), |sum, one| PortTraffic {
            tx_frames: sum.tx_frames + one.tx_frames,
            tx_bytes: sum.tx_bytes + one.tx_bytes,
            tx_uplink_frames: sum.tx_uplink_frames + one.tx_uplink_frames,
            tx_uplink_bytes: sum.tx_uplink_bytes + one.tx_uplink_bytes,
            rx_frames: sum.rx_frames + one.rx_frames,
            rx_bytes: sum.rx_bytes + one.rx_bytes,
            rx_uplink_frames: sum.rx_uplink_frames + one.rx_uplink_frames,
            rx_uplink_bytes: sum.rx_uplink_bytes + one.rx_uplink_bytes,
        })
    }
}
