//! Tests of refusals and notes. The halves are tested in `crate::tests`, the rest end to end.

use super::*;

fn interface() -> Interface {
    Interface {
        name: "eth1".into(),
        index: 7,
        up: true,
        mtu: 1500,
        mac: [2, 0, 0, 0, 0, 1],
        rx_queues: 4,
        strips_vlan: false,
        attached: None,
    }
}

fn spec(interface: &str) -> XdpSpec {
    let (netns, queue_pairs, filter) = (None, None, None);
    let zero_copy = ZeroCopy::Auto;
    XdpSpec { interface: interface.into(), netns, queue_pairs, filter, zero_copy, busy_poll_us: 0 }
}

#[test]
fn what_is_not_there_is_refused_before_anything_is_done() {
    let text = |spec: &XdpSpec| open(spec).unwrap_err().to_string();
    assert_eq!(
        text(&spec("no-such-if")),
        "no interface \"no-such-if\" in this network namespace; `ip link` lists those there are"
    );
    let many = XdpSpec { queue_pairs: Some(9), ..spec("lo") };
    assert!(text(&many).starts_with("lo has no receive queue 8, it has 1; configure fewer"));
    let none = XdpSpec { queue_pairs: Some(0), ..spec("lo") };
    assert_eq!(text(&none), "lo: queue_pairs 0 is not allowed; set 1 or more");
    let away = XdpSpec { netns: Some("/nowhere/at/all".into()), ..spec("lo") };
    assert!(text(&away).contains("/nowhere/at/all: does not exist"));
}

#[test]
fn notes_say_how_frames_come_and_what_does_not() {
    let native = notes(&interface(), 4, ProgramMode::Native, true);
    assert_eq!(native, ["eth1: 4 of 4 queues, program in the driver, zero-copy"]);
    let refusal = rustix::io::Errno::OPNOTSUPP;
    let strips = Interface { strips_vlan: true, ..interface() };
    let generic = notes(&strips, 2, ProgramMode::Generic { refusal }, false);
    assert_eq!(generic.len(), 3);
    assert!(generic[0].contains("behind the driver") && generic[0].contains("the kernel copies"));
    assert!(generic[1].contains("frames of queues 2 to 3 stay with the host"));
    assert!(generic[2].contains("rxvlan off"));
}

#[test]
fn a_filter_tells_that_it_was_changed() {
    let filter = AddressFilter::new(Vec::new());
    let before = filter.changes();
    let address = Address { mac: [2, 0, 0, 0, 0, 9], vlan: 7 };
    filter.set(vec![address]);
    assert_ne!(filter.changes(), before);
    assert_eq!(filter.addresses(), [address]);
}
