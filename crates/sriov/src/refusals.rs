//! Errors of drivers: their meaning, and a remedy.
//!
//! One table for messages and for `docs/errors-sriov.md`. A row is from the source of a driver, in
//! Linux 6.12.117. A row that was seen has a test: `tests/e2e/test_pci.py` gets each such answer of
//! igb and netdevsim.

use rustix::io::Errno;

/// An error number as the answer to a setting.
#[derive(Debug)]
pub struct Refusal {
    /// Setting, as a document names it; the first of those that are set together. Empty: any.
    pub setting: &'static str,
    /// Driver of the PF; empty: any.
    pub driver: &'static str,
    /// The error number.
    pub errno: Errno,
    /// Name of the error number, such as `EBUSY`.
    pub name: &'static str,
    /// Meaning and remedy, one sentence.
    pub advice: &'static str,
    /// File and function of Linux.
    pub source: &'static str,
    /// Drivers with which it was seen; empty: not seen.
    pub seen: &'static str,
}

/// A row, as in the page: setting, driver, error number, advice, source, seen.
macro_rules! refusal {
    ($setting:literal, $driver:literal, $errno:ident, $advice:literal, $source:literal, $seen:literal) => {
        Refusal {
            setting: $setting,
            driver: $driver,
            errno: Errno::$errno,
            name: concat!("E", stringify!($errno)),
            advice: $advice,
            source: $source,
            seen: $seen,
        }
    };
}

/// `ENOTSUPP` of the kernel, which is not for programs; drivers give it all the same.
const ENOTSUPP: Errno = Errno::from_raw_os_error(524);

