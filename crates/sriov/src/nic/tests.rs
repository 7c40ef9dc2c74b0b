//! A card that answers as drivers do, and stops or fails at any step.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;

use model::state::{LinkState, MacText, Vlan, VlanProto};
use proptest::prelude::*;
use wire::Mac;

use super::*;
use crate::driver::{Binding, own_driver};
use crate::netdev::{HostNetdev, NetdevError};

/// Answers of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    /// Rejects what igb rejects; has no eswitch.
    Igb,
    /// Takes all, as netdevsim does; has an eswitch.
    Netdevsim,
    /// As netdevsim, but rates have steps of 50 Mbit/s, as with i40e.
    Steps,
}

/// An event at a change of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The change fails.
    Fail,
    /// The process is killed before the change.
    KillBefore,
    /// The process is killed after the change.
    KillAfter,
}

/// A killed process.
struct Killed;

/// The machine, which outlives the process.
#[derive(Clone, Debug)]
struct Machine {
    model: Model,
    present: bool,
    mode: NicMode,
    vfs: Vec<VfState>,
    /// Interface of each VF, if its driver has made one, and its address.
    netdevs: Vec<Option<(VfNetdev, Mac)>>,
    /// VFs that a VM has open.
    of_vms: BTreeSet<u16>,
    /// VFs whose interface the host uses.
    of_host: BTreeSet<u16>,
    /// Error of reading the VFs.
    unreadable: Option<Errno>,
    /// Most VFs that its driver enables, without an error.
    most: u16,
    /// A VF in reset, which is not reported, and the number of readings until it is.
    in_reset: Option<(u16, usize)>,
    /// Changes until the event.
    event: Option<(usize, Event)>,
    /// Changes so far.
    changes: Vec<String>,
}

impl Machine {
    fn new(model: Model) -> Machine {
        Machine {
            model,
            present: true,
            mode: NicMode::Legacy,
            vfs: Vec::new(),
            netdevs: Vec::new(),
            of_vms: BTreeSet::new(),
            of_host: BTreeSet::new(),
            unreadable: None,
            most: 7,
            in_reset: None,
            event: None,
            changes: Vec::new(),
        }
    }

    /// State that must come back. The address of an interface is its driver's choice.
    fn state(&self) -> (NicMode, Vec<VfState>, Vec<Option<VfNetdev>>) {
        let netdev = |netdev: &Option<(VfNetdev, Mac)>| netdev.as_ref().map(|it| it.0.clone());
        (self.mode, self.vfs.clone(), self.netdevs.iter().map(netdev).collect())
    }

    fn driver(&self) -> &'static str {
        if self.model == Model::Igb { "igb" } else { "netdevsim" }
    }

    /// The interface that the driver of a VF makes: with the administrative address if there is
    /// one.
    fn make_netdev(&mut self, vf: usize) {
        let admin = self.vfs[vf].settings.iter().find_map(|setting| match setting {
            VfSetting::Mac(mac) => *mac,
            _ => None,
        });
        let address = admin.map_or(Mac([2, 0, 0, 0, 1, vf as u8]), |MacText(mac)| mac);
        let name = format!("eth{}", vf + 1);
        self.netdevs[vf] = Some((netdev(None, &name, None), address));
    }

    fn make_vfs(&mut self, number: u16) {
        let settings = vec![
            VfSetting::Vlan(None),
            VfSetting::Mac(None),
            VfSetting::Rate { min_mbps: 0, max_mbps: 0 },
            VfSetting::SpoofCheck(true),
            VfSetting::Trust(false),
            VfSetting::LinkState(LinkState::Auto),
            VfSetting::Driver(Binding::own(own_driver(self.driver()))),
        ];
        let settings = || settings.clone();
        let vf = |index| VfState { index, address: None, settings: settings(), counters: None };
        self.vfs = (0..number).map(vf).collect();
        self.netdevs = vec![None; usize::from(number)];
        (0..usize::from(number)).for_each(|vf| self.make_netdev(vf));
    }

    fn set(&mut self, vf: u16, setting: &VfSetting) -> Result<(), Errno> {
        if self.model == Model::Igb {
            match setting {
                VfSetting::Vlan(Some(Vlan { proto: VlanProto::Dot1ad, .. })) => {
                    return Err(Errno::PROTONOSUPPORT);
                }
                VfSetting::Rate { min_mbps: 1.., .. } => return Err(Errno::INVAL),
                VfSetting::LinkState(_) | VfSetting::QueryRss(_) => return Err(Errno::OPNOTSUPP),
                _ => {}
            }
        }
        let mut setting = setting.clone();
        if let (Model::Steps, VfSetting::Rate { max_mbps, .. }) = (self.model, &mut setting) {
            *max_mbps -= *max_mbps % 50;
        }
        let own = &mut self.vfs.get_mut(usize::from(vf)).ok_or(Errno::INVAL)?.settings;
        let place = own.iter_mut().find(|own| own.is_same_setting(&setting));
        let place = place.ok_or(Errno::OPNOTSUPP)?;
        let is_bound = matches!(&setting, VfSetting::Driver(_)) && *place != setting;
        if is_bound && self.of_vms.contains(&vf) {
            return Err(Errno::BUSY);
        }
        *place = setting.clone();
        if is_bound {
            let vf = usize::from(vf);
            self.netdevs[vf] = None;
            if setting == VfSetting::Driver(Binding::own(own_driver(self.driver()))) {
                self.make_netdev(vf);
            }
        }
        Ok(())
    }

    /// Interface of a VF, if it is in this namespace.
    fn netdev(&self, vf: u16, netns: Option<&str>) -> Option<&(VfNetdev, Mac)> {
        let netdev = self.netdevs.get(usize::from(vf))?.as_ref();
        netdev.filter(|(netdev, _)| netdev.netns.as_deref() == netns)
    }
}

