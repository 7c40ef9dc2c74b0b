//! What the file's NICs and VFs are in the state document.
//!
//! A NIC of the file has all of its VFs enabled. Each `[[nic.vf]]` has a guest, so it is an adapter there, which has its
//! settings and names its VF. Its name is made of the NIC's and the VF's number, so that it stays when tables move.

use std::collections::BTreeSet;

use wire::Vid;

use super::model::{self, Function, NicKind, Rules, Vf};
use crate::state::{self, MacText, VlanRange};

/// The NICs, without what is an adapter's.
pub(super) fn nics(nics: &[model::Nic]) -> Vec<state::Nic> {
    let nic = |nic: &model::Nic| state::Nic {
        name: nic.name.clone(),
        kind: match nic.kind {
            NicKind::Soft => state::NicKind::Soft,
        },
        profile: nic.profile,
        total_vfs: nic.total_vfs,
        num_vfs: nic.total_vfs,
        budget_permille: nic.budget_permille,
        vmq_queues: nic.vmq_queues,
        bridging: match nic.bridging {
            nic::Mode::Veb => state::Bridging::Veb,
            nic::Mode::Vepa => state::Bridging::Vepa,
            nic::Mode::Isolated => state::Bridging::Isolated,
        },
        uplink: nic.uplink.clone(),
        pf: nic.pf.as_ref().map(pf),
        vfs: Vec::new(),
        mode: if nic.switchdev { state::NicMode::Switchdev } else { state::NicMode::Legacy },
        representors: Vec::new(),
        rules: Vec::new(),
    };
    nics.iter().map(nic).collect()
}

/// The adapters of the VFs, each with the path of its table in the file.
pub(super) fn adapters(nics: &[model::Nic]) -> Vec<(String, state::Adapter)> {
    let of_nic = |(i, nic): (usize, &model::Nic)| {
        let adapter = |(j, vf)| (format!("nic[{i}].vf[{j}]"), adapter(&nic.name, vf));
        nic.vfs.iter().enumerate().map(adapter).collect::<Vec<_>>()
    };
    nics.iter().enumerate().flat_map(of_nic).collect()
}

/// The name of the adapter that a `[[nic.vf]]` is.
pub(super) fn adapter_name(nic: &str, index: u16) -> String {
    // A NIC's name may begin with - and an adapter's may not; the capital is in no NIC's name, so it stays unique.
    let before = if nic.starts_with('-') { "N" } else { "" };
    format!("{before}{nic}-vf{index}")
}

fn adapter(nic: &str, vf: &Vf) -> state::Adapter {
    let Function { mac, macs, vlan, rules, attachment } = &vf.function;
    state::Adapter {
        name: adapter_name(nic, vf.index),
        attachment: attachment.clone(),
        nic: Some(nic.to_owned()),
        switch: None,
        vf: Some(vf.index),
        mac: MacText(*mac),
        macs: macs.iter().copied().map(MacText).collect(),
        vlan: vlan.map(|vlan| access_vlan(vlan, rules)),
        trunks: ranges(&rules.trunk),
        spoof_check: rules.spoof_check,
        trust: rules.trust,
        promiscuous: rules.promiscuous,
        link_state: link_state(rules.link),
        min_tx_mbps: rules.share.min_mbit,
        max_tx_mbps: rules.share.max_mbit,
        tx_weight: rules.share.weight,
        storm_limit_pps: rules.storm_limit,
        mirror: None,
        iov_weight: 100,
        // It is on no switch, so it can have nothing but its VF.
        vmq_weight: 0,
        moving: None,
        path: state::WantedPath::Vf,
    }
}

/// As an adapter's; there, a PF is always trusted.
fn pf(function: &Function) -> state::Pf {
    let Function { mac, macs, vlan, rules, attachment } = function;
    state::Pf {
        attachment: attachment.clone(),
        mac: MacText(*mac),
        macs: macs.iter().copied().map(MacText).collect(),
        vlan: vlan.map(|vlan| access_vlan(vlan, rules)),
        trunks: ranges(&rules.trunk),
        spoof_check: rules.spoof_check,
        promiscuous: rules.promiscuous,
        link_state: link_state(rules.link),
        min_tx_mbps: rules.share.min_mbit,
        max_tx_mbps: rules.share.max_mbit,
        tx_weight: rules.share.weight,
        storm_limit_pps: rules.storm_limit,
        mirror: None,
    }
}

fn access_vlan(vlan: Vid, rules: &Rules) -> state::Vlan {
    let proto = match rules.vlan_protocol {
        nic::VlanProtocol::Ieee8021Q => state::VlanProto::Dot1q,
        nic::VlanProtocol::Ieee8021Ad => state::VlanProto::Dot1ad,
    };
    state::Vlan { id: vlan.get(), qos: rules.vlan_qos, proto }
}

fn link_state(link: nic::LinkState) -> state::LinkState {
    match link {
        nic::LinkState::Auto => state::LinkState::Auto,
        nic::LinkState::Enable => state::LinkState::Enable,
        nic::LinkState::Disable => state::LinkState::Disable,
    }
}

/// The same VLANs in as few ranges as can be.
fn ranges(trunk: &[Vid]) -> Vec<VlanRange> {
    let vlans: BTreeSet<u16> = trunk.iter().map(|vlan| vlan.get()).collect();
    let mut ranges: Vec<VlanRange> = Vec::new();
    for vlan in vlans {
        match ranges.last_mut() {
            Some(range) if range.last + 1 == vlan => range.last = vlan,
            _ => ranges.push(VlanRange { first: vlan, last: vlan }),
        }
    }
    ranges
}
