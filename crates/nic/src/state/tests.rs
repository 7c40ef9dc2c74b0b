//! Changes, one kind after the other, and any sequence of them.

use proptest::prelude::*;
use wire::Vid;

use super::*;
use crate::tests::model::Model;
use crate::{Action, Filter, Flows, LinkState, Mode, PortVlan, Verdicts};

const PF_MAC: Mac = Mac([0x10, 0x20, 0x30, 0xff, 0xff, 0xfe]);
const VF0: PortId = PortId::vf(0);
const VF1: PortId = PortId::vf(1);

fn ideal() -> NicState {
    NicState::new(Profile::named("ideal").unwrap(), 4, PF_MAC).unwrap()
}

fn with_vfs() -> NicState {
    let mut state = ideal();
    state.apply(&Change::NumVfs(4)).unwrap();
    state
}

fn owner(name: &str) -> Owner {
    Owner(name.into())
}

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 7, n])
}

/// Applies what must be refused; says how, after seeing that nothing changed.
#[track_caller]
fn refused(state: &mut NicState, change: Change) -> (Errno, String) {
    let before = state.clone();
    let refused = state.apply(&change).unwrap_err();
    assert_eq!(state.config, before.config);
    assert_eq!((state.num_vfs, &state.owners), (before.num_vfs, &before.owners));
    assert_eq!(state.table.number, before.table.number);
    (refused.errno, refused.to_string())
}

fn share(state: &NicState, port: PortId) -> (u32, u32) {
    let share = state.config().function(port).unwrap().share;
    (share.min_mbit, share.max_mbit)
}

#[test]
fn a_new_nic_has_a_pf_and_no_vfs() {
    let state = ideal();
    assert_eq!((state.num_vfs(), state.total_vfs(), state.profile().name), (0, 4, "ideal"));
    assert_eq!(state.config().functions().map(|(port, _)| port).collect::<Vec<_>>(), [PortId::PF]);
    assert!(state.table().has(PortId::PF) && !state.table().has(VF0));
    let refused = NicState::new(Profile::named("ideal").unwrap(), 4, Mac::BROADCAST).unwrap_err();
    assert_eq!(refused.errno, Errno::Einval);
}

#[test]
fn vfs_go_through_zero() {
    let mut state = ideal();
    state.apply(&Change::NumVfs(2)).unwrap();
    assert!(state.table().has(VF1) && !state.table().has(PortId::vf(2)));
    state.apply(&Change::NumVfs(2)).unwrap();
    assert_eq!(
        refused(&mut state, Change::NumVfs(3)),
        (Errno::Ebusy, "num_vfs: 3 is refused (EBUSY); allowed is 0, or 2 as it is".into())
    );
    assert_eq!(refused(&mut state, Change::NumVfs(1)).0, Errno::Ebusy);
    for vfs in [5, 256, u16::MAX] {
        assert_eq!(refused(&mut state, Change::NumVfs(vfs)).0, Errno::Erange);
    }
    state.apply(&Change::NumVfs(0)).unwrap();
    assert!(!state.table().has(VF0));
    state.apply(&Change::NumVfs(4)).unwrap();
    assert_eq!(state.num_vfs(), 4);
}

#[test]
fn macs_of_vfs_are_counted_up_and_their_own_only() {
    let state = with_vfs();
    let macs: Vec<_> = state.config().functions().map(|(_, f)| f.mac.to_string()).collect();
    assert_eq!(
        macs,
        [
            "10:20:30:ff:ff:fe",
            "12:20:30:ff:ff:ff",
            "12:20:30:00:00:00",
            "12:20:30:00:00:01",
            "12:20:30:00:00:02"
        ]
    );
}

