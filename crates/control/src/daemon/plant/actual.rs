//! What is in force, as the API tells it.

use super::super::rig::Served;
use super::Plant;
use crate::state::{Actual, ActualAdapter, ActualNic, ActualVf, Allocation, Nic, Reason};
use crate::stats::RuleStats;

impl Plant {
    /// What is in force.
    pub(super) fn actual(&self) -> Actual {
        let nics = self.state.nics.iter().map(|nic| self.actual_nic(nic)).collect();
        let adapter = |given: &Allocation| {
            let served = self.served(&given.adapter);
            let connected = served.is_some_and(|served| self.sockets.is_attached(served.token));
            ActualAdapter::of(given.clone(), connected)
        };
        Actual { nics, adapters: self.given.iter().map(adapter).collect() }
    }

    /// How often each rule of the switches was met.
    pub(in super::super) fn rules(&self) -> Vec<RuleStats> {
        let nics = self.compiled.nics.iter();
        let switches = nics.filter_map(|nic| self.rigs.get(&nic.name).zip(nic.switch.as_ref()));
        switches.flat_map(|(rig, switch)| rig.rules(switch)).collect()
    }

    /// An adapter as it is served.
    pub(super) fn served(&self, adapter: &str) -> Option<&Served> {
        self.rigs.values().find_map(|rig| rig.adapter(adapter))
    }

    fn actual_nic(&self, nic: &Nic) -> ActualNic {
        let config = self.compiled.nic(&nic.name).map(|compiled| &compiled.config);
        let vf = |index: u16| {
            // Few have this number, so that names are looked for seldom.
            let holder = self.given.iter().filter(|given| given.vf == Some(index)).find(|given| {
                let on_it = self.state.adapter(&given.adapter);
                let on_it = on_it.and_then(|adapter| self.state.nic_of(adapter));
                on_it.is_some_and(|on_it| on_it.name == nic.name)
            });
            let function = config.and_then(|config| config.vfs.get(usize::from(index)));
            let function = function.and_then(Option::as_ref);
            ActualVf {
                index,
                adapter: holder.map(|given| given.adapter.clone()),
                mac: function.map(|function| function.mac.to_string()),
                vlan: function.and_then(|function| function.vlan).map(|vlan| vlan.vid.get()),
                link_up: function
                    .zip(config)
                    .is_some_and(|(function, config)| function.is_up(config.uplink_up)),
            }
        };
        ActualNic {
            name: nic.name.clone(),
            support: Reason::Supported,
            total_vfs: nic.total_vfs,
            vfs: (0..nic.num_vfs).map(vf).collect(),
        }
    }
}
