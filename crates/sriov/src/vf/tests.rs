//! Messages against another implementation of their format.

use netlink_packet_core::{Emitable, Parseable};
use netlink_packet_route::link::{
    LinkAttribute, LinkMessage, LinkVfInfo, VfInfo, VfInfoLinkState, VfInfoMac, VfInfoRate,
    VfInfoRssQueryEn, VfInfoSpoofCheck, VfInfoTrust, VfLinkState, VfStats, VfVlan, VfVlanInfo,
    VlanProtocol,
};

use super::*;

const MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 1];

fn mac() -> VfSetting {
    VfSetting::Mac(Some(MacText(Mac(MAC))))
}

fn vlan(id: u16, qos: u8, proto: VlanProto) -> VfSetting {
    VfSetting::Vlan(Some(Vlan { id, qos, proto }))
}

/// The VFs of a message, as both implementations write it.
fn read(infos: Vec<Vec<VfInfo>>) -> Option<Vec<VfState>> {
    let infos = infos.into_iter().map(LinkVfInfo).collect();
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::VfInfoList(infos)];
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    vfs(&bytes[INTERFACE_HEADER..])
}

#[test]
fn vfs_are_read_with_what_their_driver_reports() {
    let first = vec![
        VfInfo::Mac(VfInfoMac::new(0, &MAC)),
        VfInfo::VlanList(vec![VfVlan::Info(VfVlanInfo::new(0, 100, 3, VlanProtocol::Ieee8021Ad))]),
        VfInfo::Rate(VfInfoRate::new(0, 10, 50)),
        VfInfo::SpoofCheck(VfInfoSpoofCheck::new(0, true)),
        VfInfo::LinkState(VfInfoLinkState::new(0, VfLinkState::Disable)),
        VfInfo::RssQueryEn(VfInfoRssQueryEn::new(0, true)),
        VfInfo::Trust(VfInfoTrust::new(0, false)),
        VfInfo::Stats(vec![
            VfStats::RxPackets(7),
            VfStats::TxBytes(1 << 40),
            VfStats::TxDropped(9),
        ]),
    ];
    let bare = vec![
        VfInfo::Mac(VfInfoMac::new(1, &[])),
        VfInfo::VlanList(vec![VfVlan::Info(VfVlanInfo::new(1, 0, 0, VlanProtocol::Ieee8021Q))]),
    ];
    let counters = VfCounters { rx_packets: 7, tx_bytes: 1 << 40, tx_dropped: 9, ..<_>::default() };
    let settings = vec![
        vlan(100, 3, VlanProto::Dot1ad),
        mac(),
        VfSetting::Rate { min_mbps: 10, max_mbps: 50 },
        VfSetting::SpoofCheck(true),
        VfSetting::Trust(false),
        VfSetting::LinkState(LinkState::Disable),
        VfSetting::QueryRss(true),
    ];
    let want = [
        VfState { index: 0, address: None, settings, counters: Some(counters) },
        VfState {
            index: 1,
            address: None,
            settings: vec![VfSetting::Vlan(None), VfSetting::Mac(None)],
            counters: None,
        },
    ];
    assert_eq!(read(vec![first, bare]).unwrap(), want);
    assert_eq!(vfs(&[]), Some(vec![]), "without VFs");
    assert_eq!(read(vec![vec![]]), None, "without an index");
}

#[test]
fn what_a_driver_does_not_report_is_left_out() {
    let none = |kind| NetlinkMessage::nest().with(kind, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    for kind in [IFLA_VF_SPOOFCHK, IFLA_VF_TRUST, IFLA_VF_RSS_QUERY_EN] {
        let bytes = none(kind).into_bytes(0);
        let info = [&change(0, &mac()).unwrap().into_bytes(0)[16..], &bytes[16..]].concat();
        assert_eq!(vf(&info).unwrap().settings, [mac()], "{kind}");
    }
}

#[test]
fn a_change_is_as_another_implementation_reads_it() {
    let number = |number| VfInfoSpoofCheck::new(3, number);
    let all = [
        (mac(), VfInfo::Mac(VfInfoMac::new(3, &MAC))),
        (VfSetting::Mac(None), VfInfo::Mac(VfInfoMac::new(3, &[]))),
        (
            vlan(100, 5, VlanProto::Dot1ad),
            VfInfo::VlanList(vec![VfVlan::Info(VfVlanInfo::new(
                3,
                100,
                5,
                VlanProtocol::Ieee8021Ad,
            ))]),
        ),
        (
            VfSetting::Vlan(None),
            VfInfo::VlanList(vec![VfVlan::Info(VfVlanInfo::new(3, 0, 0, VlanProtocol::Ieee8021Q))]),
        ),
        (
            VfSetting::Rate { min_mbps: 1, max_mbps: 1_000_000 },
            VfInfo::Rate(VfInfoRate::new(3, 1, 1_000_000)),
        ),
        (VfSetting::SpoofCheck(true), VfInfo::SpoofCheck(number(true))),
        (VfSetting::SpoofCheck(false), VfInfo::SpoofCheck(number(false))),
        (VfSetting::Trust(true), VfInfo::Trust(VfInfoTrust::new(3, true))),
        (
            VfSetting::LinkState(LinkState::Enable),
            VfInfo::LinkState(VfInfoLinkState::new(3, VfLinkState::Enable)),
        ),
        (VfSetting::QueryRss(true), VfInfo::RssQueryEn(VfInfoRssQueryEn::new(3, true))),
    ];
    for (setting, expected) in all {
        let info = change(3, &setting).unwrap();
        let list = NetlinkMessage::nest().with_nest(IFLA_VF_INFO, &info);
        let request =
            NetlinkMessage::new(RTM_SETLINK, &ifinfo(9)).with_nest(IFLA_VFINFO_LIST, &list);
        let bytes = request.into_bytes(0);
        let read = LinkMessage::parse(&bytes[16..]).unwrap();
        assert_eq!(read.header.index, 9);
        let expected = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![expected])]);
        assert_eq!(read.attributes, [expected], "{setting:?}");
    }
    assert!(change(3, &VfSetting::Driver(Binding::vfio_pci())).is_none());
}

#[test]
fn the_kernel_has_no_vfs_of_an_interface_without_any() {
    let netlink = Netlink::route().unwrap();
    assert_eq!(read_vfs(&netlink, 1, true), Ok(vec![]), "lo");
    let error = read_vfs(&netlink, u32::MAX >> 1, false).unwrap_err();
    assert_eq!(error.errno(), Errno::NODEV);
    let error = set_vf(&netlink, 1, 0, &VfSetting::Trust(true)).unwrap_err();
    assert!([Errno::OPNOTSUPP, Errno::PERM].contains(&error.errno()), "{error}");
}
