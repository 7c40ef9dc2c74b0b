use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;

/// Answers for the tree of [`machine`].
struct Answers;

impl Kernel for Answers {
    fn proc(&self, name: &str) -> Option<String> {
        let text = match name {
            "cmdline" => {
                "BOOT_IMAGE=/vmlinuz root=UUID=1-2 ip=10.1.2.3::10.1.2.1:255.255.255.0:web7 quiet \
                 intel_iommu=on,sm_on iommu=pt pci=realloc,nocrs hugepages=512 luks.key=secret"
            }
            "cpuinfo" => "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t: vmx\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn versions(&self, interface: &str) -> Option<InterfaceVersions> {
        (interface == "eth0").then(|| InterfaceVersions {
            driver: "igb".into(),
            version: "6.12.57".into(),
            firmware: "1.63".into(),
        })
    }

    fn eswitch_mode(&self, pf: PciAddress) -> Option<String> {
        (pf.bus == 1).then(|| "legacy".to_owned())
    }
}

fn file(at: &Path, text: &str) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(at, format!("{text}\n")).unwrap();
}

/// A PCI function of a tree, with its link among the devices of the bus and its IOMMU group.
fn function(root: &Path, path: &str, class: &str, group: u32) -> PathBuf {
    let at = root.join("devices/pci0000:00").join(path);
    file(&at.join("class"), class);
    file(&at.join("vendor"), "0x8086");
    file(&at.join("device"), "0x10c9");
    let address = at.file_name().unwrap();
    let devices = root.join("bus/pci/devices");
    fs::create_dir_all(&devices).unwrap();
    symlink(Path::new("../../../devices/pci0000:00").join(path), devices.join(address)).unwrap();
    let members = root.join("kernel/iommu_groups").join(group.to_string()).join("devices");
    fs::create_dir_all(&members).unwrap();
    symlink(&at, members.join(address)).unwrap();
    symlink(members.parent().unwrap(), at.join("iommu_group")).unwrap();
    at
}

fn drive(root: &Path, at: &Path, name: &str) {
    let driver = root.join("bus/pci/drivers").join(name);
    fs::create_dir_all(&driver).unwrap();
    symlink(driver, at.join("driver")).unwrap();
}

/// A machine with a card of two VFs behind a root port, a virtio NIC, and a disk.
fn machine() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let port = function(root, "0000:00:01.0", "0x060400", 4);
    file(&port.join("secondary_bus_number"), "1");
    file(&port.join("subordinate_bus_number"), "2");
    let pf = function(root, "0000:00:01.0/0000:01:00.0", "0x020000", 5);
    for (name, text) in [
        ("subsystem_vendor", "0x8086"),
        ("numa_node", "-1"),
        ("current_link_speed", "2.5 GT/s PCIe"),
        ("current_link_width", "4"),
        ("max_link_width", "8"),
        ("resource", "0x01 0x02 0x0200\n0x0 0x0 0x0"),
        ("sriov_totalvfs", "7"),
        ("sriov_numvfs", "2"),
        ("sriov_offset", "128"),
        ("sriov_stride", "2"),
        ("sriov_vf_device", "10ca"),
        ("sriov_drivers_autoprobe", "1"),
        ("net/eth0/address", "52:54:00:00:00:01"),
        ("net/eth0/mtu", "1500"),
        ("net/eth0/operstate", "up"),
        ("net/eth0/carrier", "1"),
        ("net/eth0/speed", "1000"),
    ] {
        file(&pf.join(name), text);
    }
    let mut config = vec![0; 64];
    config[..2].copy_from_slice(&[0x86, 0x80]);
    fs::write(pf.join("config"), config).unwrap();
    drive(root, &pf, "igb");
    for (index, name) in ["0000:01:10.0", "0000:01:10.2"].into_iter().enumerate() {
        let vf = function(root, &format!("0000:00:01.0/{name}"), "0x020000", 6);
        symlink(&pf, vf.join("physfn")).unwrap();
        symlink(format!("../{name}"), pf.join(format!("virtfn{index}"))).unwrap();
    }
    drive(root, &root.join("devices/pci0000:00/0000:00:01.0/0000:01:10.2"), "vfio-pci");
    let virtio = function(root, "0000:00:02.0", "0x020000", 7);
    file(&virtio.join("virtio3/net/eth1/address"), "52:54:00:00:00:09");
    file(&virtio.join("virtio3/net/eth1/speed"), "-1");
    function(root, "0000:00:03.0", "0x010802", 8);
    for table in ["DMAR", "FACP", "MCFG"] {
        file(&root.join("firmware/acpi/tables").join(table), "");
    }
    fs::create_dir_all(root.join("class/iommu/dmar0")).unwrap();
    fs::create_dir_all(root.join("bus/pci_express/devices/0000:00:01.0:pcie002")).unwrap();
    dir
}

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

