//! Profiles: what a real card has and what its driver refuses, with the errno it gives.
//!
//! Model: a [`Profile`] is data, one file for each in this folder; a new one is a new file and its
//! line in [`Profile::ALL`]. `ideal` refuses nothing that can be done. The others answer as Linux
//! does with the card's driver in its legacy mode, so that software which configures VFs can be
//! tested against the refusals it will meet. A driver that accepts a setting and then does not
//! carry it out is not imitated: the setting is refused, and the file says so.
//!
//! Facts are from the drivers in Linux 6 unless a comment says otherwise. What none of these
//! drivers has a way to set (a trunk, a mirror, a storm limit, a weight, further MACs) is refused
//! as not supported.

mod cx6;
mod ideal;
mod intel_82576;
mod x520;
mod xl710;

use crate::budget::Capacity;
use crate::change::Setting;
use crate::refused::{Errno, Refused};
use crate::{Function, LinkState, Mode, PortId, VlanProtocol, WEIGHT_DEFAULT};

/// What a card has, and what its driver refuses. `None` for an errno means that it accepts.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name in configurations.
    pub name: &'static str,
    /// What it stands for.
    pub title: &'static str,
    /// The most VFs.
    pub total_vfs_max: u8,
    /// The uplink's speed, in Mbit/s.
    pub speed_mbit: u32,
    /// What its parts carry, should it be imitated.
    pub capacity: Capacity,
    /// Whether its bridge floods frames from functions to unknown MACs to promiscuous functions.
    pub floods_unknown: bool,
    /// VLANs with a service tag.
    pub service_tag: Option<Errno>,
    /// Link state `enable`.
    pub link_enable: Option<Errno>,
    /// Link state `disable`; `auto` is accepted by whom any is.
    pub link_disable: Option<Errno>,
    /// Any minimum but 0.
    pub min_rate: Option<Errno>,
    /// The lowest maximum that is accepted, in Mbit/s, beside 0.
    pub max_rate_min_mbit: u32,
    /// The highest, in Mbit/s; 0 for the speed of the uplink.
    pub max_rate_max_mbit: u32,
    /// Whether rates are refused while the uplink is down.
    pub rate_needs_link: bool,
    /// Switchdev mode.
    pub switchdev: Option<Errno>,
    /// The mode VEPA.
    pub vepa: Option<Errno>,
    /// What no driver has a way to set.
    pub extensions: Option<Errno>,
    /// Lowering `num_vfs` while a VF has an owner.
    pub disable_in_use: Errno,
}