#[test]
fn settings_are_forgotten_with_their_vf() {
    let mut state = with_vfs();
    state.apply(&Change::Set(VF0, Setting::SpoofCheck(false))).unwrap();
    state.apply(&Change::NumVfs(0)).unwrap();
    assert_eq!(
        refused(&mut state, Change::Set(VF0, Setting::SpoofCheck(false))).1,
        "function: VF 0 is refused (EINVAL); allowed is the PF; there are no VFs"
    );
    state.apply(&Change::NumVfs(4)).unwrap();
    assert_eq!(state.config(), with_vfs().config());
}

#[test]
fn a_mac_and_back() {
    let mut state = with_vfs();
    let made = state.config().function(VF0).unwrap().mac;
    state.apply(&Change::Set(VF0, Setting::Mac(mac(1)))).unwrap();
    assert_eq!(state.config().function(VF0).unwrap().mac, mac(1));
    let (errno, text) = refused(&mut state, Change::Set(VF1, Setting::Mac(mac(1))));
    assert_eq!(
        (errno, text.as_str()),
        (
            Errno::Eexist,
            "VF 1: mac: 02:00:00:00:07:01, which is mac of VF 0, is refused (EEXIST); \
             allowed is a MAC that is not yet in the untagged network"
        )
    );
    let group = Setting::Mac(Mac([1, 0, 0x5e, 0, 0, 1]));
    assert_eq!(refused(&mut state, Change::Set(VF1, group)).0, Errno::Einval);
    state.apply(&Change::Set(VF0, Setting::Mac(Mac::ZERO))).unwrap();
    assert_eq!(state.config().function(VF0).unwrap().mac, made);
}

#[test]
fn one_rate_does_not_clear_the_other() {
    let mut state = with_vfs();
    let rate = |min, max| Change::Set(VF0, Setting::TxRate { min, max });
    state.apply(&rate(None, Some(1000))).unwrap();
    state.apply(&rate(Some(200), None)).unwrap();
    assert_eq!(share(&state, VF0), (200, 1000));
    state.apply(&rate(None, Some(300))).unwrap();
    assert_eq!(share(&state, VF0), (200, 300));
    let (errno, text) = refused(&mut state, rate(None, Some(100)));
    assert_eq!(
        (errno, text.as_str()),
        (
            Errno::Einval,
            "VF 0: min_tx_rate: 200 Mbit/s, above max_tx_rate, is refused (EINVAL); \
             allowed is 0 to 100"
        )
    );
    state.apply(&rate(Some(0), None)).unwrap();
    state.apply(&rate(None, Some(0))).unwrap();
    assert_eq!(share(&state, VF0), (0, 0));
}

#[test]
fn minima_fit_through_the_uplink() {
    let mut state = NicState::new(Profile::named("cx6").unwrap(), 4, PF_MAC).unwrap();
    state.apply(&Change::NumVfs(4)).unwrap();
    let min = |port, min| Change::Set(port, Setting::TxRate { min: Some(min), max: None });
    state.apply(&min(VF0, 60_000)).unwrap();
    assert_eq!(
        refused(&mut state, min(VF1, 50_000)).1,
        "VF 1: min_tx_rate: 50000 Mbit/s is refused (EINVAL); \
         allowed is up to 40000 Mbit/s beside the other functions' minima"
    );
    // Together with what makes room for it, in any order.
    state.apply(&Change::All(vec![min(VF1, 50_000), min(VF0, 50_000)])).unwrap();
    assert_eq!((share(&state, VF0).0, share(&state, VF1).0), (50_000, 50_000));
}