#[test]
fn a_card_is_read_with_its_vfs_and_the_bridge_above() {
    let dir = machine();
    let facts = Facts::read(&Sysfs::at(dir.path()), &Answers);
    let addresses: Vec<String> = facts.nics.iter().map(|nic| nic.address.to_string()).collect();
    assert_eq!(addresses, ["0000:00:02.0", "0000:01:00.0"], "neither bridge, disk nor VF");
    let pf = &facts.nics[1];
    assert_eq!((pf.driver.as_deref(), pf.numa_node), (Some("igb"), Some(-1)));
    assert_eq!(pf.vendor.as_deref(), Some("0x8086"));
    assert_eq!((pf.subsystem_vendor.as_deref(), &pf.subsystem_device), (Some("0x8086"), &None));
    assert_eq!(pf.iommu_group, Some(IommuGroup { number: 5, others: Vec::new() }));
    assert_eq!((pf.link.speed.as_deref(), pf.link.max_width), (Some("2.5 GT/s PCIe"), Some(8)));
    assert_eq!(pf.resource, ["0x01 0x02 0x0200", "0x0 0x0 0x0"]);
    assert_eq!(pf.config, Some(ConfigSpace { size: 64, read: 64, acs: None, sriov: None }));
    assert_eq!(pf.eswitch_mode.as_deref(), Some("legacy"));
    let [port] = &pf.bridges[..] else { panic!("one bridge: {:?}", pf.bridges) };
    assert_eq!((port.address, port.subordinate_bus), (address("0000:00:01.0"), Some(2)));
    let [eth0] = &pf.interfaces[..] else { panic!("one interface: {:?}", pf.interfaces) };
    assert_eq!((eth0.carrier, eth0.speed, eth0.mtu), (Some(1), Some(1000), Some(1500)));
    assert_eq!(eth0.versions.as_ref().map(|it| &*it.firmware), Some("1.63"));
    let sriov = pf.sriov.as_ref().unwrap();
    assert_eq!((sriov.total_vfs, sriov.num_vfs), (Some(7), Some(2)));
    assert_eq!((sriov.offset, sriov.stride), (Some(128), Some(2)));
    let vfs: Vec<_> = sriov.vfs.iter().map(|vf| (vf.address, vf.driver.as_deref())).collect();
    let want = [(address("0000:01:10.0"), None), (address("0000:01:10.2"), Some("vfio-pci"))];
    assert_eq!(vfs, want);
    let others = &sriov.vfs[0].iommu_group.as_ref().unwrap().others;
    assert_eq!(others, &["0000:01:10.2"], "both are in a group");
}

#[test]
fn the_interface_of_a_virtio_device_is_one_level_lower() {
    let dir = machine();
    let facts = Facts::read(&Sysfs::at(dir.path()), &Answers);
    let virtio = &facts.nics[0];
    let [eth1] = &virtio.interfaces[..] else { panic!("one: {:?}", virtio.interfaces) };
    assert_eq!((&*eth1.name, eth1.speed, eth1.carrier), ("eth1", Some(-1), None));
    assert_eq!((eth1.mac.as_deref(), &virtio.sriov), (Some("52:54:00:00:00:09"), &None));
    assert_eq!(virtio.bridges, []);
}

#[test]
fn the_platform_has_only_options_that_matter() {
    let dir = machine();
    let platform = Facts::read(&Sysfs::at(dir.path()), &Answers).platform;
    let options = ["intel_iommu=on,sm_on", "iommu=pt", "pci=realloc,nocrs", "hugepages=512"];
    assert_eq!(platform.kernel_options, options);
    assert!(platform.has_option("pci", "nocrs") && platform.has_option("iommu", "pt"));
    assert!(!platform.has_option("pci", "realloc,nocrs") && !platform.has_option("iommu", "off"));
    assert_eq!(platform.cpu_vendor.as_deref(), Some("GenuineIntel"));
    assert_eq!(platform.acpi_tables, Some(vec!["DMAR".to_owned(), "MCFG".to_owned()]));
    assert_eq!((platform.iommus, platform.iommu_groups), (vec!["dmar0".to_owned()], 5));
    assert_eq!(platform.pcie_services, 1);
}

#[test]
fn an_empty_tree_has_no_facts_and_no_errors() {
    struct Silent;
    impl Kernel for Silent {}
    let dir = tempfile::tempdir().unwrap();
    let facts = Facts::read(&Sysfs::at(dir.path()), &Silent);
    assert_eq!(facts, Facts::default());
}

#[test]
fn this_machine_can_be_read_without_rights() {
    let facts = Facts::read(&Sysfs::default(), &ThisKernel::default());
    let text = serde_json::to_string(&facts).unwrap();
    assert_eq!(serde_json::from_str::<Facts>(&text).unwrap(), facts);
}

#[test]
fn nothing_of_a_machine_is_left_in_anonymised_facts() {
    let dir = machine();
    let pf = dir.path().join("bus/pci/devices/0000:01:00.0/net");
    file(&pf.join("enx525400abcdef/address"), "52:54:00:ab:cd:ef");
    let facts = Facts::read(&Sysfs::at(dir.path()), &Answers);
    let known = ["52:54:00:ab:cd:ef", "52:54:00:00:00:01", "52:54:00:00:00:09", "enx525400abcdef"];
    let before = serde_json::to_string(&facts).unwrap();
    assert!(known.iter().all(|it| before.contains(it)), "{before}");
    let anonymous = anonymised(&facts).unwrap();
    let after = serde_json::to_string(&anonymous).unwrap();
    // The host name, IP addresses and the key of the command line were not even read.
    for secret in known.iter().chain(&["web7", "10.1.2", "secret", "UUID", "abcdef", "ab:cd"]) {
        assert!(!after.contains(secret), "{secret} is in {after}");
    }
    assert!(after.contains("52:54:00:xx:xx:xx") && after.contains("enx525400xxxxxx"), "{after}");
    assert_eq!(anonymous.nics[1].sriov, facts.nics[1].sriov, "all else stays");
}