/// All that the code tells apart. Rows of a driver precede those of any.
#[rustfmt::skip]
pub const REFUSALS: &[Refusal] = &[
    refusal!("num_vfs", "ice", BUSY, "the card is not ready, or VMs of Xen have its VFs: try again, or shut the VMs down", "ice_sriov.c: ice_check_sriov_allowed", ""),
    refusal!("num_vfs", "ice", OPNOTSUPP, "the driver is in safe mode, or the card has fewer VFs: install its DDP package, or lower num_vfs", "ice_sriov.c: ice_pci_sriov_ena", ""),
    refusal!("num_vfs", "ice", NOSPC, "the card has too few interrupts or queues for so many VFs: lower num_vfs", "ice_sriov.c: ice_set_per_vf_res", ""),
    refusal!("num_vfs", "ice", AGAIN, "the VFs do not start: in switchdev mode remove the PF from its bridge; else see dmesg", "ice_sriov.c: ice_ena_vfs", ""),
    refusal!("num_vfs", "i40e", INVAL, "VMs of Xen have the VFs: shut these down", "i40e_virtchnl_pf.c: i40e_pci_sriov_configure", ""),
    refusal!("num_vfs", "i40e", PERM, "the card has fewer VFs, or ethtool is testing it: lower num_vfs, or try again", "i40e_virtchnl_pf.c: i40e_pci_sriov_enable", ""),
    refusal!("num_vfs", "igb", PERM, "the card has no MSI-X interrupts, or VMs of Xen have the VFs: shut these down", "igb_main.c: igb_enable_sriov", ""),
    refusal!("num_vfs", "ixgbe", INVAL, "an XDP program is attached to the PF: detach it (ip link set PF xdp off)", "ixgbe_sriov.c: __ixgbe_enable_sriov", ""),
    refusal!("num_vfs", "ixgbe", PERM, "traffic classes and macvlans leave room for fewer VFs, or VMs of Xen have them: lower num_vfs", "ixgbe_sriov.c: ixgbe_pci_sriov_enable", ""),
    refusal!("num_vfs", "", BUSY, "there are VFs already, and others change their number too: let one program do it", "drivers/pci/iov.c: sriov_numvfs_store", "igb"),
    refusal!("num_vfs", "", RANGE, "the card has fewer VFs: write at most its sriov_totalvfs (shunt nic list)", "drivers/pci/iov.c: sriov_numvfs_store", "igb"),
    refusal!("num_vfs", "", NOENT, "the PF has no driver, or one that makes no VFs: load the card's own driver", "drivers/pci/iov.c: sriov_numvfs_store", "igb"),
    refusal!("num_vfs", "", NOMEM, "no room for the VFs' BARs or bus numbers: boot with pci=realloc, or enable it in the firmware", "drivers/pci/iov.c: sriov_enable", ""),
    refusal!("num_vfs", "", NOSYS, "the card is no PF now: enable SR-IOV in the firmware's setup", "drivers/pci/iov.c: pci_enable_sriov", ""),
    Refusal { name: "EACCES", ..refusal!("num_vfs", "", ACCESS, "the file belongs to root: start the daemon as root", "sysfs(5)", "igb") },
    refusal!("mode", "ice", OPNOTSUPP, "others made VFs, ADQ is in use, or the kernel lacks ICE_SWITCHDEV: undo that, or leave mode out", "ice_eswitch.c: ice_eswitch_mode_set", ""),
    refusal!("mode", "mlx5_core", BUSY, "the eswitch is in use, as by offloaded rules, or the firmware resets: remove these, or try again", "mlx5 eswitch_offloads.c: mlx5_devlink_eswitch_mode_set", ""),
    refusal!("mode", "mlx5_core", INVAL, "another program is changing the eswitch: try again", "mlx5 eswitch.c: mlx5_esw_try_lock", ""),
    refusal!("mode", "mlx5_core", OPNOTSUPP, "this PF does not manage the eswitch (DPU), or IPsec or devlink traps are in use: remove these", "mlx5 eswitch.c: mlx5_devlink_eswitch_get", ""),
    refusal!("mode", "mlx5_core", PERM, "PFs that share an interface (Socket Direct) have no switchdev mode: leave mode out", "mlx5 eswitch_offloads.c: mlx5_devlink_eswitch_mode_set", ""),
    refusal!("mode", "bnxt_en", NODEV, "the card has no serial number, which representors need: update its firmware, or leave mode out", "bnxt_vfr.c: bnxt_vf_reps_create", ""),
    refusal!("mode", "", OPNOTSUPP, "the driver has no such eswitch mode: leave mode out, or use a card that has it", "net/devlink/dev.c: devlink_nl_eswitch_set_doit", "igb"),
    refusal!("mode", "", BUSY, "the eswitch is in use, such as by rate groups of devlink: remove these first", "net/devlink/rate.c: devlink_rate_nodes_check", "netdevsim"),
    refusal!("vlan", "igb", EXIST, "the card's table of 32 VLANs is full: use fewer VLANs on its PF and VFs", "e1000_mac.c: igb_find_vlvf_slot", "igb"),
    refusal!("vlan", "ixgbe", NOSPC, "the card's table of 64 VLANs is full: use fewer VLANs on its PF and VFs", "ixgbe_common.c: ixgbe_find_vlvf_slot", ""),
    refusal!("vlan", "mlx5_core", OPNOTSUPP, "in switchdev mode VLANs are set at the representor: leave vlan out", "mlx5 esw/legacy.c: mlx5_eswitch_set_vport_vlan", ""),
    refusal!("vlan", "", PROTONOSUPPORT, "the driver has no VLAN tags of this protocol: write proto = \"802.1q\"", "igb_main.c: igb_ndo_set_vf_vlan", "igb"),
    refusal!("vlan", "", INVAL, "the driver has no such VLAN ID, priority or VF: use IDs up to 4094 and priorities up to 7", "igb_main.c: igb_ndo_set_vf_vlan", "igb, netdevsim"),
    refusal!("mac", "ixgbe", NOMEM, "the card's table of addresses is full: remove VFs or macvlans", "ixgbe_main.c: ixgbe_add_mac_filter", ""),
    refusal!("mac", "", INVAL, "the driver has no such VF, or the address is no unicast address: choose another", "igb_main.c: igb_ndo_set_vf_mac", "igb, netdevsim"),
    refusal!("min_tx_mbps", "igb", INVAL, "no guaranteed rates, and limits only up to the PF's link speed: write min_tx_mbps = 0, or set the PF up", "igb_main.c: igb_ndo_set_vf_bw", "igb"),
    refusal!("min_tx_mbps", "igb", OPNOTSUPP, "only the 82576 limits VFs: leave the rates out", "igb_main.c: igb_ndo_set_vf_bw", ""),
    refusal!("min_tx_mbps", "ixgbe", INVAL, "no guaranteed rates, and limits of 11 to 10000 Mbit/s with a link of 10 Gbit/s only: change the rates", "ixgbe_sriov.c: ixgbe_ndo_set_vf_bw", ""),
    refusal!("min_tx_mbps", "i40e", INVAL, "no guaranteed rates, and limits only up to the link's speed: write min_tx_mbps = 0, or lower the limit", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_bw", ""),
    refusal!("min_tx_mbps", "ice", INVAL, "a rate, or the sum of all guaranteed rates, exceeds the link's speed: lower it", "ice_sriov.c: ice_min_tx_rate_oversubscribed", ""),
    refusal!("min_tx_mbps", "ice", OPNOTSUPP, "guaranteed rates exclude DCB: turn DCB off, or write min_tx_mbps = 0", "ice_sriov.c: ice_set_vf_bw", ""),
    refusal!("min_tx_mbps", "bnxt_en", INVAL, "the rates exceed the link's speed, or there is no link: set the PF's interface up", "bnxt_sriov.c: bnxt_set_vf_bw", ""),
    refusal!("min_tx_mbps", "mlx5_core", OPNOTSUPP, "the card's firmware has no such rates for VFs: leave them out", "mlx5 esw/qos.c: mlx5_esw_qos_set_vport_rate", ""),
    refusal!("min_tx_mbps", "", INVAL, "the driver has no such rates: keep the minimum below the maximum, and this below the link's speed", "net/core/rtnetlink.c: rtnl_set_vf_rate", "netdevsim"),
    refusal!("min_tx_mbps", "", OPNOTSUPP, "the driver limits no VFs in this mode: leave the rates out; in switchdev mode use devlink rates", "netdevsim netdev.c: nsim_set_vf_rate", "netdevsim"),
    refusal!("spoof_check", "mlx5_core", OPNOTSUPP, "in switchdev mode rules at the representor check sources: write spoof_check = false", "mlx5 esw/legacy.c: mlx5_eswitch_set_vport_spoofchk", ""),
    refusal!("spoof_check", "", OPNOTSUPP, "the driver has no spoof check to set: write spoof_check = true, the default", "net/core/rtnetlink.c: do_setvfinfo", ""),
    refusal!("spoof_check", "", INVAL, "the driver has no such VF: see num_vfs", "igb_main.c: igb_ndo_set_vf_spoofchk", "igb, netdevsim"),
    refusal!("trust", "i40e", INVAL, "a partitioned card (MFP) has no trusted VFs: write trust = false", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_trust", ""),
    refusal!("trust", "", OPNOTSUPP, "the driver has no trusted VFs in this mode: write trust = false", "ice_sriov.c: ice_set_vf_trust", ""),
    refusal!("trust", "", INVAL, "the driver has no such VF: see num_vfs", "igb_main.c: igb_ndo_set_vf_trust", "igb, netdevsim"),
    refusal!("link_state", "", OPNOTSUPP, "the driver cannot set the link of VFs: write link_state = \"auto\"", "net/core/rtnetlink.c: do_setvfinfo", "igb"),
    refusal!("link_state", "", INVAL, "the driver has no such VF or link state: write link_state = \"auto\"", "netdevsim netdev.c: nsim_set_vf_link_state", "netdevsim"),
    refusal!("query_rss", "", OPNOTSUPP, "the driver does not share the PF's RSS settings with VFs: leave it out", "net/core/rtnetlink.c: do_setvfinfo", "igb"),
    refusal!("driver", "", NODEV, "no driver took the VF: load its module; vfio-pci needs an IOMMU (intel_iommu=on)", "crates/sriov/src/driver.rs", "a unit test"),
    refusal!("driver", "", BUSY, "a VM has the VF, or its driver does not release it: shut the VM down, or close what uses it", "crates/sriov/src/driver.rs", "a unit test"),
    refusal!("driver", "", PERM, "the launcher binds no such driver: use the VF's own, or one of VFIO", "crates/sriov/src/change.rs", "a unit test"),
    refusal!("", "ice", BUSY, "the VF is in reset: try again", "ice_vf_lib.c: ice_check_vf_ready_for_cfg", ""),
    refusal!("", "i40e", AGAIN, "the driver is busy, or the VF is in reset: try again", "i40e_virtchnl_pf.c: i40e_check_vf_init_timeout", ""),
    refusal!("", "bnxt_en", AGAIN, "the card's firmware is busy or resets: try again", "bnxt_hwrm.c: __hwrm_to_stderr", ""),
    refusal!("", "bnxt_en", NOSPC, "the card's firmware has no room for it: enable fewer VFs, or fewer rings on the PF", "bnxt_hwrm.c: __hwrm_to_stderr", ""),
    Refusal { errno: ENOTSUPP, name: "ENOTSUPP (524)", ..refusal!("", "bnxt_en", OPNOTSUPP, "the card's firmware is too old for this setting: update it, or leave the setting out", "bnxt_sriov.c: bnxt_set_vf_spoofchk", "") },
    refusal!("", "mlx5_core", PERM, "this PF does not manage the eswitch: set the VFs on the DPU", "mlx5 esw/legacy.c: mlx5_eswitch_set_vport_trust", ""),
    refusal!("", "", PERM, "CAP_NET_ADMIN is missing in the host's namespaces: start the daemon as root", "net/core/rtnetlink.c: rtnetlink_rcv_msg", "igb"),
    refusal!("", "", ROFS, "/sys cannot be written here: set ProtectKernelTunables=no in the service (docs/service.md)", "systemd.exec(5)", ""),
    refusal!("", "", NODEV, "the interface or the VF has vanished: see the kernel's log (dmesg)", "net/core/rtnetlink.c: rtnl_setlink", "igb"),
    refusal!("", "", OPNOTSUPP, "the driver does not have this setting: leave it out", "net/core/rtnetlink.c: do_setvfinfo", "igb"),
];

/// Advice for other errors.
const OTHER: &str = "the driver gives the reason in the kernel's log (dmesg)";

/// Meaning of an error number as the answer to a setting, and a remedy.
pub(crate) fn explain(setting: &str, driver: &str, errno: Errno) -> &'static str {
    let is_of = |row: &&Refusal| {
        row.errno == errno
            && (row.setting == setting || row.setting.is_empty())
            && (row.driver == driver || row.driver.is_empty())
    };
    REFUSALS.iter().find(is_of).map_or(OTHER, |row| row.advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTRODUCTION: &str = "\
# Errors of SR-IOV drivers

This page says what an error of a card's driver means, and what to do. It is written from the table
in `crates/sriov/src/refusals.rs`, from which the messages of `shunt` are.

A setting of a NIC of kind `pci` is refused as a whole: nothing is changed. The message names the
setting, its value, the meaning, the error number, and the driver's own message if there is one. A
row with a driver is for that one only. Sources are files and functions of Linux 6.12.117. \"Seen\"
names the driver that gives the answer in a test, in a guest.

What each family of cards supports is on a page of its own: [cards.md](cards.md#families).

| setting | driver | error | meaning: remedy | source | seen |
|---|---|---|---|---|---|
";

    const ACCEPTED: &str = "
## Accepted, not in force

A driver may accept a value and not do it. Each value is read back, and what differs is shown as
\"accepted, not in force\". A value that the driver reports, but does not enforce, is found only by
sending frames: `shunt conform`.

| setting | driver | what happens | source | seen |
|---|---|---|---|---|
| num_vfs | bnxt_en | nothing, not even 0, while the PF's interface is down; fewer VFs if rings are short | bnxt_sriov.c: bnxt_sriov_configure | not seen |
| vlan | bnxt_en | 802.1ad is in force, and reported as 802.1q | bnxt_sriov.c: bnxt_get_vf_config | not seen |
| link_state | ixgbe | `enable` is accepted, and `auto` stays | ixgbe_sriov.c: ixgbe_ndo_set_vf_link_state | not seen |
| max_tx_mbps | netdevsim | the rate is cut to 16 bits | netdevsim netdev.c: nsim_set_vf_rate | netdevsim |
| max_tx_mbps | igb, ixgbe | the rate goes back to 0 when the speed of the link changes | igb_main.c: igb_check_vf_rate_limit | not seen |
| max_tx_mbps | i40e | the limit is a multiple of 50 Mbit/s; the exact rate is reported | i40e_main.c: i40e_set_bw_limit | not seen |
| max_tx_mbps | i40e | below 50, there is no limit after the VF's next reset | i40e_virtchnl_pf.c: i40e_alloc_vsi_res | not seen |
| min_tx_mbps | mlx5_core | a share of the bandwidth relative to other VFs | mlx5 esw/qos.c: esw_qos_normalize_vports_min_rate | not seen |
| spoof_check | igb | after the PF's interface was down, the check is on; `false` is reported | igb_main.c: igb_vmm_control | not seen |
| spoof_check | ixgbe | off once the VF has added an address; on is reported | ixgbe_sriov.c: ixgbe_set_vf_macvlan_msg | not seen |
| spoof_check | mlx5_core | without `mac` a VF with the check can send nothing | mlx5 esw/acl/ingress_lgcy.c: esw_acl_ingress_lgcy_setup | not seen |
| trust | bnxt_en | the firmware's refusal is not reported | bnxt_sriov.c: bnxt_set_vf_trust | not seen |
";

    /// `SHUNT_WRITE_DOCS=1` writes the page.
    #[test]
    fn the_page_has_the_rows_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors-sriov.md");
        let row = |row: &Refusal| {
            let or = |text: &'static str, other| if text.is_empty() { other } else { text };
            let (setting, driver) = (or(row.setting, "any"), or(row.driver, "any"));
            let (name, seen) = (row.name, or(row.seen, "not seen"));
            let Refusal { advice, source, .. } = row;
            format!("| {setting} | {driver} | {name} | {advice} | {source} | {seen} |\n")
        };
        let rows: String = REFUSALS.iter().map(row).collect();
        let page = format!("{INTRODUCTION}{rows}{ACCEPTED}");
        if std::env::var_os("SHUNT_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "run this test with SHUNT_WRITE_DOCS=1");
    }

    #[test]
    fn no_row_hides_another() {
        for row in REFUSALS {
            let driver = if row.driver.is_empty() { "a driver" } else { row.driver };
            let found = explain(row.setting, driver, row.errno);
            assert_eq!(found, row.advice, "{row:?}");
        }
        let other = explain("vlan", "igb", Errno::NOSPC);
        assert_eq!(other, OTHER);
        assert!(explain("min_tx_mbps", "igb", Errno::INVAL).contains("min_tx_mbps = 0"));
        assert!(explain("trust", "igb", Errno::PERM).contains("CAP_NET_ADMIN"));
    }

    #[test]
    fn each_row_is_a_sentence_with_a_remedy() {
        for row in REFUSALS {
            assert!(row.advice.contains(": "), "{}", row.advice);
            assert!(row.advice.len() <= 110 && !row.advice.ends_with('.'), "{}", row.advice);
        }
    }
}
