//! VLANs with service tags, whose customer tags are payload.

use super::super::nic::Nic;
use super::super::switch::UPLINK;
use super::super::{PortSettings, VlanProto};
use super::Check;

/// A member of VLANs, and its position.
type Member<'a> = (String, &'a PortSettings);

impl<'a> Check<'a> {
    /// A function that receives a service VLAN untagged, and other VLANs tagged, reads the first
    /// tag as the VLAN. A customer tag that was payload would be the first tag there, and put the
    /// frame into a VLAN that the sender is not in.
    pub(super) fn service_vlans(&mut self, nic: &'a Nic, at: &str) {
        let members = self.members(nic, at);
        let mut natives: Vec<(u16, String)> = Vec::new();
        for (at, PortSettings { vlan, trunks, .. }) in &members {
            natives.extend(vlan.filter(|_| !trunks.is_empty()).map(|vlan| (vlan.id, at.clone())));
        }
        for switch in self.state.switches.iter().filter(|switch| switch.nic == nic.name) {
            let native = switch.port(UPLINK).and_then(|port| port.native_vlan);
            natives
                .extend(native.map(|native| (native, format!("port {UPLINK} of {}", switch.name))));
        }
        for (at, settings) in members {
            let service = settings.vlan.filter(|vlan| vlan.proto == VlanProto::Dot1ad);
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

    /// All members of VLANs on a NIC.
    fn members(&self, nic: &'a Nic, at: &str) -> Vec<Member<'a>> {
        let pf = nic.pf.iter().map(|pf| (format!("{at}.pf"), &pf.settings));
        let vfs = nic.vfs.iter().enumerate();
        let vfs = vfs.map(|(i, vf)| (format!("{at}.vf[{i}]"), &vf.settings));
        let adapters = self.state.adapters.iter().zip(self.adapters);
        let here = adapters
            .filter(|(one, _)| self.state.nic_of(one).is_some_and(|on| on.name == nic.name));
        let here = here.map(|(one, at)| (at.clone(), &one.settings));
        // An adapter on both has been reported already.
        let all = pf.chain(vfs).chain(here);
        let both = |member: &Member<'_>| {
            let service = member.1.vlan.is_some_and(|vlan| vlan.proto == VlanProto::Dot1ad);
            service && !member.1.trunks.is_empty()
        };
        all.filter(|member| !both(member)).collect()
    }
}