#[derive(Clone, Debug)]
struct FakeCard(Rc<RefCell<Machine>>);

impl FakeCard {
    /// Makes a change, unless something happens to it.
    fn change<T>(
        &self,
        name: String,
        change: impl FnOnce(&mut Machine) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut machine = self.0.borrow_mut();
        let event = match &mut machine.event {
            Some((0, event)) => Some(*event),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if event.is_some() {
            machine.event = None;
        }
        if event == Some(Event::Fail) {
            return Err(Errno::IO);
        }
        let result =
            if event == Some(Event::KillBefore) { Err(Errno::IO) } else { change(&mut machine) };
        if !name.is_empty() {
            machine.changes.push(name);
        }
        drop(machine);
        if matches!(event, Some(Event::KillBefore | Event::KillAfter)) {
            resume_unwind(Box::new(Killed));
        }
        result
    }
}

impl Card for FakeCard {
    fn address(&self) -> PciAddress {
        "0000:01:00.0".parse().unwrap()
    }

    fn is_present(&self) -> bool {
        self.0.borrow().present
    }

    fn interface(&self) -> Option<String> {
        self.0.borrow().present.then(|| "eth0".to_owned())
    }

    fn driver(&self) -> Option<String> {
        Some(self.0.borrow().driver().to_owned())
    }

    fn total_vfs(&self) -> u16 {
        7
    }

    fn num_vfs(&self) -> u16 {
        self.0.borrow().vfs.len() as u16
    }

    fn mode(&self) -> Option<NicMode> {
        let machine = self.0.borrow();
        (machine.model != Model::Igb).then_some(machine.mode)
    }

    fn vfs(&self) -> Result<Vec<VfState>, KernelError> {
        let mut machine = self.0.borrow_mut();
        if let Some(errno) = machine.unreadable {
            return Err(errno.into());
        }
        let mut vfs = machine.vfs.clone();
        match &mut machine.in_reset {
            Some((_, 0)) | None => {}
            Some((vf, readings)) => {
                *readings -= 1;
                vfs.retain(|other| other.index != *vf);
            }
        }
        Ok(vfs)
    }

    fn owners(&self) -> Result<Vec<VfOwner>, KernelError> {
        let machine = self.0.borrow();
        let is_out = |netdev: &Option<(VfNetdev, Mac)>| {
            netdev.as_ref().is_some_and(|(netdev, _)| netdev.netns.is_some())
        };
        let out = (0..).zip(&machine.netdevs).filter(|(_, netdev)| is_out(netdev));
        let out = out.map(|(vf, _)| VfOwner { vf, by: OwnedBy::Namespace });
        let open = machine.of_vms.iter().map(|vf| VfOwner { vf: *vf, by: OwnedBy::Vfio });
        Ok(out.chain(open).collect())
    }

    fn set_num_vfs(&mut self, num_vfs: u16) -> Result<(), NumVfsError> {
        let owners = self.owners().unwrap();
        if !owners.is_empty() && num_vfs == 0 {
            return Err(NumVfsError::InUse(owners));
        }
        Ok(self.change(format!("num_vfs {num_vfs}"), |machine| {
            if num_vfs > 0 && !machine.vfs.is_empty() {
                return Err(Errno::BUSY);
            }
            if num_vfs == 0 {
                machine.mode = NicMode::Legacy;
            }
            machine.make_vfs(num_vfs.min(machine.most));
            Ok(())
        })?)
    }

    fn set_mode(&mut self, mode: NicMode) -> Result<(), KernelError> {
        Ok(self.change(format!("mode {}", mode_name(mode)), |machine| {
            if machine.model == Model::Igb {
                return Err(Errno::OPNOTSUPP);
            }
            machine.mode = mode;
            Ok(())
        })?)
    }

    fn set_vf(&mut self, vf: u16, setting: &VfSetting) -> Result<(), KernelError> {
        let fields: Vec<String> =
            setting.fields().into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        let name = format!("VF {vf} {}", fields.join(" "));
        Ok(self.change(name, |machine| machine.set(vf, setting))?)
    }

    fn netdev(&self, vf: u16) -> Option<HostNetdev> {
        let (netdev, address) = self.0.borrow().netdev(vf, None)?.clone();
        Some(HostNetdev { netdev, address, is_random: false })
    }

    fn host_use(&self, vf: u16) -> Option<String> {
        let uses = self.0.borrow().of_host.contains(&vf);
        uses.then(|| format!("its interface eth{} has IP addresses on the host", vf + 1))
    }

