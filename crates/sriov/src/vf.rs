//! VFs as their PF's driver reports them, and their settings: `ip link show PF`, and
//! `ip link set PF vf N`.
//!
//! # Model
//! A [`VfSetting`] is what one request changes. A [`VfState`] has the settings that the driver
//! reports; those that it does not report are left out. A driver may accept a setting and not do
//! it, so each is to be read back.
//!
//! Follows `include/uapi/linux/if_link.h` (`IFLA_VFINFO_LIST`) and `rtnl_fill_vfinfo` in
//! `net/core/rtnetlink.c` of Linux.

use host::links::{INTERFACE_HEADER, RTM_GETLINK, RTM_SETLINK};
use host::netlink::{KernelError, Netlink, NetlinkMessage, attribute, attributes, u16_at, u32_at};
use model::state::{LinkState, MacText, VfCounters, Vlan, VlanProto};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use wire::Mac;

use crate::PciAddress;
use crate::driver::Binding;

const IFLA_VFINFO_LIST: u16 = 22;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_VF: u32 = 1;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_SPOOFCHK: u16 = 4;
const IFLA_VF_LINK_STATE: u16 = 5;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_RSS_QUERY_EN: u16 = 7;
const IFLA_VF_STATS: u16 = 8;
const IFLA_VF_TRUST: u16 = 9;
const IFLA_VF_VLAN_LIST: u16 = 12;
const IFLA_VF_VLAN_INFO: u16 = 1;
/// Bytes for an address in `struct ifla_vf_mac`.
const ADDRESS_SIZE: usize = 32;
/// Link states by their number, `IFLA_VF_LINK_STATE_*`.
const LINK_STATES: [LinkState; 3] = [LinkState::Auto, LinkState::Enable, LinkState::Disable];
/// EtherTypes of VLAN tags.
const PROTOS: [(VlanProto, u16); 2] = [(VlanProto::Dot1q, 0x8100), (VlanProto::Dot1ad, 0x88a8)];

/// A setting of a VF. The order is that in which settings are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VfSetting {
    /// Access VLAN.
    Vlan(Option<Vlan>),
    /// Administrative MAC address; without one the VF's driver chooses the address.
    Mac(Option<MacText>),
    /// Rates in Mbit/s.
    Rate {
        /// Guaranteed rate; 0: none.
        min_mbps: u32,
        /// Maximum rate; 0: no limit.
        max_mbps: u32,
    },
    /// `true` if source addresses are checked.
    SpoofCheck(bool),
    /// `true` if the VF is trusted.
    Trust(bool),
    /// Link state.
    LinkState(LinkState),
    /// `true` if the VF may read the PF's RSS configuration.
    QueryRss(bool),
    /// Driver of the VF's function.
    Driver(Binding),
}

impl VfSetting {
    /// `true` if the other is a value of the same setting.
    pub fn is_same_setting(&self, other: &VfSetting) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// VLAN ID, if this is one.
    pub fn vlan_id(&self) -> Option<u16> {
        match self {
            VfSetting::Vlan(vlan) => vlan.map(|vlan| vlan.id),
            _ => None,
        }
    }

    /// `true` for the value of a driver that does not report the setting.
    pub(crate) fn is_default(&self) -> bool {
        match self {
            VfSetting::Vlan(vlan) => vlan.is_none(),
            VfSetting::Mac(mac) => mac.is_none(),
            VfSetting::Rate { min_mbps, max_mbps } => (*min_mbps, *max_mbps) == (0, 0),
            VfSetting::SpoofCheck(is_on) => *is_on,
            VfSetting::Trust(is_on) | VfSetting::QueryRss(is_on) => !is_on,
            VfSetting::LinkState(state) => *state == LinkState::Auto,
            VfSetting::Driver(_) => false,
        }
    }

    /// Its fields as a document names them, with their values.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let on = |on: &bool| if *on { "on" } else { "off" }.to_owned();
        match self {
            VfSetting::Vlan(vlan) => vec![("vlan", shown_vlan(*vlan))],
            VfSetting::Mac(mac) => {
                vec![("mac", mac.map_or_else(|| "none".to_owned(), |mac| mac.to_string()))]
            }
            VfSetting::Rate { min_mbps, max_mbps } => {
                vec![("min_tx_mbps", min_mbps.to_string()), ("max_tx_mbps", max_mbps.to_string())]
            }
            VfSetting::SpoofCheck(it) => vec![("spoof_check", on(it))],
            VfSetting::Trust(it) => vec![("trust", on(it))],
            VfSetting::LinkState(state) => {
                let states = [LinkState::Auto, LinkState::Enable, LinkState::Disable];
                let names = ["auto", "enable", "disable"];
                let named = states.iter().zip(names).find(|(of, _)| *of == state);
                vec![("link_state", named.map_or("", |(_, name)| name).to_owned())]
            }
            VfSetting::QueryRss(it) => vec![("query_rss", on(it))],
            VfSetting::Driver(binding) => vec![("driver", binding.to_string())],
        }
    }
}

