//! Files by which a machine has its VFs at boot, before anything needs them.
//!
//! systemd-udevd makes and sets VFs when the interface of the PF appears (systemd.link(5), since
//! systemd 251). For switchdev mode, which comes first, there is a rule of udev(7) instead. Neither
//! has rates: drivers reject them until the interface is up.

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

/// Files for a NIC of kind `pci` at this address. In switchdev mode the VFs have no settings: an
/// eswitch changes its mode before it has VFs, and systemd-udevd would make them first.
pub fn boot_files(nic: &Nic, address: PciAddress) -> Vec<BootFile> {
    let origin = format!("of NIC {}, from `shunt nic boot-files`", nic.name);
    if nic.mode == NicMode::Switchdev {
        let device = format!("/sys/bus/pci/devices/{address}");
        let mode = format!("/sbin/devlink dev eswitch set pci/{address} mode switchdev");
        let vfs = format!("echo {} >{device}/sriov_numvfs", nic.num_vfs);
        // Interfaces of VFs have other addresses.
        let text = format!(
            "# Eswitch mode and VFs {origin}; `shunt up` sets the VFs.\n\
             ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"{address}\", \
             RUN+=\"/bin/sh -c '{mode} && {vfs}'\"\n"
        );
        let path = format!("udev/rules.d/81-shunt-{}.rules", nic.name);
        return vec![BootFile { path, text }];
    }
    let mut text = format!(
        "# VFs {origin}; `shunt up` sets their rates.\n\
         [Match]\nPath=pci-{address}\n\n\
         # The default file no longer applies; this keeps its names.\n\
         [Link]\nNamePolicy=keep kernel database onboard slot path\n\
         AlternativeNamesPolicy=database onboard slot path\n\
         SR-IOVVirtualFunctions={}\n",
        nic.num_vfs
    );
    let enabled = nic.vfs.iter().filter(|vf| vf.index < nic.num_vfs);
    enabled.for_each(|vf| text += &section(vf));
    vec![BootFile { path: format!("systemd/network/10-shunt-{}.link", nic.name), text }]
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
    fn every_setting_but_rates_is_in_the_file() {
        let vf = json!({
            "index": 1, "mac": "02:00:00:00:00:01", "vlan": {"id": 7, "qos": 3, "proto": "802.1ad"},
            "spoof_check": false, "trust": true, "link_state": "disable", "max_tx_mbps": 100,
        });
        let disabled = json!({"index": 5, "trust": true});
        let nic = json!({
            "name": "card0", "kind": "pci", "device": "eth0", "num_vfs": 4, "total_vfs": 6,
            "vf": [vf, {"index": 0}, disabled],
        });
        let [link] = files(nic).try_into().unwrap();
        assert_eq!(link.path, "systemd/network/10-shunt-card0.link");
        let settings = "SR-IOVVirtualFunctions=4\n\
            \n[SR-IOV]\nVirtualFunction=1\nMACAddress=02:00:00:00:00:01\nVLANId=7\n\
            QualityOfService=3\nVLANProtocol=802.1ad\nMACSpoofCheck=no\nTrust=yes\nLinkState=no\n\
            \n[SR-IOV]\nVirtualFunction=0\nMACSpoofCheck=yes\nTrust=no\n";
        assert!(link.text.ends_with(settings), "{}", link.text);
        assert!(link.text.contains("Path=pci-0000:01:00.0\n"), "{}", link.text);
    }

    #[test]
    fn the_mode_is_set_before_there_are_vfs() {
        let nic = json!({
            "name": "card0", "kind": "pci", "device": "eth0", "num_vfs": 4, "mode": "switchdev",
            "vf": [{"index": 0, "max_tx_mbps": 5}],
        });
        let [rules] = files(nic).try_into().unwrap();
        assert_eq!(rules.path, "udev/rules.d/81-shunt-card0.rules");
        let lines: Vec<&str> = rules.text.lines().skip(1).collect();
        let rule = "ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"0000:01:00.0\", \
            RUN+=\"/bin/sh -c '/sbin/devlink dev eswitch set pci/0000:01:00.0 mode switchdev && \
            echo 4 >/sys/bus/pci/devices/0000:01:00.0/sriov_numvfs'\"";
        assert_eq!(lines, [rule]);
    }
}