#[test]
fn what_a_guest_asks_for_takes_trust_and_ends_with_it() {
    let mut state = with_vfs();
    let wishes = [Wish::Macs(vec![mac(9)]), Wish::Promiscuous(true), Wish::AllMulticast(true)];
    for wish in &wishes {
        assert_eq!(refused(&mut state, Change::Ask(VF0, wish.clone())).0, Errno::Eperm);
    }
    state.apply(&Change::Ask(VF0, Wish::Groups(Some(vec![])))).unwrap();
    state.apply(&Change::Set(VF0, Setting::Trust(true))).unwrap();
    for wish in wishes {
        state.apply(&Change::Ask(VF0, wish)).unwrap();
    }
    let function = state.config().function(VF0).unwrap();
    assert!(function.promiscuous && function.all_multicast && function.guest_macs == [mac(9)]);
    state.apply(&Change::Set(VF0, Setting::Trust(false))).unwrap();
    let function = state.config().function(VF0).unwrap();
    assert!(!function.promiscuous && !function.all_multicast && function.guest_macs.is_empty());
    // The host's own function needs no trust.
    state.apply(&Change::Ask(PortId::PF, Wish::Promiscuous(true))).unwrap();
}

#[test]
fn a_late_release_does_not_touch_the_new_owners_vf() {
    let mut state = with_vfs();
    let claim = |name| Change::Claim(0, owner(name));
    let release = |name| Change::Release(0, owner(name));
    let vlan = |vid| Setting::Vlan(Some(PortVlan::from(Vid::new(vid).unwrap())));
    state.apply(&claim("old pod")).unwrap();
    state.apply(&claim("old pod")).unwrap();
    state.apply(&Change::Set(VF0, vlan(7))).unwrap();
    assert_eq!(
        refused(&mut state, claim("new pod")).1,
        "VF 0: owner: new pod is refused (EBUSY); \
         allowed is old pod, who holds it, until it is released"
    );
    state.apply(&release("old pod")).unwrap();
    assert_eq!(state.config(), with_vfs().config());
    state.apply(&claim("new pod")).unwrap();
    state.apply(&Change::Set(VF0, vlan(8))).unwrap();
    assert_eq!(
        refused(&mut state, release("old pod")),
        (Errno::Eperm, "VF 0: owner: old pod is refused (EPERM); allowed is new pod".into())
    );
    assert_eq!(state.owner(0), Some(&owner("new pod")));
    state.apply(&release("new pod")).unwrap();
    assert_eq!(refused(&mut state, release("new pod")).0, Errno::Eperm);
    assert_eq!(refused(&mut state, claim("")).0, Errno::Einval);
    assert_eq!(refused(&mut state, Change::Claim(9, owner("x"))).0, Errno::Einval);
}

#[test]
fn vfs_that_are_held_do_not_vanish() {
    for (name, errno) in [
        ("ideal", Errno::Ebusy),
        ("82576", Errno::Eperm),
        ("x520", Errno::Eperm),
        ("xl710", Errno::Einval),
        ("cx6", Errno::Ebusy),
    ] {
        let mut state = NicState::new(Profile::named(name).unwrap(), 4, PF_MAC).unwrap();
        state.apply(&Change::NumVfs(4)).unwrap();
        state.apply(&Change::Claim(2, owner("pod"))).unwrap();
        let (said, text) = refused(&mut state, Change::NumVfs(0));
        assert_eq!(said, errno, "{name}");
        assert!(text.contains("while VF 2 is held by pod"), "{text}");
        state.apply(&Change::Release(2, owner("pod"))).unwrap();
        state.apply(&Change::NumVfs(0)).unwrap();
    }
}

#[test]
fn several_changes_are_one() {
    let mut state = with_vfs();
    let good = Change::Set(VF0, Setting::Link(LinkState::Enable));
    let bad = Change::Set(PortId::vf(200), Setting::Link(LinkState::Enable));
    refused(&mut state, Change::All(vec![Change::Claim(1, owner("a")), good.clone(), bad]));
    let renumber = Change::All(vec![Change::NumVfs(0), Change::NumVfs(2), good]);
    state.apply(&renumber).unwrap();
    assert_eq!(
        (state.num_vfs(), state.config().function(VF0).unwrap().link),
        (2, LinkState::Enable)
    );
}

