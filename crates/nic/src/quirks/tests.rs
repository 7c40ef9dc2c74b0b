//! What each profile refuses, as a table; and that `ideal` refuses nothing.

use wire::{Mac, Vid};

use super::*;
use crate::{Change, Mirror, Monitor, NicState, PortVlan, Vids, Way};

const MAC: Mac = Mac([2, 0, 0, 0, 1, 0]);

fn state(profile: &'static Profile) -> NicState {
    let mut state = NicState::new(profile, 4, MAC).unwrap();
    state.apply(&Change::NumVfs(4)).unwrap();
    state
}

fn vlan(protocol: VlanProtocol) -> Setting {
    Setting::Vlan(Some(PortVlan { vid: Vid::new(7).unwrap(), qos: 3, protocol }))
}

fn rate(min: Option<u32>, max: Option<u32>) -> Setting {
    Setting::TxRate { min, max }
}

fn settings() -> Vec<(&'static str, Setting)> {
    let mirror = Mirror { way: Way::Both, to: Monitor::Capture(0) };
    vec![
        ("mac", Setting::Mac(Mac([2, 9, 9, 9, 9, 9]))),
        ("vlan", vlan(VlanProtocol::Ieee8021Q)),
        ("802.1ad", vlan(VlanProtocol::Ieee8021Ad)),
        ("spoof_check", Setting::SpoofCheck(false)),
        ("trust", Setting::Trust(true)),
        ("auto", Setting::Link(LinkState::Auto)),
        ("enable", Setting::Link(LinkState::Enable)),
        ("disable", Setting::Link(LinkState::Disable)),
        ("min", rate(Some(10), None)),
        ("no min", rate(Some(0), None)),
        ("max 10", rate(None, Some(10))),
        ("max 11", rate(None, Some(11))),
        ("max 50", rate(None, Some(50))),
        ("no max", rate(None, Some(0))),
        ("trunk", Setting::Trunk([Vid::new(9).unwrap()].into_iter().collect())),
        ("no trunk", Setting::Trunk(Vids::default())),
        ("extra_macs", Setting::ExtraMacs(vec![Mac([2, 8, 8, 8, 8, 8])])),
        ("mirror", Setting::Mirror(Some(mirror))),
        ("storm_limit", Setting::StormLimit(100)),
        ("weight", Setting::Weight(50)),
        ("defaults", Setting::Defaults),
    ]
}

/// Names of settings that a profile refuses, with the errno.
fn refusals(name: &str) -> Vec<(&'static str, Errno)> {
    let profile = Profile::named(name).unwrap();
    let refusal = |(name, setting): (&'static str, Setting)| {
        let mut state = state(profile);
        let before = state.config().clone();
        let refused = state.apply(&Change::Set(PortId::vf(1), setting)).err()?;
        assert_eq!(*state.config(), before);
        assert!(refused.field.starts_with("VF 1: "), "{refused}");
        Some((name, refused.errno))
    };
    let modes = [Mode::Veb, Mode::Vepa, Mode::Isolated].into_iter().filter_map(|mode| {
        let refused = state(profile).apply(&Change::Mode(mode)).err()?;
        assert_eq!(refused.field, "mode");
        Some((mode.name(), refused.errno))
    });
    settings().into_iter().filter_map(refusal).chain(modes).collect()
}

/// A function that differs from a new one by a setting.
fn with(setting: Setting) -> Function {
    let mut function = Function::new(MAC);
    match setting {
        Setting::Mac(mac) => function.mac = mac,
        Setting::ExtraMacs(macs) => function.extra_macs = macs,
        Setting::Vlan(vlan) => function.vlan = vlan,
        Setting::Trunk(vlans) => function.trunk = vlans,
        Setting::SpoofCheck(on) => function.spoof_check = on,
        Setting::Trust(on) => function.trust = on,
        Setting::Link(link) => function.link = link,
        Setting::TxRate { min, max } => {
            function.share.min_mbit = min.unwrap_or(0);
            function.share.max_mbit = max.unwrap_or(0);
        }
        Setting::Weight(weight) => function.share.weight = weight,
        Setting::StormLimit(limit) => function.storm_limit = limit,
        Setting::Mirror(mirror) => function.mirror = mirror,
        Setting::Defaults => (),
    }
    function
}