    fn is_netdev_in(&self, vf: u16, netns: &str) -> bool {
        self.0.borrow().netdev(vf, Some(netns)).is_some()
    }

    fn place(&mut self, vf: u16, to: &VfNetdev) -> Result<Vec<String>, NetdevError> {
        // First it moves, and then it is set.
        self.change(String::new(), |machine| {
            machine.netdev(vf, None).ok_or(Errno::NODEV)?;
            let moved = machine.netdevs[usize::from(vf)].as_mut();
            moved.ok_or(Errno::NODEV)?.0.netns.clone_from(&to.netns);
            Ok(())
        })?;
        let netns = to.netns.as_deref().unwrap_or("here");
        Ok(self.change(format!("VF {vf} is {} {netns}", to.name), |machine| {
            let (_, address) = *machine.netdev(vf, to.netns.as_deref()).ok_or(Errno::NODEV)?;
            let address = to.mac.map_or(address, |MacText(mac)| mac);
            machine.netdevs[usize::from(vf)] = Some((to.clone(), address));
            Ok(Vec::new())
        })?)
    }

    fn unbind(&mut self, vf: u16) -> Result<(), KernelError> {
        self.set_vf(vf, &VfSetting::Driver(Binding::default()))
    }

    fn bind(&mut self, vf: u16) -> Result<(), KernelError> {
        let own = own_driver(self.0.borrow().driver());
        self.set_vf(vf, &VfSetting::Driver(Binding::own(own)))
    }
}

fn netdev(netns: Option<&str>, name: &str, mac: Option<MacText>) -> VfNetdev {
    VfNetdev {
        netns: netns.map(str::to_owned),
        name: name.to_owned(),
        mac,
        mtu: 1500,
        up: false,
        addresses: Vec::new(),
        gateways: Vec::new(),
    }
}

type FakeNic = ManagedNic<FakeCard>;

/// A process that manages the NIC.
fn process(machine: &Rc<RefCell<Machine>>, records: &Path, boot_id: &str) -> FakeNic {
    let card = FakeCard(machine.clone());
    let record = Record::open(records, card.address(), boot_id).unwrap();
    ManagedNic::new(card, record)
}

fn machine(model: Model, vfs: u16) -> Rc<RefCell<Machine>> {
    let mut machine = Machine::new(model);
    machine.make_vfs(vfs);
    Rc::new(RefCell::new(machine))
}

fn mac(last: u8) -> VfSetting {
    VfSetting::Mac(Some(MacText(wire::Mac([2, 0, 0, 0, 0, last]))))
}

fn vlan(id: u16) -> VfSetting {
    VfSetting::Vlan(Some(Vlan { id, qos: 0, proto: VlanProto::Dot1q }))
}

fn wanted(num_vfs: u16, vfs: &[(u16, &[VfSetting])]) -> WantedNic {
    let vfs = vfs.iter().map(|(vf, settings)| (*vf, settings.to_vec())).collect();
    WantedNic { num_vfs, vfs, ..WantedNic::default() }
}

fn settings() -> impl Strategy<Value = Vec<VfSetting>> {
    let vlan = (1u16..4, any::<bool>()).prop_map(|(id, tagged)| {
        let proto = if tagged { VlanProto::Dot1q } else { VlanProto::Dot1ad };
        VfSetting::Vlan((id > 1).then_some(Vlan { id, qos: 0, proto }))
    });
    let rate = (0u32..2, 0u32..4)
        .prop_map(|(min, max)| VfSetting::Rate { min_mbps: min * 10, max_mbps: max * 60 });
    let driver = prop_oneof![
        Just(Binding::own("igbvf")),
        Just(Binding::vfio_pci()),
        Just(Binding::default())
    ];
    let link_state = prop_oneof![3 => Just(LinkState::Auto), 1 => Just(LinkState::Disable)];
    let all = (
        proptest::option::of(vlan),
        proptest::option::of((0u8..3).prop_map(mac)),
        proptest::option::of(rate),
        proptest::option::of(any::<bool>().prop_map(VfSetting::SpoofCheck)),
        proptest::option::of(any::<bool>().prop_map(VfSetting::Trust)),
        proptest::option::of(link_state.prop_map(VfSetting::LinkState)),
        proptest::option::of(driver.prop_map(VfSetting::Driver)),
    );
    all.prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g].into_iter().flatten().collect())
}