fn shown_vlan(vlan: Option<Vlan>) -> String {
    let Some(Vlan { id, qos, proto }) = vlan else { return "none".to_owned() };
    let qos = if qos > 0 { format!(" qos {qos}") } else { String::new() };
    let proto = if proto == VlanProto::Dot1q { String::new() } else { format!(" proto {proto}") };
    format!("{id}{qos}{proto}")
}

/// A VF as its PF's driver reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VfState {
    /// Its index.
    pub index: u16,
    /// Address of its PCI function; `None` where that was not looked for.
    pub address: Option<PciAddress>,
    /// Its settings; without those that the driver does not report.
    pub settings: Vec<VfSetting>,
    /// Its counters, if they were asked for, and if the driver has counted anything.
    pub counters: Option<VfCounters>,
}

impl VfState {
    /// The reported value of the setting of which `like` is a value.
    pub fn get(&self, like: &VfSetting) -> Option<&VfSetting> {
        self.settings.iter().find(|setting| setting.is_same_setting(like))
    }
}

/// Reads the VFs of a PF by the index of its interface.
///
/// # Errors
/// The kernel's: there is no such interface.
pub fn read_vfs(
    netlink: &Netlink,
    interface: u32,
    counters: bool,
) -> Result<Vec<VfState>, KernelError> {
    let filter = if counters { RTEXT_FILTER_VF } else { RTEXT_FILTER_VF | RTEXT_FILTER_SKIP_STATS };
    let request = NetlinkMessage::new(RTM_GETLINK, &ifinfo(interface));
    let answer = netlink.exchange(request.with(IFLA_EXT_MASK, &filter.to_ne_bytes()))?;
    vfs(answer.get(INTERFACE_HEADER..).unwrap_or_default()).ok_or(Errno::BADMSG.into())
}

/// The VFs among the attributes of an interface.
pub(crate) fn vfs(link: &[u8]) -> Option<Vec<VfState>> {
    let list = attribute(link, IFLA_VFINFO_LIST).unwrap_or_default();
    let infos = attributes(list).filter(|(kind, _)| *kind == IFLA_VF_INFO);
    infos.map(|(_, info)| vf(info)).collect()
}

/// One VF. Each attribute starts with the VF's index.
fn vf(info: &[u8]) -> Option<VfState> {
    let index = u32_at(attribute(info, IFLA_VF_MAC)?, 0)?;
    let number = |kind| u32_at(attribute(info, kind)?, 4);
    // The kernel writes -1 for what the driver does not report.
    let flag = |kind| number(kind).filter(|number| *number != u32::MAX).map(|number| number != 0);
    let address = || {
        let mac = Mac(*attribute(info, IFLA_VF_MAC)?.get(4..)?.first_chunk()?);
        Some((!mac.is_zero()).then_some(MacText(mac)))
    };
    let rate = || {
        let rate = attribute(info, IFLA_VF_RATE)?;
        Some(VfSetting::Rate { min_mbps: u32_at(rate, 4)?, max_mbps: u32_at(rate, 8)? })
    };
    let link_state = || LINK_STATES.get(number(IFLA_VF_LINK_STATE)? as usize).copied();
    let settings = [
        vlan(info).map(VfSetting::Vlan),
        address().map(VfSetting::Mac),
        rate(),
        flag(IFLA_VF_SPOOFCHK).map(VfSetting::SpoofCheck),
        flag(IFLA_VF_TRUST).map(VfSetting::Trust),
        link_state().map(VfSetting::LinkState),
        flag(IFLA_VF_RSS_QUERY_EN).map(VfSetting::QueryRss),
    ];
    Some(VfState {
        index: u16::try_from(index).ok()?,
        address: None,
        settings: settings.into_iter().flatten().collect(),
        counters: attribute(info, IFLA_VF_STATS).and_then(counters),
    })
}