#[test]
fn link_and_mode_reach_the_table() {
    let mut state = with_vfs();
    state.apply(&Change::Uplink { up: false }).unwrap();
    assert!(!state.table().is_up(VF0));
    state.apply(&Change::Set(VF0, Setting::Link(LinkState::Enable))).unwrap();
    assert!(state.table().is_up(VF0));
    state.apply(&Change::Uplink { up: true }).unwrap();
    state.apply(&Change::Mode(Mode::Isolated)).unwrap();
    assert_eq!(state.config().mode, Mode::Isolated);
}

#[test]
fn a_switch_takes_the_pf_and_gives_it_back() {
    let mut state = with_vfs();
    let pf = |state: &NicState| state.config().function(PortId::PF).cloned();
    state.apply(&Change::Set(PortId::PF, Setting::SpoofCheck(false))).unwrap();
    let filters = vec![Filter { mac: mac(1), vid: 7 }];
    state.apply(&Change::Switch(Some(filters.clone()))).unwrap();
    assert_eq!((pf(&state), state.config().switch.as_ref()), (None, Some(&filters)));
    assert!(state.table().has(PortId::PF));
    assert_eq!(
        refused(&mut state, Change::Set(PortId::PF, Setting::Trust(true))).1,
        "function: PF is refused (EINVAL); allowed is VF 0 to 3; a switch is on the PF"
    );
    let mut wrong = filters.clone();
    wrong.push(Filter { mac: mac(2), vid: 4095 });
    assert_eq!(
        refused(&mut state, Change::Switch(Some(wrong))),
        (
            Errno::Einval,
            "PF: switch[1]: VLAN 4095 is refused (EINVAL); allowed is 0 to 4094".into()
        )
    );
    state.apply(&Change::Switch(None)).unwrap();
    assert_eq!(state.config(), with_vfs().config());
    // Without a switch before, it changes nothing.
    state.apply(&Change::Set(PortId::PF, Setting::SpoofCheck(false))).unwrap();
    state.apply(&Change::Switch(None)).unwrap();
    assert!(!pf(&state).unwrap().spoof_check);
}

#[test]
fn queues_are_replaced_together() {
    let mut state = with_vfs();
    let queue = |n| Some(Function::new(mac(n)));
    state.apply(&Change::Queues(vec![queue(1), None, queue(2)])).unwrap();
    assert!(state.table().has(PortId::queue(2)) && !state.table().has(PortId::queue(1)));
    let (errno, text) = refused(&mut state, Change::Queues(vec![queue(1), queue(1)]));
    assert_eq!(
        (errno, text.as_str()),
        (
            Errno::Eexist,
            "queue 1: mac: 02:00:00:00:07:01, which is mac of queue 0, is refused (EEXIST); \
             allowed is a MAC that is not yet in the untagged network"
        )
    );
    let set = Change::Set(PortId::queue(0), Setting::Defaults);
    assert_eq!(refused(&mut state, set).0, Errno::Einval);
    assert_eq!(refused(&mut state, Change::Queues(vec![None; 256])).0, Errno::Einval);
    state.apply(&Change::NumVfs(0)).unwrap();
    assert!(state.table().has(PortId::queue(2)), "queues do not go with VFs");
    state.apply(&Change::Queues(vec![])).unwrap();
    assert!(!state.table().has(PortId::queue(2)));
}

fn any_port() -> impl Strategy<Value = PortId> {
    (1_u16..8).prop_map(PortId)
}