fn any_wanted() -> impl Strategy<Value = WantedNic> {
    let vfs = proptest::collection::btree_map(0u16..4, settings(), 0..4);
    let mode = prop_oneof![3 => Just(NicMode::Legacy), 1 => Just(NicMode::Switchdev)];
    let netdevs = proptest::collection::btree_map(0u16..4, (0u8..3, any::<bool>()), 0..3);
    (0u16..4, mode, vfs, netdevs).prop_map(|(num_vfs, mode, mut vfs, given)| {
        let mut netdevs = BTreeMap::new();
        // A document has only this driver, and not for the interface of a guest.
        let vfio = VfSetting::Driver(Binding::vfio_pci());
        for (vf, settings) in &mut vfs {
            let may_be = |it: &VfSetting| *it == vfio && !given.contains_key(vf);
            settings.retain(|it| !matches!(it, VfSetting::Driver(_)) || may_be(it));
        }
        for (vf, (last, one)) in given {
            // Their settings are an adapter's: with an address.
            let address = MacText(Mac([2, 0, 0, 0, 0, last]));
            let settings = vfs.entry(vf).or_default();
            settings.retain(|it| !matches!(it, VfSetting::Mac(_)));
            settings.push(VfSetting::Mac(Some(address)));
            let netns = if one { "one" } else { "other" };
            netdevs.insert(vf, netdev(Some(netns), "net1", Some(address)));
        }
        WantedNic { num_vfs, mode, vfs, netdevs }
    })
}

/// A machine in any state that its driver takes.
fn any_machine() -> impl Strategy<Value = Machine> {
    let model = prop_oneof![Just(Model::Igb), Just(Model::Netdevsim), Just(Model::Steps)];
    (model, 0u16..4, proptest::collection::vec(settings(), 3)).prop_map(|(model, number, all)| {
        let mut machine = Machine::new(model);
        machine.make_vfs(number);
        for (vf, settings) in all.iter().enumerate().take(usize::from(number)) {
            for setting in settings {
                let _ = machine.set(vf as u16, setting);
            }
            if let Some((netdev, _)) = &mut machine.netdevs[vf] {
                netdev.mtu -= 100;
                netdev.name.replace_range(..3, "lan");
            }
        }
        machine
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_change_that_fails_at_any_step_changes_nothing(
        start in any_machine(), first in any_wanted(), second in any_wanted(),
    ) {
        let records = tempfile::tempdir().unwrap();
        let start_state = start.state();
        let machine = Rc::new(RefCell::new(start));
        let mut nic = process(&machine, records.path(), "boot");
        let _ = nic.apply(&first);
        let before = machine.borrow().clone();
        let record = nic.record.original().cloned();
        for step in 0.. {
            machine.borrow_mut().event = Some((step, Event::Fail));
            let result = nic.apply(&second);
            let is_over = machine.borrow_mut().event.take().is_some();
            if is_over && result.is_ok() {
                break;
            }
            if let Err(SriovError::NotUndone { .. }) = result {
                // The driver rejects it, and the failure was that of undoing.
                nic.release().unwrap();
                prop_assert_eq!(machine.borrow().state(), start_state);
                break;
            }
            prop_assert!(result.is_err());
            prop_assert_eq!(machine.borrow().state(), before.state(), "step {}", step);
            prop_assert_eq!(nic.record.original(), record.as_ref());
            if is_over {
                break; // the driver rejects it
            }
        }
    }

    #[test]
    fn a_process_that_is_killed_at_any_step_leaves_the_way_back(
        start in any_machine(), first in any_wanted(), second in any_wanted(), last in any_wanted(),
        after in any::<bool>(),
    ) {
        let event = if after { Event::KillAfter } else { Event::KillBefore };
        for step in 0.. {
            let records = tempfile::tempdir().unwrap();
            let machine = Rc::new(RefCell::new(start.clone()));
            machine.borrow_mut().event = Some((step, event));
            let killed = catch_unwind(AssertUnwindSafe(|| {
                let mut nic = process(&machine, records.path(), "boot");
                let _ = nic.apply(&first);
                let _ = nic.apply(&second);
                let _ = nic.release();
            }));
            prop_assert_eq!(machine.borrow_mut().event.take().is_none(), killed.is_err());
            let mut nic = process(&machine, records.path(), "boot");
            if step % 2 == 0 {
                let _ = nic.apply(&last);
            }
            nic.release().unwrap();
            prop_assert_eq!(machine.borrow().state(), start.state(), "step {}", step);
            prop_assert_eq!(std::fs::read_dir(records.path()).unwrap().count(), 0);
            if killed.is_ok() {
                break;
            }
        }
    }

    #[test]
    fn an_applied_state_is_in_force_and_is_applied_once(start in any_machine(), all in any_wanted()) {
        let records = tempfile::tempdir().unwrap();
        let machine = Rc::new(RefCell::new(start));
        let mut nic = process(&machine, records.path(), "boot");
        let Ok(differences) = nic.apply(&all) else { return Ok(()) };
        let is_rate = |it: &Difference| it.setting == "max_tx_mbps" && it.accepted;
        prop_assert!(differences.iter().all(is_rate), "{:?}", differences);
        machine.borrow_mut().changes.clear();
        prop_assert_eq!(nic.apply(&all).unwrap(), differences.clone());
        prop_assert_eq!(machine.borrow().changes.len(), differences.len());
    }
}

#[test]
fn only_what_differs_is_set_one_setting_a_request_in_the_order_of_the_kernels_tools() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 0));
    let mut nic = process(&machine, records.path(), "boot");
    let rate = VfSetting::Rate { min_mbps: 0, max_mbps: 100 };
    let auto = VfSetting::LinkState(LinkState::Auto);
    let settings =
        [vlan(5), mac(1), rate, VfSetting::SpoofCheck(false), VfSetting::Trust(true), auto];
    assert_eq!(nic.apply(&wanted(2, &[(1, &settings)])), Ok(vec![]));
    let all = [
        "num_vfs 2",
        "VF 1 vlan 5",
        "VF 1 mac 02:00:00:00:00:01",
        "VF 1 min_tx_mbps 0 max_tx_mbps 100",
        "VF 1 spoof_check off",
        "VF 1 trust on",
    ];
    assert_eq!(machine.borrow().changes, all);
    machine.borrow_mut().changes.clear();
    // Settings that are wanted no more go back, by another process too.
    let mut nic = process(&machine, records.path(), "boot");
    assert_eq!(nic.apply(&wanted(2, &[(1, &[vlan(6)])])), Ok(vec![]));
    let all = [
        "VF 1 vlan 6",
        "VF 1 mac none",
        "VF 1 min_tx_mbps 0 max_tx_mbps 0",
        "VF 1 spoof_check on",
        "VF 1 trust off",
        // Its driver chooses another address.
        "VF 1 driver none",
        "VF 1 driver igbvf",
        "VF 1 is eth2 here",
    ];
    assert_eq!(machine.borrow().changes, all);
    machine.borrow_mut().changes.clear();
    assert_eq!(nic.release(), Ok(()));
    assert_eq!(machine.borrow().changes, ["num_vfs 0"]);
}

