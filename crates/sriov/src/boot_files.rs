//! Files by which a machine has its VFs at boot, before anything needs them.
//!
//! systemd-udevd makes and sets VFs when the interface of the PF appears (systemd.link(5), since
//! systemd 251); rates, which it does not know, are set by a rule of udev(7) with `ip link`.

use std::fmt::Write;

use model::state::{LinkState, Nic, NicMode, Vf};

use crate::address::PciAddress;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFile {
    /// Path below `/etc`.
    pub path: String,
    /// Contents.
    pub text: String,
}

/// Files for a NIC of kind `pci` at this address; only the first one if its VFs have no rates.
pub fn boot_files(nic: &Nic, address: PciAddress) -> Vec<BootFile> {
    let enabled = || nic.vfs.iter().filter(|vf| vf.index < nic.num_vfs);
    let mut link = format!(
        "# VFs of NIC {}, from `shunt nic boot-files`.\n\
         [Match]\nPath=pci-{address}\n\n\
         # The default file no longer applies; this keeps its names.\n\
         [Link]\nNamePolicy=keep kernel database onboard slot path\n\
         AlternativeNamesPolicy=database onboard slot path\n\
         SR-IOVVirtualFunctions={}\n",
        nic.name, nic.num_vfs
    );
    enabled().for_each(|vf| link += &section(vf));
    let path = format!("systemd/network/10-shunt-{}.link", nic.name);
    let mut files = vec![BootFile { path, text: link }];
    let mut commands = String::new();
    if nic.mode == NicMode::Switchdev {
        let command = format!("/sbin/devlink dev eswitch set pci/{address} mode switchdev");
        writeln!(commands, "{}", rule(address, &command)).expect("a string");
    }
    for vf in enabled() {
        let (min, max) = (vf.settings.min_tx_mbps, vf.settings.max_tx_mbps);
        let rates = [("min_tx_rate", min), ("max_tx_rate", max)];
        let set = rates.iter().filter(|(_, rate)| *rate > 0);
        let set: String = set.map(|(name, rate)| format!(" {name} {rate}")).collect();
        if !set.is_empty() {
            let command = format!("/sbin/ip link set dev $name vf {}{set}", vf.index);
            writeln!(commands, "{}", rule(address, &command)).expect("a string");
        }
    }
    if !commands.is_empty() {
        let path = format!("udev/rules.d/81-shunt-{}.rules", nic.name);
        let text = format!(
            "# Settings of NIC {} that systemd.link does not know, from `shunt nic boot-files`.\n\
             {commands}",
            nic.name
        );
        files.push(BootFile { path, text });
    }
    files
}

/// Rule that runs a command once the interface of the PF and its VFs are there.
fn rule(address: PciAddress, command: &str) -> String {
    // Interfaces of VFs have other addresses.
    format!("ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"{address}\", RUN+=\"{command}\"")
}

/// Settings of a VF, all of them: what is left out would be the driver's default.
fn section(vf: &Vf) -> String {
    let settings = &vf.settings;
    let word = |on: bool| if on { "yes" } else { "no" };
    let mut text = format!("\n[SR-IOV]\nVirtualFunction={}\n", vf.index);
    let mut line = |name: &str, value: &str| text += &format!("{name}={value}\n");
    if let Some(mac) = vf.mac {
        line("MACAddress", &mac.to_string());
    }
    if let Some(vlan) = settings.vlan {
        line("VLANId", &vlan.id.to_string());
        if vlan.qos > 0 {
            line("QualityOfService", &vlan.qos.to_string());
        }
        line("VLANProtocol", &vlan.proto.to_string().replace("802.1q", "802.1Q"));
    }
    line("MACSpoofCheck", word(settings.spoof_check));
    line("Trust", word(settings.trust));
    // Drivers such as igb reject any link state, so the default is not written.
    match settings.link_state {
        LinkState::Auto => {}
        LinkState::Enable => line("LinkState", "yes"),
        LinkState::Disable => line("LinkState", "no"),
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(nic: serde_json::Value) -> Vec<BootFile> {
        let document = json!({"version": 1, "nic": [nic]});
        let nic = &model::state::State::parse(&document).unwrap().nics[0];
        boot_files(nic, "0000:01:00.0".parse().unwrap())
    }

    #[test]
    fn every_setting_is_in_a_file() {
        let vf = json!({
            "index": 1, "mac": "02:00:00:00:00:01", "vlan": {"id": 7, "qos": 3, "proto": "802.1ad"},
            "spoof_check": false, "trust": true, "link_state": "disable", "max_tx_mbps": 100,
        });
        let disabled = json!({"index": 5, "max_tx_mbps": 5});
        let nic = json!({
            "name": "card0", "kind": "pci", "device": "eth0", "num_vfs": 4, "total_vfs": 6,
            "mode": "switchdev", "vf": [vf, {"index": 0}, disabled],
        });
        let [link, rules] = files(nic).try_into().unwrap();
        assert_eq!(link.path, "systemd/network/10-shunt-card0.link");
        let settings = "\n[SR-IOV]\nVirtualFunction=1\nMACAddress=02:00:00:00:00:01\nVLANId=7\n\
            QualityOfService=3\nVLANProtocol=802.1ad\nMACSpoofCheck=no\nTrust=yes\nLinkState=no\n\
            \n[SR-IOV]\nVirtualFunction=0\nMACSpoofCheck=yes\nTrust=no\n";
        assert!(link.text.ends_with(settings), "{}", link.text);
        assert!(link.text.contains("Path=pci-0000:01:00.0\n"), "{}", link.text);
        assert!(link.text.contains("SR-IOVVirtualFunctions=4\n"), "{}", link.text);
        assert_eq!(rules.path, "udev/rules.d/81-shunt-card0.rules");
        let of = "ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"0000:01:00.0\", RUN+=";
        let lines: Vec<&str> = rules.text.lines().skip(1).collect();
        let switchdev = "\"/sbin/devlink dev eswitch set pci/0000:01:00.0 mode switchdev\"";
        let rate = "\"/sbin/ip link set dev $name vf 1 max_tx_rate 100\"";
        assert_eq!(lines, [format!("{of}{switchdev}"), format!("{of}{rate}")]);
    }

    #[test]
    fn without_rates_there_is_one_file() {
        let nic = json!({"name": "card0", "kind": "pci", "device": "eth0", "num_vfs": 2});
        let [link] = files(nic).try_into().unwrap();
        assert!(link.text.ends_with("SR-IOVVirtualFunctions=2\n"), "{}", link.text);
    }
}
