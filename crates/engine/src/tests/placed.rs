//! Frames that a device places in a guest's buffers, and ports that send for another port.

use std::os::fd::BorrowedFd;

use bridge::PortId;
use bridge::nic::{NicConfig, Table};
use port::{Burst, BurstBuffers, FrameRules, Notification, Placed, Polled, Readiness, Transmit};
use virtq::Fault;

use super::kit::{Bench, Guest, OUTSIDE, frame, mac, plain};

/// A device that has placed so many bursts of so many frames, and then breaks.
struct Device {
    bursts: u32,
    burst: Placed,
}

impl Transmit for Device {
    fn poll(&mut self, _: &mut BurstBuffers) -> Polled {
        if self.bursts == 0 {
            let (placed, fault) = (Some(Placed::default()), Some(Fault::BadIndex));
            return Polled { placed, fault, ..Polled::default() };
        }
        self.bursts -= 1;
        let backlog = self.bursts > 0;
        Polled { placed: Some(self.burst), backlog, ..Polled::default() }
    }

    fn burst<'a>(&'a self, _: &'a BurstBuffers) -> Burst<'a> {
        Burst::plain(&[], &[])
    }

    fn complete(&mut self) -> Notification {
        Notification::Unneeded
    }

    fn enable_notification(&mut self) -> Readiness {
        if self.bursts > 0 { Readiness::Ready } else { Readiness::Empty }
    }

    fn kick(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frame_rules(&self) -> FrameRules {
        FrameRules::LARGEST
    }
}

#[test]
fn placed_frames_count_as_received_from_the_uplink_and_as_work() {
    let mut bench = Bench::new(vec![plain(0)], 1);
    let nic = bench.fabric.nics()[0].clone();
    let port = bench.fabric.add_port(&nic, "n/placed", 1).unwrap();
    let burst = Placed { frames: 40, bytes: 4000, notified: true };
    port.attach_transmit(0, Box::new(Device { bursts: 25, burst }));
    bench.expect("n/placed", "rx_frames", 1000);
    for (name, value) in [
        ("rx_bytes", 100_000),
        ("rx_uplink_frames", 1000),
        ("rx_uplink_bytes", 100_000),
        ("rx_notifies", 25),
        ("rx_fault_bad_index", 1),
        ("tx_fault_bad_index", 0),
        ("tx_frames", 0),
        ("tx_drop_unplugged", 0),
    ] {
        bench.expect("n/placed", name, value);
    }
    assert_eq!((bench.lanes("frames"), bench.lanes("bursts")), (1000, 25));
    let both = [port.traffic(), bench.vf(0).traffic()].into_iter().sum::<crate::PortTraffic>();
    assert_eq!((both.rx_frames, both.rx_uplink_bytes), (1000, 100_000));
}

#[test]
fn a_port_sends_in_the_name_of_the_uplink_and_receives_nothing() {
    let mut bench = Bench::new(vec![plain(0)], 1);
    let nic = bench.fabric.nics()[0].clone();
    let more = bench.fabric.add_port(&nic, "n/more", 1).unwrap();
    let [mut vf, mut uplink] = bench.guests([PortId::vf(0), PortId::UPLINK]);
    let mut sender = Guest::new();
    sender.attach(&more);
    let config = NicConfig { vfs: vec![Some(plain(0))], ..NicConfig::default() };
    bench.set_senders(Table::build(&config).unwrap(), vec![(PortId::UPLINK, more)]);
    let down = frame(mac(0), OUTSIDE, 1, 60);
    sender.send(&down);
    assert_eq!(vf.wait_for(1), [down]);
    bench.expect("n/vf0", "rx_uplink_frames", 1);
    let up = frame(OUTSIDE, mac(0), 2, 60);
    vf.send(&up);
    assert_eq!(uplink.wait_for(1), [up]);
    assert_eq!(sender.receive(), Vec::<Vec<u8>>::new());
}