#[test]
fn vfs_that_are_made_again_are_as_new_and_those_of_before_as_they_were() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Netdevsim, 1));
    machine.borrow_mut().set(0, &vlan(7)).unwrap();
    let mut nic = process(&machine, records.path(), "boot");
    nic.apply(&wanted(2, &[(0, &[mac(1)]), (1, &[mac(2)])])).unwrap();
    nic.apply(&wanted(3, &[])).unwrap();
    let values = |like: &VfSetting| {
        let machine = machine.borrow();
        machine.vfs.iter().map(|vf| vf.get(like).cloned().unwrap()).collect::<Vec<_>>()
    };
    let none = VfSetting::Vlan(None);
    assert_eq!(values(&none), [vlan(7), none.clone(), none.clone()]);
    assert!(values(&mac(1)).iter().all(|mac| *mac == VfSetting::Mac(None)));
}

#[test]
fn a_refusal_names_place_setting_value_error_and_remedy() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 2));
    let mut nic = process(&machine, records.path(), "boot");
    let rate = VfSetting::Rate { min_mbps: 10, max_mbps: 0 };
    let error = nic.apply(&wanted(2, &[(1, &[mac(1), rate])])).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("0000:01:00.0, VF 1: min_tx_mbps = 10, max_tx_mbps = 0 is refused: "));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(source, "Invalid argument (os error 22)");
    let all = ["VF 1 mac 02:00:00:00:00:01", "VF 1 min_tx_mbps 10 max_tx_mbps 0", "VF 1 mac none"];
    assert_eq!(machine.borrow().changes[..3], all);
    let error = nic.apply(&wanted(8, &[])).unwrap_err();
    assert!(error.to_string().contains("num_vfs = 8 is more than its 7"), "{error}");
    nic.apply(&wanted(2, &[(6, &[mac(1)])])).unwrap(); // for later
    let error = nic.apply(&wanted(2, &[(7, &[mac(1)])])).unwrap_err();
    assert!(error.to_string().contains("has no VF 7: it can have 7"), "{error}");
}

#[test]
fn a_release_restores_all_that_it_can_and_keeps_its_record() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Netdevsim, 2));
    let mut nic = process(&machine, records.path(), "boot");
    let settings = [vlan(5), mac(1), VfSetting::Trust(true)];
    nic.apply(&wanted(2, &[(0, &settings), (1, &settings)])).unwrap();
    machine.borrow_mut().event = Some((1, Event::Fail));
    let error = nic.release().unwrap_err().to_string();
    assert!(error.starts_with("0000:01:00.0, VF 0: mac = none is refused: "), "{error}");
    let macs = || {
        let machine = machine.borrow();
        let mac = |vf: &VfState| vf.get(&mac(1)).cloned();
        machine.vfs.iter().map(mac).collect::<Vec<_>>()
    };
    assert_eq!(macs(), [Some(mac(1)), Some(VfSetting::Mac(None))]);
    assert_eq!(nic.release(), Ok(()));
    assert_eq!(macs(), [Some(VfSetting::Mac(None)), Some(VfSetting::Mac(None))]);
}

#[test]
fn vfs_in_use_are_not_removed() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 2));
    let mut nic = process(&machine, records.path(), "boot");
    machine.borrow_mut().netdevs[0].as_mut().unwrap().0.netns = Some("theirs".to_owned());
    let error = nic.apply(&wanted(0, &[])).unwrap_err().to_string();
    assert!(error.contains("VF 0 (its interface is in another network namespace)"), "{error}");
    assert!(machine.borrow().changes.is_empty());
    let mut keeps = wanted(2, &[(1, &[mac(1)])]);
    let address = MacText(Mac([2, 0, 0, 0, 0, 1]));
    keeps.netdevs.insert(1, netdev(Some("web"), "net1", Some(address)));
    assert_eq!(nic.apply(&keeps), Ok(vec![]), "without removing any");
    machine.borrow_mut().changes.clear();
    keeps.num_vfs = 3;
    let error = nic.apply(&keeps).unwrap_err().to_string();
    assert!(error.contains("VF 1 (an adapter has it)"), "{error}");
    assert!(machine.borrow().changes.is_empty());
}

