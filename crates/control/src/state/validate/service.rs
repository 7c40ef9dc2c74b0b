//! VLANs of service tags, in which customer tags are payload.

use super::super::model::Nic;
use super::super::switch::UPLINK;
use super::super::text::VlanRange;
use super::super::{Vlan, VlanProto};
use super::Check;

/// A member of VLANs, and where it stands.
type Member<'a> = (String, Option<Vlan>, &'a [VlanRange]);

impl<'a> Check<'a> {
    /// Where the frames of a VLAN leave without its tag, and others with theirs, the first tag says the VLAN. A tag that was
    /// payload would be the first there, and take its frame into a VLAN that its sender is not in.
    pub(super) fn service_vlans(&mut self, nic: &'a Nic, at: &str) {
        let members = self.members(nic, at);
        let mut natives: Vec<(u16, String)> = Vec::new();
        for (at, vlan, trunks) in &members {
            natives.extend(vlan.filter(|_| !trunks.is_empty()).map(|vlan| (vlan.id, at.clone())));
        }
        for switch in self.state.switches.iter().filter(|switch| switch.nic == nic.name) {
            let native = switch.port(UPLINK).and_then(|port| port.native_vlan);
            natives
                .extend(native.map(|native| (native, format!("port {UPLINK} of {}", switch.name))));
        }
        for (at, vlan, _) in members {
            let service = vlan.filter(|vlan| vlan.proto == VlanProto::Dot1ad);
            let native = service.and_then(|vlan| natives.iter().find(|(id, _)| *id == vlan.id));
            if let Some((id, whose)) = native {
                let error = format!(
                    "makes tags payload in VLAN {id}, which {whose} has without a tag among others \
                     with theirs"
                );
                let allowed = "write \"802.1q\", or choose another VLAN".to_owned();
                self.wrong(format!("{at}.vlan.proto"), "802.1ad", &error, allowed);
            }
        }
    }

    /// All that have VLANs on a NIC.
    fn members(&self, nic: &'a Nic, at: &str) -> Vec<Member<'a>> {
        let pf = nic.pf.iter().map(|pf| (format!("{at}.pf"), pf.vlan, &pf.trunks[..]));
        let vfs = nic.vfs.iter().enumerate();
        let vfs = vfs.map(|(i, vf)| (format!("{at}.vf[{i}]"), vf.vlan, &vf.trunks[..]));
        let adapters = self.state.adapters.iter().enumerate();
        let here = adapters
            .filter(|(_, one)| self.state.nic_of(one).is_some_and(|on| on.name == nic.name));
        let here = here.map(|(i, one)| (format!("adapter[{i}]"), one.vlan, &one.trunks[..]));
        // One that is both has been told already that it cannot be.
        let all = pf.chain(vfs).chain(here);
        let both = |member: &Member<'_>| {
            let service = member.1.is_some_and(|vlan| vlan.proto == VlanProto::Dot1ad);
            service && !member.2.is_empty()
        };
        all.filter(|member| !both(member)).collect()
    }
}
