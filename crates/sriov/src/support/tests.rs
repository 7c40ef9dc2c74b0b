use super::*;
use crate::facts::{AcsRegisters, ConfigSpace, PcieLink, SriovRegisters, VfFacts};

/// A PF of 7 VFs with all it needs, behind a root port, on a machine with an IOMMU.
fn machine() -> (Platform, NicFacts) {
    let platform = Platform { iommu_groups: 9, ..Platform::default() };
    let bars = ["0x00000000fe000000 0x00000000fe01bfff 0x0000000000140204"; VF_BARS];
    let own = ["0x0000000000000000 0x0000000000000000 0x0000000000000000"; FIRST_VF_BAR];
    let nic = NicFacts {
        address: "0000:01:00.0".parse().unwrap(),
        class: Some("0x020000".into()),
        vendor: Some("0x8086".into()),
        device: Some("0x10c9".into()),
        subsystem_vendor: None,
        subsystem_device: None,
        driver: Some("igb".into()),
        module_version: None,
        numa_node: None,
        iommu_group: Some(IommuGroup { number: 5, others: Vec::new() }),
        link: PcieLink { max_width: Some(4), ..PcieLink::default() },
        resource: own.iter().chain(&bars).map(|&line| line.to_owned()).collect(),
        config: Some(ConfigSpace { size: 4096, read: 64, acs: None, sriov: None }),
        bridges: vec![BridgeFacts {
            address: "0000:00:01.0".parse().unwrap(),
            vendor: None,
            device: None,
            secondary_bus: Some(1),
            subordinate_bus: Some(1),
            config: None,
        }],
        sriov: Some(SriovFacts {
            total_vfs: Some(7),
            num_vfs: Some(0),
            offset: Some(128),
            stride: Some(2),
            ..SriovFacts::default()
        }),
        interfaces: Vec::new(),
        eswitch_mode: None,
    };
    (platform, nic)
}

fn codes(obstacles: &[Obstacle]) -> Vec<Reason> {
    obstacles.iter().map(|obstacle| obstacle.reason).collect()
}

/// Reasons against VFs, and against VFs in VMs, after a change of the machine.
fn after(change: impl FnOnce(&mut Platform, &mut NicFacts)) -> (Vec<Obstacle>, Vec<Obstacle>) {
    let (mut platform, mut nic) = machine();
    change(&mut platform, &mut nic);
    let Support { vfs, passthrough, .. } = Support::of(&platform, &nic);
    (vfs, passthrough)
}

#[test]
fn a_complete_machine_has_no_obstacle() {
    let (platform, nic) = machine();
    let whole = Support { is_pf: true, vfs: Vec::new(), passthrough: Vec::new() };
    assert_eq!(Support::of(&platform, &nic), whole);
}

#[test]
fn a_pf_needs_a_driver_that_enables_vfs() {
    let (vfs, _) = after(|_, nic| nic.driver = None);
    assert_eq!(codes(&vfs), [Reason::MissingPfDriver]);
    assert!(vfs[0].remedy.contains("8086:10c9"), "{vfs:?}");
    let (vfs, _) = after(|_, nic| nic.driver = Some("vfio-pci".into()));
    assert_eq!(codes(&vfs), [Reason::MissingPfDriver]);
    assert!(vfs[0].cause.contains("vfio-pci"), "{vfs:?}");
}

#[test]
fn each_vf_bar_needs_an_address() {
    let zeros = "0x0000000000000000 0x0000000000000000 0x0000000000000000";
    let (vfs, _) = after(|_, nic| nic.resource[FIRST_VF_BAR..].fill(zeros.into()));
    assert_eq!(codes(&vfs), [Reason::NoVfBarSpace]);
    for unset in [
        "0x0000000000000000 0x000000000001bfff 0x0000000000140204",
        "0x00000000fe000000 0x00000000fe01bfff 0x0000000020140204",
    ] {
        let (vfs, _) = after(|_, nic| nic.resource[FIRST_VF_BAR + 3] = unset.into());
        assert_eq!(codes(&vfs), [Reason::NoVfBarSpace], "{unset}");
        assert!(vfs[0].cause.starts_with("1 BAR"), "{vfs:?}");
    }
    // A card need not use all BARs, and an old kernel does not show them.
    assert_eq!(after(|_, nic| nic.resource[FIRST_VF_BAR + 3] = zeros.into()).0, []);
    assert_eq!(after(|_, nic| nic.resource.truncate(FIRST_VF_BAR)).0, []);
}

#[test]
fn the_last_vf_must_be_on_a_bus_below_the_bridge() {
    let place = |total: u32, offset: u32, highest: u8| {
        after(|_, nic| {
            let sriov = nic.sriov.as_mut().unwrap();
            (sriov.total_vfs, sriov.offset) = (Some(total), Some(offset));
            nic.bridges[0].subordinate_bus = Some(highest);
        })
        .0
    };
    // Functions 1:00.0 + 128 + 2 * 63 = 254 is the last on the PF's own bus.
    assert_eq!(place(64, 128, 1), []);
    let vfs = place(65, 128, 1);
    assert_eq!(codes(&vfs), [Reason::NoBusResources]);
    assert!(vfs[0].cause.contains("64 of 65") && vfs[0].cause.contains("bus 02"), "{vfs:?}");
    assert_eq!(place(65, 128, 2), []);
    assert!(place(7, 256, 1)[0].cause.contains("0 of 7"));
    assert!(!place(u32::MAX, u32::MAX, 255).is_empty(), "no overflow");
}