#[test]
fn the_interface_of_a_vf_goes_to_a_guest_and_comes_back_whatever_that_did() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 2));
    let before = machine.borrow().state();
    let mut nic = process(&machine, records.path(), "boot");
    let address = MacText(Mac([2, 0, 0, 0, 0, 1]));
    let mut all = wanted(2, &[(1, &[vlan(5), mac(1)])]);
    all.netdevs.insert(1, netdev(Some("web"), "net1", Some(address)));
    let changes = |of: &Rc<RefCell<Machine>>| std::mem::take(&mut of.borrow_mut().changes);
    nic.apply(&all).unwrap();
    // The driver takes the address when it is bound.
    let (vlan, mac) = ("VF 1 vlan 5", "VF 1 mac 02:00:00:00:00:01");
    let (unbound, bound) = ("VF 1 driver none", "VF 1 driver igbvf");
    assert_eq!(changes(&machine), [vlan, mac, unbound, bound, "VF 1 is net1 web"]);
    // Another process leaves it where it is, whatever its name there.
    machine.borrow_mut().netdevs[1].as_mut().unwrap().0.name = "mine".to_owned();
    let mut nic = process(&machine, records.path(), "boot");
    nic.apply(&all).unwrap();
    assert!(nic.is_out(1) && changes(&machine).is_empty());
    // An operator has given the VF to another driver.
    machine.borrow_mut().set(1, &VfSetting::Driver(Binding::vfio_pci())).unwrap();
    let drift = nic.differences(&all, &nic.observe());
    let [driver] = &drift[..] else { panic!("{drift:?}") };
    assert_eq!(
        (&*driver.setting, &*driver.wanted, &*driver.actual),
        ("driver", "igbvf", "vfio-pci")
    );
    machine.borrow_mut().of_vms.insert(1);
    let error = nic.apply(&all).unwrap_err().to_string();
    assert!(error.contains("driver = igbvf is refused: a VM has the VF"), "{error}");
    machine.borrow_mut().of_vms.clear();
    nic.apply(&all).unwrap();
    assert!(nic.is_out(1) && nic.differences(&all, &nic.observe()).is_empty());
    changes(&machine);
    // The namespace has ended, and the kernel has returned the interface.
    machine.borrow_mut().netdevs[1].as_mut().unwrap().0.netns = None;
    assert!(!nic.is_out(1));
    nic.apply(&all).unwrap();
    assert_eq!(changes(&machine), [unbound, bound, "VF 1 is net1 web"]);
    // It goes to another guest, and the address changes.
    let other = MacText(Mac([2, 0, 0, 0, 0, 2]));
    all.netdevs.insert(1, netdev(Some("db"), "net1", Some(other)));
    all.vfs.get_mut(&1).unwrap()[1] = super::VfSetting::Mac(Some(other));
    nic.apply(&all).unwrap();
    assert_eq!(machine.borrow().netdev(1, Some("db")).unwrap().1, other.0);
    changes(&machine);
    nic.apply(&wanted(2, &[])).unwrap();
    let back = ["VF 1 vlan none", "VF 1 mac none", unbound, bound, "VF 1 is eth2 here"];
    assert_eq!(changes(&machine), back);
    assert_eq!(machine.borrow().state(), before);
}

#[test]
fn an_interface_that_a_killed_process_has_set_by_half_is_set_again() {
    let mut all = wanted(2, &[]);
    all.netdevs.insert(1, netdev(Some("web"), "net1", None));
    let mut was_half_set = false;
    for step in 0.. {
        let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 2));
        machine.borrow_mut().event = Some((step, Event::KillAfter));
        let killed = catch_unwind(AssertUnwindSafe(|| {
            let _ = process(&machine, records.path(), "boot").apply(&all);
        }));
        let there = machine.borrow().netdev(1, Some("web")).cloned();
        was_half_set |= there.is_some_and(|(netdev, _)| netdev.name != "net1");
        let mut nic = process(&machine, records.path(), "boot");
        nic.apply(&all).unwrap();
        assert_eq!(machine.borrow().netdev(1, Some("web")).unwrap().0, all.netdevs[&1]);
        assert!(nic.record.original().unwrap().placing.is_empty());
        if killed.is_ok() {
            break;
        }
        machine.borrow_mut().event = None;
    }
    assert!(was_half_set);
}