impl Profile {
    /// No card: refuses nothing.
    pub const IDEAL: &'static Self = &ideal::PROFILE;
    /// Intel 82576, as QEMU's igb.
    pub const INTEL_82576: &'static Self = &intel_82576::PROFILE;
    /// Intel X520.
    pub const X520: &'static Self = &x520::PROFILE;
    /// Intel XL710.
    pub const XL710: &'static Self = &xl710::PROFILE;
    /// NVIDIA ConnectX-6.
    pub const CX6: &'static Self = &cx6::PROFILE;
    /// All profiles, `ideal` first.
    pub const ALL: [&'static Self; 5] =
        [Self::IDEAL, Self::INTEL_82576, Self::X520, Self::XL710, Self::CX6];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// Whether the driver would accept all settings of a function. Rates that
    /// are 0 are not set, so that a link that is down does not matter to them.
    ///
    /// A mistake that any card would refuse (a group as MAC, a weight of 0) shows when a
    /// [`Table`](crate::Table) is built.
    ///
    /// # Errors
    /// The first setting that it would refuse, with the function and the field.
    pub fn check(&self, port: PortId, function: &Function, uplink_up: bool) -> Result<(), Refused> {
        let share = function.share;
        let (min, max) = (share.min_mbit, share.max_mbit);
        let rate = Setting::TxRate { min: Some(min), max: Some(max) };
        let settings = [
            Setting::Mac(function.mac),
            Setting::ExtraMacs(function.extra_macs.clone()),
            Setting::Vlan(function.vlan),
            Setting::Trunk(function.trunk.clone()),
            Setting::SpoofCheck(function.spoof_check),
            Setting::Trust(function.trust),
            Setting::Link(function.link),
            Setting::Weight(share.weight),
            Setting::StormLimit(function.storm_limit),
            Setting::Mirror(function.mirror),
        ];
        let rate = (min > 0 || max > 0).then_some(rate);
        settings.iter().chain(&rate).try_for_each(|setting| self.accepts(port, setting, uplink_up))
    }

    /// Whether the driver would accept a setting of a function's.
    pub(crate) fn accepts(
        &self,
        port: PortId,
        setting: &Setting,
        uplink_up: bool,
    ) -> Result<(), Refused> {
        let refuse = |errno: Option<Errno>, field: &str, value: &str, allowed: &str| match errno {
            None => Ok(()),
            Some(errno) => {
                let allowed = format!("{allowed} with the profile {}", self.name);
                Err(Refused::new(errno, format_args!("{port}: {field}"), value, allowed))
            }
        };
        match setting {
            Setting::Vlan(Some(vlan)) if vlan.protocol == VlanProtocol::Ieee8021Ad => {
                refuse(self.service_tag, "vlan_protocol", "802.1ad", "802.1Q")
            }
            Setting::Link(LinkState::Enable) => {
                refuse(self.link_enable, "link_state", "enable", self.link_states())
            }
            Setting::Link(LinkState::Disable) => {
                refuse(self.link_disable, "link_state", "disable", self.link_states())
            }
            Setting::TxRate { min, max } => self.accepts_rates(port, *min, *max, uplink_up),
            Setting::Trunk(vlans) if !vlans.is_empty() => {
                let value = format!("{} VLANs", vlans.len());
                refuse(self.extensions, "trunk", &value, "an empty one")
            }
            Setting::ExtraMacs(macs) if !macs.is_empty() => {
                let value = format!("{} addresses", macs.len());
                refuse(self.extensions, "extra_macs", &value, "none")
            }
            Setting::Mirror(Some(_)) => refuse(self.extensions, "mirror", "a mirror", "none"),
            Setting::Weight(weight) if *weight != WEIGHT_DEFAULT => {
                let allowed = WEIGHT_DEFAULT.to_string();
                refuse(self.extensions, "weight", &weight.to_string(), &allowed)
            }
            Setting::StormLimit(limit) if *limit > 0 => {
                refuse(self.extensions, "storm_limit", &limit.to_string(), "0")
            }
            _ => Ok(()),
        }
    }

    fn link_states(&self) -> &'static str {
        match (self.link_enable, self.link_disable) {
            (Some(_), None) => "auto or disable",
            _ => "auto",
        }
    }

    fn accepts_rates(
        &self,
        port: PortId,
        min: Option<u32>,
        max: Option<u32>,
        uplink_up: bool,
    ) -> Result<(), Refused> {
        let refuse = |errno, field: &str, value: String, allowed: String| {
            Err(Refused::new(errno, format_args!("{port}: {field}"), value, allowed))
        };
        if self.rate_needs_link && !uplink_up {
            let allowed = "a change while the uplink is up".to_string();
            return refuse(Errno::Einval, "tx_rate", "one without a link".into(), allowed);
        }
        if let (Some(errno), Some(min @ 1..)) = (self.min_rate, min) {
            let allowed = format!("0 with the profile {}", self.name);
            return refuse(errno, "min_tx_rate", format!("{min} Mbit/s"), allowed);
        }
        let highest = match self.max_rate_max_mbit {
            0 => self.speed_mbit,
            highest => highest,
        };
        let range = self.max_rate_min_mbit.max(1)..=highest;
        for (field, rate) in [("min_tx_rate", min), ("max_tx_rate", max)] {
            let lowest = if field == "min_tx_rate" { 1 } else { *range.start() };
            if let Some(rate @ 1..) = rate
                && !(lowest..=highest).contains(&rate)
            {
                let allowed = format!("0 and {lowest} to {highest} Mbit/s");
                return refuse(Errno::Einval, field, format!("{rate} Mbit/s"), allowed);
            }
        }
        Ok(())
    }

    /// Whether the driver has switchdev mode.
    ///
    /// # Errors
    /// That it has not.
    pub fn check_switchdev(&self) -> Result<(), Refused> {
        let allowed = format!("legacy with the profile {}", self.name);
        self.switchdev
            .map_or(Ok(()), |errno| Err(Refused::new(errno, "mode", "switchdev", allowed)))
    }

    /// Whether the driver would accept a mode of the bridge.
    ///
    /// # Errors
    /// That it would not.
    pub fn check_mode(&self, mode: Mode) -> Result<(), Refused> {
        let errno = match mode {
            Mode::Veb => None,
            Mode::Vepa => self.vepa,
            Mode::Isolated => self.extensions,
        };
        let modes = if self.vepa.is_none() { "veb or vepa" } else { "veb" };
        let allowed = format!("{modes} with the profile {}", self.name);
        errno.map_or(Ok(()), |errno| Err(Refused::new(errno, "mode", mode.name(), allowed)))
    }
}

#[cfg(test)]
mod tests;