#[test]
fn enabled_vfs_prove_that_they_are_possible() {
    let (vfs, _) = after(|_, nic| {
        nic.resource[FIRST_VF_BAR..].fill("0x0 0x0 0x0".into());
        nic.driver = Some("vfio-pci".into());
        nic.sriov.as_mut().unwrap().num_vfs = Some(1);
    });
    assert_eq!(vfs, []);
}

#[test]
fn without_an_iommu_only_vms_lose() {
    type Change = fn(&mut Platform);
    let rows: [(Change, &str); 7] = [
        (|_| {}, "switch on the IOMMU in the machine's firmware setup"),
        (|it| it.cpu_vendor = Some("GenuineIntel".into()), "switch on VT-d"),
        (|it| it.cpu_vendor = Some("AuthenticAMD".into()), "AMD-Vi"),
        (|it| it.acpi_tables = Some(vec!["DMAR".into()]), "boot with intel_iommu=on iommu=pt"),
        (|it| it.acpi_tables = Some(vec!["IVRS".into()]), "boot with iommu=pt"),
        (|it| it.kernel_options = vec!["amd_iommu=off".into()], "boot without amd_iommu=off"),
        (|it| it.kernel_options = vec!["iommu=pt,off".into()], "boot without iommu=off"),
    ];
    for (change, remedy) in rows {
        let (vfs, passthrough) = after(|platform, nic| {
            (platform.iommu_groups, nic.iommu_group) = (0, None);
            change(platform);
        });
        assert_eq!((vfs, codes(&passthrough)), (Vec::new(), vec![Reason::NoIoMmuSupport]));
        assert!(passthrough[0].remedy.contains(remedy), "{remedy}: {passthrough:?}");
    }
    let (_, passthrough) = after(|_, nic| nic.iommu_group = None);
    assert_eq!(codes(&passthrough), [Reason::NoIoMmuSupport], "others have an IOMMU");
}

#[test]
fn a_vf_in_a_group_with_others_is_not_for_a_vm() {
    let group = |others: &[&str]| {
        let others = others.iter().map(|&other| other.to_owned()).collect();
        Some(IommuGroup { number: 5, others })
    };
    let (vfs, passthrough) = after(|_, nic| {
        nic.iommu_group = group(&["0000:00:01.0"]);
        nic.bridges[0].config =
            Some(ConfigSpace { size: 4096, read: 4096, acs: None, sriov: None });
    });
    assert_eq!((vfs, codes(&passthrough)), (Vec::new(), vec![Reason::MissingAcs]));
    assert!(passthrough[0].cause.contains("bridge 0000:00:01.0 has no ACS"), "{passthrough:?}");
    // The other port of the card is no sign of a missing ACS; groups of VFs count more.
    assert_eq!(after(|_, nic| nic.iommu_group = group(&["0000:01:00.1"])).1, []);
    let with_vf = |pf: &[&str], vf: &[&str]| {
        after(|_, nic| {
            nic.iommu_group = group(pf);
            nic.sriov.as_mut().unwrap().vfs = vec![VfFacts {
                index: 0,
                address: "0000:01:10.0".parse().unwrap(),
                driver: None,
                iommu_group: group(vf),
                interfaces: Vec::new(),
            }];
        })
        .1
    };
    assert_eq!(codes(&with_vf(&[], &["0000:01:00.0"])), [Reason::MissingAcs]);
    assert_eq!(with_vf(&["0000:00:01.0"], &[]), []);
}

#[test]
fn a_function_without_vfs_has_a_reason_only_if_it_could_have_them() {
    let without = |change: fn(&mut NicFacts)| {
        let (platform, mut nic) = machine();
        nic.sriov = None;
        change(&mut nic);
        let support = Support::of(&platform, &nic);
        assert!(!support.is_pf && support.passthrough.is_empty());
        codes(&support.vfs)
    };
    let of_total = |total_vfs: u16| {
        let acs = Some(AcsRegisters::default());
        let sriov = Some(SriovRegisters { total_vfs, ..SriovRegisters::default() });
        Some(ConfigSpace { size: 4096, read: 4096, acs, sriov })
    };
    assert_eq!(without(|_| {}), []);
    assert_eq!(without(|nic| nic.config = None), []);
    assert_eq!(
        without(|nic| nic.config.as_mut().unwrap().size = 256),
        [Reason::NoOscSupport],
        "PCI Express without an extended configuration space"
    );
    let conventional = |nic: &mut NicFacts| {
        (nic.link, nic.config.as_mut().unwrap().size) = (PcieLink::default(), 256);
    };
    assert_eq!(without(conventional), []);
    let (platform, mut nic) = machine();
    (nic.sriov, nic.config) = (None, of_total(0));
    let off = Support::of(&platform, &nic).vfs;
    assert_eq!(codes(&off), [Reason::Unknown]);
    assert!(off[0].remedy.contains("card's own settings"), "{off:?}");
    nic.config = of_total(7);
    assert!(Support::of(&platform, &nic).vfs[0].remedy.contains("CONFIG_PCI_IOV"));
    nic.sriov = Some(SriovFacts { total_vfs: Some(0), ..SriovFacts::default() });
    let support = Support::of(&platform, &nic);
    assert_eq!((support.is_pf, codes(&support.vfs)), (false, vec![Reason::Unknown]));
}