#[test]
fn a_vf_that_an_operator_has_bound_for_a_vm_stays_with_it() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 2));
    let vfio = VfSetting::Driver(Binding::vfio_pci());
    let mut nic = process(&machine, records.path(), "boot");
    let given = || {
        let mut given = wanted(2, &[(0, &[mac(1)])]);
        let address = MacText(Mac([2, 0, 0, 0, 0, 1]));
        given.netdevs.insert(0, netdev(Some("web"), "net1", Some(address)));
        given
    };
    // The VF was bound again: for another address, by a container, or with others.
    for before in [wanted(2, &[(0, &[mac(1)])]), given(), wanted(3, &[])] {
        nic.apply(&before).unwrap();
        nic.apply(&wanted(2, &[])).unwrap();
        machine.borrow_mut().set(0, &vfio).unwrap();
        machine.borrow_mut().set(0, &mac(7)).unwrap(); // as libvirt does
        machine.borrow_mut().of_vms.insert(0);
        machine.borrow_mut().changes.clear();
        nic.apply(&wanted(2, &[(1, &[vlan(5)])])).unwrap();
        nic.apply(&wanted(2, &[])).unwrap();
        assert_eq!(machine.borrow().changes, ["VF 1 vlan 5", "VF 1 vlan none"]);
        assert_eq!(nic.vfs_of_vms(), Ok([0].into()));
        machine.borrow_mut().of_vms.clear();
        machine.borrow_mut().make_vfs(2);
    }
    // A container's VF, when the container's adapter is deleted.
    nic.apply(&given()).unwrap();
    machine.borrow_mut().set(0, &vfio).unwrap();
    machine.borrow_mut().of_vms.insert(0);
    nic.apply(&wanted(2, &[])).unwrap();
    assert_eq!(nic.release(), Ok(()));
    assert_eq!(machine.borrow().vfs[0].get(&vfio), Some(&vfio));
}

#[test]
fn a_vf_is_bound_for_a_vm_and_its_interface_comes_back_as_it_was() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 2));
    machine.borrow_mut().netdevs[1].as_mut().unwrap().0.name = "lan1".to_owned();
    let before = machine.borrow().state();
    let vfio = VfSetting::Driver(Binding::vfio_pci());
    let all = wanted(2, &[(1, std::slice::from_ref(&vfio))]);
    machine.borrow_mut().of_host.insert(1);
    let error = process(&machine, records.path(), "boot").apply(&all).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("its interface eth2 has IP addresses on the host"), "{source}");
    assert_eq!(machine.borrow().state(), before);
    machine.borrow_mut().of_host.clear();
    // Without a driver it has no interface.
    process(&machine, records.path(), "boot").apply(&all).unwrap();
    let is_bound = || machine.borrow().vfs[1].get(&vfio) == Some(&vfio);
    assert!(is_bound());
    // Another process leaves it bound, and a VM keeps it.
    let mut nic = process(&machine, records.path(), "boot");
    nic.apply(&all).unwrap();
    assert!(is_bound() && nic.differences(&all, &nic.observe()).is_empty());
    machine.borrow_mut().of_vms.insert(1);
    let error = nic.apply(&wanted(2, &[])).unwrap_err().to_string();
    assert!(error.contains("driver = igbvf is refused: a VM has the VF") && is_bound(), "{error}");
    assert!(nic.release().is_err() && is_bound());
    machine.borrow_mut().of_vms.clear();
    let mut nic = process(&machine, records.path(), "boot");
    nic.apply(&wanted(2, &[])).unwrap();
    assert_eq!(machine.borrow().state(), before);
    // One that an operator has bound stays so.
    machine.borrow_mut().set(1, &vfio).unwrap();
    nic.apply(&all).unwrap();
    nic.release().unwrap();
    assert!(is_bound());
}

#[test]
fn a_vf_that_a_vm_or_the_host_uses_goes_to_no_container() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 1));
    let mut nic = process(&machine, records.path(), "boot");
    let mut all = wanted(1, &[(0, &[vlan(5), mac(1)])]);
    let address = MacText(Mac([2, 0, 0, 0, 0, 1]));
    all.netdevs.insert(0, netdev(Some("web"), "net1", Some(address)));
    machine.borrow_mut().of_host.insert(0);
    let refusal = |nic: &mut FakeNic, all: &WantedNic| {
        let error = nic.apply(all).unwrap_err();
        std::error::Error::source(&error).unwrap().to_string()
    };
    let text = refusal(&mut nic, &all);
    assert_eq!(
        text,
        "its interface eth1 has IP addresses on the host: undo that, or name another VF"
    );
    machine.borrow_mut().of_host.clear();
    machine.borrow_mut().set(0, &VfSetting::Driver(Binding::vfio_pci())).unwrap();
    machine.borrow_mut().of_vms.insert(0);
    let text = refusal(&mut nic, &all);
    assert!(text.starts_with("a VM has the VF"), "{text}");
    assert!(machine.borrow().changes.is_empty(), "not even for a moment");
    machine.borrow_mut().of_vms.clear();
    nic.apply(&all).unwrap();
    // The interface is the container's from now on.
    machine.borrow_mut().of_host.insert(0);
    assert_eq!(nic.apply(&all), Ok(vec![]));
}