fn any_setting() -> impl Strategy<Value = Setting> {
    let rate = || prop::option::of(0_u32..2_000);
    let macs = || prop::collection::vec((0_u8..6).prop_map(mac), 0..2);
    let vid = || (1_u16..4).prop_map(|vid| Vid::new(vid).unwrap());
    let links = [LinkState::Auto, LinkState::Enable, LinkState::Disable];
    prop_oneof![
        (0_u8..6).prop_map(|n| Setting::Mac(if n == 0 { Mac::ZERO } else { mac(n) })),
        macs().prop_map(Setting::ExtraMacs),
        prop::option::of(vid()).prop_map(|vid| Setting::Vlan(vid.map(Into::into))),
        prop::collection::vec(vid(), 0..3)
            .prop_map(|vids| Setting::Trunk(vids.into_iter().collect())),
        any::<bool>().prop_map(Setting::SpoofCheck),
        any::<bool>().prop_map(Setting::Trust),
        prop::sample::select(links.to_vec()).prop_map(Setting::Link),
        (rate(), rate()).prop_map(|(min, max)| Setting::TxRate { min, max }),
        any::<u8>().prop_map(Setting::Weight),
        Just(Setting::Defaults),
    ]
}

fn any_filters() -> impl Strategy<Value = Vec<Filter>> {
    let filter = (0_u8..6, 0_u16..4).prop_map(|(n, vid)| Filter { mac: mac(n), vid });
    prop::collection::vec(filter, 0..3)
}

fn any_queues() -> impl Strategy<Value = Vec<Option<Function>>> {
    let queue = prop::option::of((0_u8..6).prop_map(|n| Function::new(mac(n))));
    prop::collection::vec(queue, 0..3)
}

fn any_change() -> impl Strategy<Value = Change> {
    let name = || prop::sample::select(vec!["a", "b"]).prop_map(owner);
    let modes = vec![Mode::Veb, Mode::Vepa, Mode::Isolated];
    let one = prop_oneof![
        2 => (0_u16..7).prop_map(Change::NumVfs),
        1 => prop::sample::select(modes).prop_map(Change::Mode),
        1 => any::<bool>().prop_map(|up| Change::Uplink { up }),
        9 => (any_port(), any_setting()).prop_map(|(port, setting)| Change::Set(port, setting)),
        1 => (any_port(), any::<bool>()).prop_map(|(port, on)| Change::Ask(port, Wish::Promiscuous(on))),
        1 => (any_port(), 0_u8..6).prop_map(|(port, n)| Change::Ask(port, Wish::Macs(vec![mac(n)]))),
        1 => prop::option::of(any_filters()).prop_map(Change::Switch),
        1 => any_queues().prop_map(Change::Queues),
        1 => (0_u8..5, name()).prop_map(|(vf, owner)| Change::Claim(vf, owner)),
        1 => (0_u8..5, name()).prop_map(|(vf, owner)| Change::Release(vf, owner)),
    ];
    prop_oneof![
        5 => one.clone(),
        1 => prop::collection::vec(one, 0..4).prop_map(Change::All),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_reported_is_what_is_enforced(
        profile in prop::sample::select(Profile::ALL.to_vec()),
        changes in prop::collection::vec(any_change(), 1..40),
        frames in prop::collection::vec((0_u16..8, 0_u8..6, 0_u8..6), 8),
    ) {
        let mut state = NicState::new(profile, 4, PF_MAC).unwrap();
        for change in changes {
            let before = state.clone();
            if state.apply(&change).is_err() {
                prop_assert_eq!(&state.config, &before.config);
                prop_assert_eq!((state.num_vfs, &state.owners), (before.num_vfs, &before.owners));
                prop_assert_eq!(state.table.number, before.table.number);
            }
            let vfs = state.config.vfs.iter().filter(|vf| vf.is_some()).count();
            prop_assert_eq!(vfs, usize::from(state.num_vfs));
            prop_assert!(state.owners[vfs..].iter().all(Option::is_none));
            let model = Model::new(&state.config).unwrap();
            for (from, dst, src) in &frames {
                let (from, mut head) = (PortId(*from), [0; 16]);
                head[..6].copy_from_slice(&mac(*dst).0);
                head[6..12].copy_from_slice(&mac(*src).0);
                let mut out = Verdicts::new();
                state.table().classify(from, &[head], &mut Flows::new(), &mut out);
                let judged: Action = out[0].action();
                prop_assert_eq!(judged, model.judge(from, &head, true));
            }
        }
    }
}