/// The VLAN of `struct ifla_vf_vlan_info`: index, VLAN, priority, EtherType.
fn vlan(info: &[u8]) -> Option<Option<Vlan>> {
    let vlan = attribute(attribute(info, IFLA_VF_VLAN_LIST)?, IFLA_VF_VLAN_INFO)?;
    let (id, qos) = (u32_at(vlan, 4)? as u16, u32_at(vlan, 8)? as u8);
    let ether_type = u16::from_be(u16_at(vlan, 12)?);
    let proto = PROTOS.iter().find(|(_, of)| *of == ether_type).map(|(proto, _)| *proto);
    Some((id != 0).then_some(Vlan { id, qos, proto: proto.unwrap_or_default() }))
}

/// Counters, unless all are 0: so the kernel shows a driver that does not count.
fn counters(stats: &[u8]) -> Option<VfCounters> {
    let counter = |kind| {
        let value = attribute(stats, kind).and_then(|value| value.first_chunk());
        value.map_or(0, |value| u64::from_ne_bytes(*value))
    };
    let counters = VfCounters {
        rx_packets: counter(0),
        tx_packets: counter(1),
        rx_bytes: counter(2),
        tx_bytes: counter(3),
        broadcast: counter(4),
        multicast: counter(5),
        rx_dropped: counter(7),
        tx_dropped: counter(8),
    };
    (counters != VfCounters::default()).then_some(counters)
}

/// Changes a setting of a VF of a PF, by the index of the PF's interface.
///
/// # Errors
/// The driver's; `EINVAL` for the driver of the VF's function, which is not set by netlink.
pub(crate) fn set_vf(
    netlink: &Netlink,
    interface: u32,
    vf: u16,
    setting: &VfSetting,
) -> Result<(), KernelError> {
    let request = NetlinkMessage::new(RTM_SETLINK, &ifinfo(interface)).acknowledged();
    let info = change(vf, setting).ok_or(Errno::INVAL)?;
    let list = NetlinkMessage::nest().with_nest(IFLA_VF_INFO, &info);
    netlink.exchange(request.with_nest(IFLA_VFINFO_LIST, &list))?;
    Ok(())
}

/// Attributes of a VF that make a setting.
pub(crate) fn change(vf: u16, setting: &VfSetting) -> Option<NetlinkMessage> {
    let numbers = |numbers: &[u32]| -> Vec<u8> {
        let all = std::iter::once(u32::from(vf)).chain(numbers.iter().copied());
        all.flat_map(u32::to_ne_bytes).collect()
    };
    let nest = NetlinkMessage::nest();
    Some(match setting {
        VfSetting::Vlan(vlan) => {
            let Vlan { id, qos, proto } =
                vlan.unwrap_or(Vlan { id: 0, qos: 0, proto: VlanProto::Dot1q });
            let (_, ether_type) = PROTOS.iter().find(|(of, _)| *of == proto)?;
            let mut value = numbers(&[u32::from(id), u32::from(qos)]);
            value.extend([ether_type.to_be_bytes(), [0; 2]].concat());
            let list = NetlinkMessage::nest().with(IFLA_VF_VLAN_INFO, &value);
            nest.with_nest(IFLA_VF_VLAN_LIST, &list)
        }
        VfSetting::Mac(mac) => {
            let mut value = numbers(&[]);
            value.extend(mac.map_or(Mac::ZERO, |mac| mac.0).0);
            value.resize(4 + ADDRESS_SIZE, 0);
            nest.with(IFLA_VF_MAC, &value)
        }
        VfSetting::Rate { min_mbps, max_mbps } => {
            nest.with(IFLA_VF_RATE, &numbers(&[*min_mbps, *max_mbps]))
        }
        VfSetting::SpoofCheck(on) => nest.with(IFLA_VF_SPOOFCHK, &numbers(&[u32::from(*on)])),
        VfSetting::Trust(on) => nest.with(IFLA_VF_TRUST, &numbers(&[u32::from(*on)])),
        VfSetting::LinkState(state) => {
            let number = LINK_STATES.iter().position(|of| of == state)?;
            nest.with(IFLA_VF_LINK_STATE, &numbers(&[number as u32]))
        }
        VfSetting::QueryRss(on) => nest.with(IFLA_VF_RSS_QUERY_EN, &numbers(&[u32::from(*on)])),
        VfSetting::Driver(_) => return None,
    })
}

/// `struct ifinfomsg`: family, type, index, flags, and the mask of flags to change.
fn ifinfo(interface: u32) -> Vec<u8> {
    [0, interface, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests;
