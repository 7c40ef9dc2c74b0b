//! Datagrams from peers of VXLAN tunnels and from strangers, against a plain parser.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use port::vxlan::{VxlanSpec, open, resume};
use port::{OpenedDevice, PortHandover};

use crate::Reached;
use crate::input::Input;
use crate::kernel_port::poll;

const OURS: Ipv4Addr = Ipv4Addr::new(127, 83, 90, 1);
/// The peer, and a host that is none.
const OTHERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 83, 90, 2), Ipv4Addr::new(127, 83, 90, 3)];
const VNIS: [u32; 2] = [77, 0x00ab_cdef];
const MTU: u16 = 1500;

fn free_port() -> u16 {
    let socket = UdpSocket::bind((OURS, 0)).expect("a free port");
    socket.local_addr().expect("a bound socket").port()
}

fn spec(vni: u32, port: u16) -> VxlanSpec {
    let (local, peers) = (Some(IpAddr::V4(OURS)), vec![IpAddr::V4(OTHERS[0])]);
    VxlanSpec { vni, local, port, peers, mtu: Some(MTU) }
}

/// The network of a datagram, and its frame.
fn parsed(datagram: &[u8]) -> Option<(u32, &[u8])> {
    let ([flags, _, _, _, a, b, c, _], frame) = datagram.split_first_chunk()?;
    (flags & 8 != 0).then(|| (u32::from_be_bytes([0, *a, *b, *c]), frame))
}

/// `data` is datagrams, each with its sender and length; the lanes of both tunnels poll in between.
pub(crate) fn vxlan(data: &[u8]) -> Reached {
    let mut input = Input::new(data);
    let mut reached = Reached::default();
    let state_bytes = usize::from(input.byte());
    let state = input.bytes(state_bytes).to_vec();
    let port = free_port();
    let senders = OTHERS.map(|other| UdpSocket::bind((other, 0)).expect("a loopback address"));
    let Ok(first) = open(&spec(VNIS[0], port)) else {
        return reached; // another process took the port
    };
    let second = open(&spec(VNIS[1], port)).expect("a network on a shared socket");
    let mut tunnels = [first, second];
    let mut expected: [Vec<Vec<u8>>; 2] = Default::default();
    while !input.is_empty() {
        let act = input.byte();
        if act & 3 == 3 {
            drain(&mut tunnels, &mut expected, &mut reached);
            continue;
        }
        let is_stranger = act & 12 == 12;
        let len = usize::from(input.byte()) * if act & 16 == 0 { 1 } else { 8 };
        let mut datagram = match act & 3 {
            0 => vec![8, 0, 0, 0, 0, 0, VNIS[0] as u8, 0],
            1 => vec![8, 0, 0, 0, 0xab, 0xcd, 0xef, 0],
            _ => Vec::new(),
        };
        datagram.extend_from_slice(input.bytes(len));
        senders[usize::from(is_stranger)].send_to(&datagram, (OURS, port)).expect("a send");
        if let Some((vni, frame)) = parsed(&datagram).filter(|_| !is_stranger)
            && let Some(tunnel) = VNIS.iter().position(|known| *known == vni)
        {
            expected[tunnel].push(frame.to_vec());
        }
        // As many as a burst, so that no queue is ever full.
        if expected.iter().map(Vec::len).sum::<usize>() >= port::BURST {
            drain(&mut tunnels, &mut expected, &mut reached);
        }
    }
    drain(&mut tunnels, &mut expected, &mut reached);
    hand_over(tunnels, state, port, &mut reached);
    reached
}

/// Polls both tunnels until nothing is left.
fn drain(tunnels: &mut [OpenedDevice; 2], expected: &mut [Vec<Vec<u8>>; 2], reached: &mut Reached) {
    let mut found: [Vec<Vec<u8>>; 2] = Default::default();
    // A tunnel receives frames of the other too.
    for _ in 0..4 {
        for (tunnel, found) in tunnels.iter_mut().zip(&mut found) {
            let (frames, _) = poll(tunnel);
            for (frame, malformed) in frames {
                let is_fine = (14..=usize::from(MTU) - 36).contains(&frame.len());
                assert!(is_fine || malformed);
                reached.add("frames", 1);
                reached.add("malformed", u64::from(malformed));
                found.push(frame);
            }
        }
    }
    assert_eq!(&found, expected);
    *expected = Default::default();
}

/// The next process takes over the first tunnel; then another is given the input's state, if any.
fn hand_over(tunnels: [OpenedDevice; 2], state: Vec<u8>, port: u16, reached: &mut Reached) {
    if state.is_empty() {
        return;
    }
    let [mut first, second] = tunnels;
    drop(second);
    let housekeeping = first.housekeeping.as_mut().expect("a tunnel has work for control");
    let handover = housekeeping.handover(&[]).expect("a tunnel is handed over");
    drop(first);
    let given = PortHandover { state, ..handover.clone() };
    drop(resume(&spec(VNIS[0], port), handover).expect("its own state"));
    reached.add("states taken over", u64::from(resume(&spec(VNIS[0], port), given).is_ok()));
}
