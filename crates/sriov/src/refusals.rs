//! Errors of drivers: their meaning, and a remedy.
//!
//! One table for messages and for `docs/errors-sriov.md`. A row was seen in a guest with igb or
//! netdevsim, or is from the source of a driver.

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

/// All that the code tells apart. Rows of a driver precede those of any.
#[rustfmt::skip]
pub const REFUSALS: &[Refusal] = &[
    refusal!("num_vfs", "ice", BUSY, "VFs are assigned to VMs, or the card is not ready: shut the VMs down, or try again", "ice_sriov.c: ice_sriov_configure", ""),
    refusal!("num_vfs", "ice", OPNOTSUPP, "the driver is in safe mode, or supports fewer VFs: install its DDP package, or lower num_vfs", "ice_sriov.c: ice_check_sriov_allowed", ""),
    refusal!("num_vfs", "i40e", INVAL, "VFs are assigned to VMs: shut these down", "i40e_virtchnl_pf.c: i40e_pci_sriov_configure", ""),
    refusal!("num_vfs", "i40e", AGAIN, "the driver is busy with its VFs: try again", "i40e_virtchnl_pf.c: i40e_pci_sriov_configure", ""),
    refusal!("num_vfs", "ixgbe", INVAL, "an XDP program is attached to the PF: detach it (ip link set PF xdp off)", "ixgbe_sriov.c: __ixgbe_enable_sriov", ""),
    refusal!("num_vfs", "ixgbe", PERM, "VFs are assigned to VMs, or traffic classes and macvlans leave room for fewer: lower num_vfs", "ixgbe_sriov.c: ixgbe_pci_sriov_enable", ""),
    refusal!("num_vfs", "", BUSY, "there are VFs already, and others change their number too: let one program do it", "drivers/pci/iov.c: sriov_numvfs_store", "igb, netdevsim"),
    refusal!("num_vfs", "", RANGE, "the card has fewer VFs: write at most its sriov_totalvfs (shunt nic list)", "drivers/pci/iov.c: sriov_numvfs_store", "igb"),
    refusal!("num_vfs", "", NOENT, "the PF has no driver, or one that makes no VFs: load the card's own driver", "drivers/pci/iov.c: sriov_numvfs_store", "igb"),
    refusal!("num_vfs", "", NOMEM, "no room for the VFs' BARs or bus numbers: boot with pci=realloc, or enable it in the firmware", "drivers/pci/iov.c: sriov_enable", "netdevsim"),
    refusal!("num_vfs", "", NOSYS, "the card is no PF now: enable SR-IOV in the firmware's setup", "drivers/pci/iov.c: pci_enable_sriov", ""),
    Refusal { name: "EACCES", ..refusal!("num_vfs", "", ACCESS, "the file belongs to root: start the daemon as root", "sysfs(5)", "") },
    refusal!("mode", "ice", OPNOTSUPP, "the card has VFs, or its driver no switchdev mode: remove the VFs, or leave mode out", "ice_eswitch.c: ice_eswitch_mode_set", ""),
    refusal!("mode", "mlx5_core", BUSY, "the eswitch is in use, by offloaded rules or IPsec, or resets: remove these, or try again", "mlx5 eswitch_offloads.c: mlx5_devlink_eswitch_mode_set", ""),
    refusal!("mode", "mlx5_core", PERM, "this PF does not manage the eswitch: set the mode on the DPU", "mlx5 eswitch_offloads.c: mlx5_devlink_eswitch_get", ""),
    refusal!("mode", "", OPNOTSUPP, "the driver has no such eswitch mode: leave mode out, or use a card that has it", "net/devlink: no eswitch_mode_set", "igb"),
    refusal!("mode", "", BUSY, "the eswitch is in use, such as by rate groups of devlink: remove these first", "netdevsim dev.c: nsim_devlink_eswitch_mode_set", "netdevsim"),
    refusal!("vlan", "ice", BUSY, "the VF is in reset or has no driver yet: try again", "ice_vf_lib.c: ice_check_vf_ready_for_cfg", ""),
    refusal!("vlan", "i40e", AGAIN, "the VF is in reset: try again", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_port_vlan", ""),
    refusal!("vlan", "mlx5_core", OPNOTSUPP, "in switchdev mode VLANs are set at the representor: leave vlan out", "mlx5 esw/legacy.c: mlx5_eswitch_set_vport_vlan", ""),
    refusal!("vlan", "mlx5_core", PERM, "this PF does not manage the eswitch: set VLANs on the DPU", "mlx5 esw/legacy.c: mlx5_eswitch_set_vport_vlan", ""),
    refusal!("vlan", "", PROTONOSUPPORT, "the driver has no VLAN tags of this protocol: write proto = \"802.1q\"", "igb_main.c: igb_ndo_set_vf_vlan", "igb"),
    refusal!("vlan", "", INVAL, "the driver has no such VLAN ID, priority or VF: use IDs up to 4094 and priorities up to 7", "igb_main.c: igb_ndo_set_vf_vlan", "igb, netdevsim"),
    refusal!("mac", "ice", BUSY, "the VF is in reset or has no driver yet: try again", "ice_vf_lib.c: ice_check_vf_ready_for_cfg", ""),
    refusal!("mac", "i40e", AGAIN, "the VF is in reset: try again", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_mac", ""),
    refusal!("mac", "ixgbe", NOMEM, "the card's table of addresses is full: remove VFs or macvlans", "ixgbe_main.c: ixgbe_add_mac_filter", ""),
    refusal!("mac", "mlx5_core", PERM, "this PF does not manage the eswitch: set addresses on the DPU", "mlx5 eswitch.c: mlx5_eswitch_set_vport_mac", ""),
    refusal!("mac", "", INVAL, "the driver has no such VF, or the address is no unicast address: choose another", "igb_main.c: igb_ndo_set_vf_mac", "igb, netdevsim"),
    refusal!("min_tx_mbps", "igb", INVAL, "needs min_tx_mbps = 0, the PF's link, and at most its speed: set the PF's interface up", "igb_main.c: igb_ndo_set_vf_bw", "igb"),
    refusal!("min_tx_mbps", "ixgbe", INVAL, "needs min_tx_mbps = 0, a link of 10 Gbit/s, and a maximum of 11 to 10000 Mbit/s", "ixgbe_sriov.c: ixgbe_ndo_set_vf_bw", ""),
    refusal!("min_tx_mbps", "i40e", INVAL, "needs min_tx_mbps = 0, and a maximum up to the link's speed", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_bw", ""),
    refusal!("min_tx_mbps", "i40e", AGAIN, "the VF is in reset: try again", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_bw", ""),
    refusal!("min_tx_mbps", "ice", INVAL, "the guaranteed rates of all VFs exceed the link's speed: lower them", "ice_sriov.c: ice_min_tx_rate_oversubscribed", ""),
    refusal!("min_tx_mbps", "ice", OPNOTSUPP, "guaranteed rates exclude DCB: turn DCB off, or write min_tx_mbps = 0", "ice_sriov.c: ice_set_vf_bw", ""),
    refusal!("min_tx_mbps", "bnxt_en", INVAL, "the rates exceed the link's speed, or there is no link: set the PF's interface up", "bnxt_sriov.c: bnxt_set_vf_bw", ""),
    refusal!("min_tx_mbps", "", INVAL, "the driver has no such rates: keep the minimum below the maximum, and this below the link's speed", "net/core/rtnetlink.c: do_setvfinfo", "netdevsim"),
    refusal!("min_tx_mbps", "", OPNOTSUPP, "the driver limits no VFs in this mode: leave the rates out; in switchdev mode use devlink rates", "netdevsim netdev.c: nsim_set_vf_rate", "netdevsim"),
    refusal!("spoof_check", "i40e", AGAIN, "the VF is in reset: try again", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_spoofchk", ""),
    refusal!("spoof_check", "", OPNOTSUPP, "the driver has no spoof check in this mode: write spoof_check = true, its default", "mlx5 eswitch.c: mlx5_eswitch_set_vport_spoofchk", ""),
    refusal!("spoof_check", "", INVAL, "the driver has no such VF: see num_vfs", "igb_main.c: igb_ndo_set_vf_spoofchk", "igb, netdevsim"),
    refusal!("trust", "", OPNOTSUPP, "the driver has no trusted VFs in this mode: write trust = false", "ice_sriov.c: ice_set_vf_trust", ""),
    refusal!("trust", "", INVAL, "the driver has no such VF, or no trusted VFs on a partitioned card: write trust = false", "i40e_virtchnl_pf.c: i40e_ndo_set_vf_trust", "igb, netdevsim"),
    refusal!("link_state", "", OPNOTSUPP, "the driver cannot set the link of VFs: write link_state = \"auto\"", "net/core/rtnetlink.c: do_setvfinfo", "igb"),
    refusal!("link_state", "", INVAL, "the driver has no such VF or link state: write link_state = \"auto\"", "netdevsim netdev.c: nsim_set_vf_link_state", "netdevsim"),
    refusal!("query_rss", "", OPNOTSUPP, "the driver does not share the PF's RSS settings with VFs: leave it out", "net/core/rtnetlink.c: do_setvfinfo", "igb"),
    refusal!("driver", "", NODEV, "no driver took the VF: load its module; vfio-pci needs an IOMMU (intel_iommu=on)", "drivers/base/bus.c: drivers_probe_store", "igb"),
    refusal!("driver", "", BUSY, "the driver does not release the VF: close what uses it", "drivers/base/bus.c: unbind_store", ""),
    refusal!("driver", "", PERM, "the launcher binds no such driver: use the VF's own, or one of VFIO", "crates/sriov/src/change.rs", "a unit test"),
    refusal!("", "", PERM, "CAP_NET_ADMIN is missing in the host's namespaces: start the daemon as root", "net/core/rtnetlink.c: rtnetlink_rcv_msg", ""),
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
row with a driver is for that one only. \"Seen\" names the driver in a guest that gave the answer; the
others are from the sources of Linux, and were not seen.

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
| num_vfs | bnxt_en | none or fewer are enabled while the interface is down | bnxt_sriov.c: bnxt_sriov_configure | not seen |
| link_state | ixgbe | `enable` is accepted, and `auto` stays | ixgbe_sriov.c: ixgbe_ndo_set_vf_link_state | not seen |
| max_tx_mbps | netdevsim | the rate is cut to 16 bits | netdevsim netdev.c: nsim_set_vf_rate | netdevsim |
| max_tx_mbps | igb, ixgbe | the rate goes back to 0 when the speed of the link changes | igb_main.c: igb_check_vf_rate_limit | not seen |
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
            assert!(row.advice.contains(": ") || row.advice.starts_with("needs"), "{}", row.advice);
            assert!(row.advice.len() <= 110 && !row.advice.ends_with('.'), "{}", row.advice);
        }
    }
}
