//! The NIC's rules, one by one; and against a slow model that cannot be wrong in the same way.

mod agreement;
mod links;
mod modes;
mod queues;
mod random;
mod rules;
mod switch;
mod switchdev;
mod vlans;

pub(crate) use super::model;
use super::model::header;
use wire::vlan::TPID_8021Q;
use wire::{Mac, Vid};

use crate::nic::{Flows, Function, NicConfig, Table};
use crate::{Action, PortId, Verdicts};

/// The `n`th MAC, counted in the last two bytes.
fn mac(n: u16) -> Mac {
    let [high, low] = n.to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

fn function(n: u16, vlan: Option<u16>) -> Function {
    let vlan = vlan.map(|vid| Vid::new(vid).unwrap().into());
    Function { vlan, ..Function::new(mac(n)) }
}

const fn vf(n: u8) -> PortId {
    PortId::vf(n)
}

/// The 802.1Q tag of a VLAN; none for 0, the untagged network.
fn tag(vid: u16) -> Option<(u16, u16)> {
    (vid != 0).then_some((TPID_8021Q, vid))
}

/// Action for a frame, which must be the same alone and in a burst of others.
fn classify(config: &NicConfig, from: PortId, src: u16, dst: Mac, vid: u16) -> Action {
    let table = Table::build(config).unwrap();
    let mut out = Verdicts::new();
    let frame = header(dst, mac(src), tag(vid));
    let other = header(mac(700), mac(src), None);
    table.classify(from, &[other, frame, other], &mut Flows::new(), &mut out);
    let mixed = out[1];
    table.classify(from, &[frame], &mut Flows::new(), &mut out);
    assert_eq!(out[0], mixed, "alone and among others");
    out[0].action()
}

fn receivers(config: &NicConfig, from: PortId, src: u16, dst: Mac, vid: u16) -> Vec<PortId> {
    let table = Table::build(config).unwrap();
    table.receivers(from, &header(dst, mac(src), tag(vid))).collect()
}