#[test]
fn a_whole_function_is_refused_for_any_of_its_settings() {
    let port = PortId::vf(1);
    for profile in Profile::ALL {
        for (name, setting) in settings() {
            let mut state = state(profile);
            let one = state.apply(&Change::Set(port, setting.clone()));
            assert_eq!(profile.check(port, &with(setting), true), one, "{}: {name}", profile.name);
        }
        for mode in [Mode::Veb, Mode::Vepa, Mode::Isolated] {
            assert_eq!(profile.check_mode(mode), state(profile).apply(&Change::Mode(mode)));
        }
        // Rates that are not set take no link.
        assert_eq!(profile.check(port, &Function::new(MAC), false), Ok(()));
        let refused = profile.check(port, &with(rate(None, Some(100))), false).is_err();
        assert_eq!(refused, profile.rate_needs_link, "{}", profile.name);
    }
}

#[test]
fn ideal_refuses_nothing() {
    assert_eq!(refusals("ideal"), []);
    let mut state = NicState::new(Profile::named("ideal").unwrap(), 255, MAC).unwrap();
    state.apply(&Change::NumVfs(255)).unwrap();
    assert_eq!(state.config().functions().count(), 256);
}

const EXTENSIONS: [&str; 6] =
    ["trunk", "extra_macs", "mirror", "storm_limit", "weight", "isolated"];

#[track_caller]
fn refuses(name: &str, own: &[(&'static str, Errno)]) {
    let mut expected = own.to_vec();
    expected.extend(EXTENSIONS.map(|name| (name, Errno::Eopnotsupp)));
    expected.sort_unstable();
    let mut refused = refusals(name);
    refused.sort_unstable();
    assert_eq!(refused, expected);
}

#[test]
fn what_drivers_refuse() {
    use Errno::{Einval, Eopnotsupp, Eprotonosupport};
    let service_tag = ("802.1ad", Eprotonosupport);
    let (min, low) = (("min", Einval), ("max 10", Einval));
    let links = [("enable", Eopnotsupp), ("disable", Eopnotsupp)];
    refuses("82576", &[service_tag, links[0], links[1], min, ("vepa", Eopnotsupp)]);
    refuses("x520", &[service_tag, links[0], min, low]);
    refuses("xl710", &[service_tag, min, low, ("max 11", Einval)]);
    refuses("cx6", &[service_tag]);
}

#[test]
fn vfs_and_speeds() {
    for (name, vfs, speed) in [
        ("ideal", 255, 400_000),
        ("82576", 7, 1_000),
        ("x520", 63, 10_000),
        ("xl710", 64, 40_000),
        ("cx6", 127, 100_000),
    ] {
        let profile = Profile::named(name).unwrap();
        assert_eq!((profile.total_vfs_max, profile.speed_mbit), (vfs, speed));
        assert!(NicState::new(profile, vfs, MAC).is_ok());
        if vfs < 255 {
            let refused = NicState::new(profile, vfs + 1, MAC).unwrap_err();
            assert_eq!(refused.errno, Errno::Erange);
        }
        let mut state = state(profile);
        let over = Change::Set(PortId::vf(0), rate(None, Some(speed + 1)));
        assert_eq!(state.apply(&over).unwrap_err().errno, Errno::Einval);
        state.apply(&Change::Set(PortId::vf(0), rate(None, Some(speed)))).unwrap();
    }
    assert_eq!(Profile::named("e1000"), None);
}

#[test]
fn some_drivers_look_at_the_link_before_they_set_a_rate() {
    for profile in Profile::ALL {
        let mut state = state(profile);
        state.apply(&Change::Uplink { up: false }).unwrap();
        let refused = state.apply(&Change::Set(PortId::vf(0), rate(None, Some(100)))).is_err();
        assert_eq!(refused, ["82576", "x520"].contains(&profile.name), "{}", profile.name);
    }
}

#[test]
fn a_refusal_says_what_is_allowed() {
    let said = |name, setting| {
        let mut state = state(Profile::named(name).unwrap());
        state.apply(&Change::Set(PortId::vf(2), setting)).unwrap_err().to_string()
    };
    assert_eq!(
        said("x520", Setting::Link(LinkState::Enable)),
        "VF 2: link_state: enable is refused (EOPNOTSUPP); \
         allowed is auto or disable with the profile x520"
    );
    assert_eq!(
        said("xl710", rate(None, Some(40))),
        "VF 2: max_tx_rate: 40 Mbit/s is refused (EINVAL); allowed is 0 and 50 to 40000 Mbit/s"
    );
    assert_eq!(
        said("82576", rate(Some(10), None)),
        "VF 2: min_tx_rate: 10 Mbit/s is refused (EINVAL); allowed is 0 with the profile 82576"
    );
}
