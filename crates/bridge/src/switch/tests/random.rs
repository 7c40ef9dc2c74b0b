//! Random frames: no panic, and verdicts obey the most important rules.

use proptest::prelude::*;

use super::model::any_config;
use super::*;

/// Bytes that look like headers more often than chance would have it.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => any::<u8>(),
        2 => prop::sample::select(&[0_u8, 1, 2, 6, 8, 17, 43, 44, 51, 58, 60, 0x45, 0x4f, 0x60, 0x81, 0x86, 0x88, 0xaa, 0xdd, 0xff][..]),
    ];
    prop::collection::vec(byte, 14..140)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_bytes_are_judged(
        config in any_config(), from in 0_u16..8, frames in prop::collection::vec(any_bytes(), 0..70),
        lens in prop::collection::vec(any::<u8>(), 70), now_ns: u64,
    ) {
        let table = Table::build(&config).unwrap();
        let state = State::new(Fdb::new(1, now_ns).unwrap());
        let headers: Vec<_> = frames.iter().map(|frame| FrameHeader::of_frame(frame).unwrap().0).collect();
        let snapshot = |(frame, len): (&Vec<u8>, &u8)| HeaderSnapshot { len: *len, ..HeaderSnapshot::of_frame(frame) };
        let snapshots: Vec<_> = frames.iter().zip(&lens).map(snapshot).collect();
        let (mut flows, mut out) = (Flows::new(), SwitchVerdicts::new());
        let mut counters = vec![0; table.counters_len()];
        let from = PortId(from);
        for now_ns in [now_ns, 0, u64::MAX] {
            let burst = Burst { from, headers: &headers, snapshots: Some(&snapshots), now_ns };
            table.classify(&state, &burst, &mut flows, &mut counters, &mut out);
            prop_assert_eq!(out.len(), headers.len().min(BURST));
        }
        for (header, verdict) in headers.iter().zip(out.iter()) {
            let vid = table.vid(from, header);
            let receivers: Vec<_> = match verdict.action() {
                Action::Port(port) => vec![port],
                Action::Flood(flood) => {
                    let ports = table.flood_ports(from, vid, flood).iter();
                    ports.copied().filter(|port| *port != from).collect()
                }
                Action::Drop(_) => continue,
            };
            prop_assert!(!receivers.is_empty() && !receivers.contains(&from));
            let port = |port: PortId| config.ports[port.index()].as_ref().unwrap();
            prop_assert!(port(from).vlans.contains(vid));
            for to in receivers {
                prop_assert!(port(to).vlans.contains(vid));
                prop_assert!(!(port(from).isolated && port(to).isolated));
                // A received frame is tagged or not, as the port's VLANs say.
                let tagged = match (FrameHeader(*header).is_tagged(), table.edit(from, to, header)) {
                    (tagged, VlanEdit::None) => tagged,
                    (true, VlanEdit::Pop) => false,
                    (false, VlanEdit::Push(tag)) => { prop_assert_eq!(vid_of(tag), vid); true }
                    (true, VlanEdit::Retag(tag)) => { prop_assert_eq!(vid_of(tag), vid); true }
                    edit => panic!("{edit:?} of {header:02x?}"),
                };
                let native = match &port(to).vlans {
                    Vlans::Access(vlan) => vlan.map_or(0, Vid::get),
                    Vlans::Trunk { native: Native::Vlan(native), .. } => native.get(),
                    Vlans::Trunk { .. } => 0,
                };
                prop_assert!(tagged == (vid != native) || vid == 0);
            }
        }
    }
}

/// The VLAN of a tag's four bytes.
fn vid_of([_, _, high, low]: [u8; 4]) -> u16 {
    u16::from_be_bytes([high, low]) & 0xfff
}
