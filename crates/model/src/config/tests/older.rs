//! Files in the words of version 0.1.

use super::*;

const OLDER: &str = "run_dir = \"/run/shunt\"\n[[nic]]\nname = \"n\"\nkind = \"soft\"\ntotal_vfs = 8\n\
    [nic.pf]\nmac = \"02:00:00:00:00:01\"\nsocket = \"p\"\nvlan = 7\n\
    [[nic.vf]]\nindex = 7\nmac = \"02:00:00:00:01:01\"\nsocket = \"v\"\nmode = \"client\"\n\
    queue_pairs = 2\nvlan = 5\nvlan_qos = 6\nvlan_protocol = \"802.1Q\"\ntrunk = [9, 8, 10, 20, 9]\n\
    weight = 3\nstorm_limit = 1000\n";

const NOW: &str = "run_dir = \"/run/shunt\"\n[[nic]]\nname = \"n\"\nkind = \"soft\"\ntotal_vfs = 8\n\
    [nic.pf]\nmac = \"02:00:00:00:00:01\"\nattachment = \"vhost-user:p\"\nvlan.id = 7\n\
    [[nic.vf]]\nindex = 7\nmac = \"02:00:00:00:01:01\"\n\
    attachment = { socket = \"v\", mode = \"client\", queue_pairs = 2 }\n\
    vlan = { id = 5, qos = 6 }\ntrunks = [\"8-10\", \"20\"]\ntx_weight = 3\nstorm_limit_pps = 1000\n";

#[test]
fn a_daemon_that_is_replaced_may_have_one() {
    let older = Config::of_older(&SourceFile::new("shunt.toml", OLDER));
    assert_eq!(older, Ok(parse(NOW)));
}

#[test]
fn each_name_is_told_with_what_to_write() {
    let errors = Config::parse("shunt.toml", OLDER).unwrap_err();
    insta::assert_snapshot!(errors, @r#"
    shunt.toml:8:1: NIC n, pf.socket: is now part of attachment; write attachment = "vhost-user:p"
    shunt.toml:9:1: NIC n, pf.vlan: is a table now; write vlan = { id = 7 }
    shunt.toml:13:1: VF 7 of NIC n, socket: is now part of attachment; write attachment = { mode = "client", queue_pairs = 2, socket = "v" }
    shunt.toml:16:1: VF 7 of NIC n, vlan: is a table now; write vlan = { id = 5, proto = "802.1q", qos = 6 }
    shunt.toml:19:1: VF 7 of NIC n, trunk: was renamed to trunks; write trunks = ["8-10", "20"]
    shunt.toml:20:1: VF 7 of NIC n, weight: was renamed to tx_weight; write tx_weight = 3
    shunt.toml:21:1: VF 7 of NIC n, storm_limit: was renamed to storm_limit_pps; write storm_limit_pps = 1000
    "#);
}
