//! The NIC's rules, one by one; and against a slow model that cannot be wrong in the same way.

mod agreement;
mod links;
pub(crate) mod model;
mod modes;
mod queues;
mod random;
mod rules;
mod switch;
mod switchdev;
mod vlans;

use wire::{Mac, Vid};

use crate::nic::Function;

/// The `n`th MAC, counted in the last two bytes.
fn mac(n: u16) -> Mac {
    let [high, low] = n.to_be_bytes();
    Mac([2, 0, 0, 0, high, low])
}

fn function(n: u16, vlan: Option<u16>) -> Function {
    let vlan = vlan.map(|vid| Vid::new(vid).unwrap().into());
    Function { vlan, ..Function::new(mac(n)) }
}

/// A head; a tag is a TPID and a TCI.
fn head(dst: Mac, src: Mac, tag: Option<(u16, u16)>) -> [u8; 16] {
    let (kind, next) = tag.unwrap_or((0x0800, 0x4500));
    let mut head = [0; 16];
    head[..6].copy_from_slice(&dst.0);
    head[6..12].copy_from_slice(&src.0);
    head[12..14].copy_from_slice(&kind.to_be_bytes());
    head[14..].copy_from_slice(&next.to_be_bytes());
    head
}