#[test]
fn vfs_that_cannot_be_read_are_not_taken_for_none() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Netdevsim, 1));
    machine.borrow_mut().set(0, &vlan(7)).unwrap();
    let before = machine.borrow().state();
    let mut nic = process(&machine, records.path(), "boot");
    machine.borrow_mut().unreadable = Some(Errno::NOBUFS);
    let error = nic.apply(&wanted(3, &[])).unwrap_err();
    assert!(matches!(error, SriovError::Refused { .. }), "{error}");
    assert!(machine.borrow().changes.is_empty() && nic.record.original().is_none());
    machine.borrow_mut().unreadable = None;
    nic.apply(&wanted(3, &[])).unwrap();
    nic.release().unwrap();
    assert_eq!(machine.borrow().state(), before);
}

#[test]
fn a_vf_in_reset_is_waited_for_and_none_is_left_out() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Netdevsim, 2));
    let mut nic = process(&machine, records.path(), "boot");
    machine.borrow_mut().in_reset = Some((1, 3));
    let all = wanted(2, &[(0, &[vlan(5)]), (1, &[vlan(5)])]);
    assert_eq!(nic.apply(&all), Ok(vec![]));
    assert_eq!(machine.borrow().vfs[1].get(&vlan(0)), Some(&vlan(5)));
    machine.borrow_mut().in_reset = Some((1, usize::MAX));
    let error = nic.apply(&wanted(2, &[(1, &[vlan(6)])])).unwrap_err().to_string();
    assert!(error.contains("0000:01:00.0, VF 1: the driver does not report it"), "{error}");
    assert_eq!(machine.borrow().vfs[1].get(&vlan(0)), Some(&vlan(5)));
}

#[test]
fn the_interface_of_a_vf_that_others_have_is_left_to_them() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 1));
    let mut nic = process(&machine, records.path(), "boot");
    nic.apply(&wanted(1, &[(0, &[mac(1)])])).unwrap();
    nic.apply(&wanted(1, &[])).unwrap();
    nic.apply(&wanted(1, &[(0, &[mac(1)])])).unwrap();
    machine.borrow_mut().netdevs[0].as_mut().unwrap().0.netns = Some("theirs".to_owned());
    nic.apply(&wanted(1, &[])).unwrap();
    assert!(nic.is_out(0) && nic.card.is_netdev_in(0, "theirs"));
    let mut ours = wanted(1, &[(0, &[mac(1)])]);
    let address = MacText(Mac([2, 0, 0, 0, 0, 1]));
    ours.netdevs.insert(0, netdev(Some("web"), "net1", Some(address)));
    let error = nic.apply(&ours).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("another user has it"), "{error}: {source}");
    assert!(nic.card.is_netdev_in(0, "theirs"));
}

#[test]
fn vfs_that_a_driver_does_not_enable_are_told() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Netdevsim, 0));
    machine.borrow_mut().most = 3;
    let mut nic = process(&machine, records.path(), "boot");
    let error = nic.apply(&wanted(4, &[])).unwrap_err().to_string();
    assert!(error.contains("num_vfs = 4 is accepted, but 3 are enabled"), "{error}");
    assert!(machine.borrow().vfs.is_empty());
}

#[test]
fn a_record_of_another_boot_is_void() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Igb, 0));
    process(&machine, records.path(), "boot 1").apply(&wanted(2, &[])).unwrap();
    machine.borrow_mut().changes.clear();
    process(&machine, records.path(), "boot 2").release().unwrap();
    assert!(machine.borrow().changes.is_empty());
    process(&machine, records.path(), "boot 1").release().unwrap();
    assert!(machine.borrow().changes.is_empty(), "it is removed");
}

#[test]
fn changes_of_others_are_differences_and_are_put_right_by_the_next_apply() {
    let (records, machine) = (tempfile::tempdir().unwrap(), machine(Model::Steps, 0));
    let mut nic = process(&machine, records.path(), "boot");
    let rate = VfSetting::Rate { min_mbps: 0, max_mbps: 120 };
    let wanted = wanted(2, &[(0, &[mac(1), rate])]);
    let accepted = Difference {
        vf: Some(0),
        setting: "max_tx_mbps".into(),
        wanted: "120".into(),
        actual: "100".into(),
        accepted: true,
    };
    assert_eq!(nic.apply(&wanted), Ok(vec![accepted.clone()]));
    machine.borrow_mut().set(0, &mac(9)).unwrap();
    let drift = Difference {
        vf: Some(0),
        setting: "mac".into(),
        wanted: "02:00:00:00:00:01".into(),
        actual: "02:00:00:00:00:09".into(),
        accepted: false,
    };
    assert_eq!(nic.differences(&wanted, &nic.observe()), [drift, accepted.clone()]);
    assert_eq!(nic.apply(&wanted), Ok(vec![accepted]));
    // The driver is loaded again.
    machine.borrow_mut().make_vfs(0);
    let lost = nic.differences(&wanted, &nic.observe());
    assert_eq!((lost.len(), &*lost[0].setting, &*lost[0].actual), (1, "num_vfs", "0"));
    assert!(nic.apply(&wanted).is_ok());
    assert_eq!(machine.borrow().vfs.len(), 2);
    // The card is taken out.
    machine.borrow_mut().present = false;
    assert!(!nic.observe().present);
    assert_eq!(nic.apply(&wanted), Err(SriovError::Vanished(nic.card.address())));
    assert_eq!(nic.release(), Ok(()), "there is nothing to restore");
}
