//! Placement, shortages, and error texts.

use proptest::prelude::*;

use super::*;
use crate::workload::tests::mutilated;

const GOOD: &str = "[[host]]\nname = \"a\"\ncount = 1\nnic = \"xl710\"\nprofile = \"nfv-2017\"\n\
                    [[chain]]\nname = \"c\"\ncount = 1\nservices = 2\nmpps = 0.1\nframes = \"64\"\n";

fn fleet(hosts: u32, chains: &[(u32, u32, f64)]) -> Fleet {
    let mut text = format!(
        "[[host]]\nname = \"rack\"\ncount = {hosts}\nnic = \"xl710\"\nprofile = \"nfv-2017\"\nguest_cores = 28\n"
    );
    for (number, (count, services, mpps)) in chains.iter().enumerate() {
        text += &format!(
            "[[chain]]\nname = \"c{number}\"\ncount = {count}\nservices = {services}\nmpps = {mpps}\nframes = \"imix\"\n"
        );
    }
    Fleet::parse(&text).unwrap()
}

#[test]
fn what_fits_is_placed_and_the_bound_is_not_beaten() {
    let plan = fleet(10, &[(20, 4, 0.5), (30, 2, 0.3), (10, 1, 1.0)]).plan().unwrap();
    assert_eq!((plan.chains, plan.guests, plan.hosts), (60, 150, 10));
    assert_eq!((plan.solved.placed, plan.missing.len()), (60, 0));
    assert!((plan.bound_placed - 60.0).abs() < 1e-6);
    for answer in [&plan.solved, &plan.greedy] {
        assert!(f64::from(answer.hosts_used) >= plan.bound_hosts - 1e-6, "{plan:?}");
        assert!(answer.taken.iter().all(|taken| taken.share <= 1.0 + 1e-6), "{answer:?}");
    }
}

#[test]
fn what_is_too_much_names_the_limit_and_how_much_is_missing() {
    // 28 cores a host: ten hosts have 280, and these chains take 400.
    let plan = fleet(10, &[(100, 4, 0.001)]).plan().unwrap();
    assert_eq!(plan.solved.placed, 70);
    let [missing] = plan.missing[..] else { panic!("{:?}", plan.missing) };
    assert_eq!(missing.limit, HostResource::Cores);
    assert!((missing.share - (400.0 / 280.0 - 1.0)).abs() < 1e-6, "{missing:?}");
}

/// Three chains of six cores need 18 of 20 in total, but a host of ten has room for one.
#[test]
fn what_finds_no_room_on_any_single_host_is_said() {
    let mut fleet = fleet(2, &[(3, 6, 0.001)]);
    fleet.hosts[0].machine.host.guest_cores.value = 10.0;
    let plan = fleet.plan().unwrap();
    assert_eq!((plan.solved.placed, plan.missing.len()), (2, 0));
    let [unplaced] = &plan.solved.unplaced[..] else { panic!("{plan:?}") };
    assert_eq!(
        (unplaced.chain.as_str(), unplaced.count, unplaced.limit),
        ("c0", 1, HostResource::Cores)
    );
    assert!((unplaced.short - 0.2).abs() < 1e-9, "{unplaced:?}");
}

/// A host of a fleet carries exactly the workloads that the advice says it carries.
#[test]
fn a_chain_that_is_alone_takes_what_the_same_workload_takes() {
    let text = "[[host]]\nname = \"a\"\ncount = 1\nnic = \"82598\"\nprofile = \"nfv-2017\"\n\
                [[chain]]\nname = \"c\"\ncount = 1\nservices = 2\nmpps = 3.5\nframes = \"64\"\n";
    let fleet = Fleet::parse(text).unwrap();
    let workload = "frames = \"64\"\n[[service]]\nname = \"a\"\n[[service]]\nname = \"b\"\n\
                    [[flow]]\nname = \"f\"\nthrough = [\"wire\", \"a\", \"b\", \"wire\"]\nmpps = 3.5\n";
    let workload = crate::workload::Workload::parse(workload).unwrap();
    let advice = crate::advise::advise(&fleet.hosts[0].machine, &workload).unwrap();
    assert_eq!(fleet.plan().unwrap().solved.placed == 1, advice.scale >= 1.0);
    assert!(advice.scale >= 1.0, "{advice:?}");
}

#[test]
fn scarce_functions_go_where_they_are_worth_most() {
    // North/south guests need VFs: the switch's port to the wire carries less than the NIC.
    let mut fleet = fleet(1, &[(8, 1, 1.8), (4, 4, 0.2)]);
    fleet.hosts[0].machine.nic.vfs = 8;
    fleet.chains[0].frames = FrameMix::of(64).unwrap();
    let plan = fleet.plan().unwrap();
    // The greedy algorithm gives a VF to a long chain that does not need it.
    assert!(plan.solved.placed > plan.greedy.placed, "{plan:?}");
    assert!(f64::from(plan.solved.placed) <= plan.bound_placed + 1e-6);
}

/// 10 000 guests with different demands, on 1000 hosts of two kinds.
#[test]
fn a_large_fleet_comes_near_its_bound() {
    let mut text = String::new();
    for nic in ["xl710", "e810"] {
        text += &format!(
            "[[host]]\nname = \"{nic}\"\ncount = 500\nnic = \"{nic}\"\nprofile = \"nfv-2017\"\n\
             cores = 6\nguest_cores = 64\n"
        );
    }
    for (services, guests) in [(1_u32, 2000), (2, 2000), (4, 4000), (5, 2000)] {
        let kinds = [("64", 0.8), ("imix", 0.5), ("1518", 0.1), ("1518", 0.6)];
        for (kind, (frames, mpps)) in kinds.into_iter().enumerate() {
            let count = guests / 4 / services;
            text += &format!(
                "[[chain]]\nname = \"{services}-{kind}\"\ncount = {count}\n\
                 services = {services}\nmpps = {mpps}\nframes = \"{frames}\"\n"
            );
        }
    }
    let fleet = Fleet::parse(&text).unwrap();
    let plan = fleet.plan().unwrap();
    assert_eq!((plan.guests, plan.hosts, plan.solved.placed), (10_000, 1000, plan.chains));
    assert!(f64::from(plan.solved.hosts_used) <= 1.15 * plan.bound_hosts, "{plan:?}");
    assert!(plan.solved.hosts_used < plan.greedy.hosts_used);
    // The per-host lists agree with the totals, and no host appears twice.
    let answer = &plan.solved;
    let on_hosts: u32 =
        answer.hosts.iter().flat_map(|host| &host.chains).map(|one| one.count).sum();
    let mut names: Vec<_> = answer.hosts.iter().map(|host| (&host.host, host.number)).collect();
    names.sort();
    names.dedup();
    assert_eq!((on_hosts, names.len()), (answer.placed, answer.hosts_used as usize));
}

#[test]
fn each_fault_is_said_with_its_place() {
    assert!(Fleet::parse(GOOD).is_ok());
    let faults = [
        ("xl710", "xl711", "host a, nic: \"xl711\" is no NIC profile"),
        ("nfv-2017", "nfv", "\"nfv\" is no host profile; write one of"),
        ("services = 2", "services = 0", "services: 0 is out of range; write a number, 1 to 64"),
        ("name = \"c\"", "name = \"c d\"", "chain c d, name: \"c d\" is not allowed"),
        ("mpps = 0.1", "mpps = -1.0", "mpps: -1 is out of range"),
        ("count = 1\nservices", "count = 0\nservices", "chain c, count: 0 is out of range"),
        ("\"64\"", "\"12\"", "chain c, frames: 12 is out of range"),
        ("name = \"c\"", "nom = \"c\"", "unknown field `nom`"),
        (
            "count = 1\nservices = 2",
            "count = 100000\nservices = 64",
            "the fleet, guests: are 6400000 in all; write at most 1000000",
        ),
    ];
    for (from, to, said) in faults {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let error = Fleet::parse(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{to}: {error}");
    }
    assert!(Fleet::parse("").unwrap_err().to_string().contains("the fleet has no [[host]]"));
    let too_much = Fleet::parse(&GOOD.replace("mpps = 0.1", "mpps = 90.0")).unwrap();
    let error = too_much.plan().unwrap_err().to_string();
    assert!(error.contains("chain c fits no host, even alone"), "{error}");
}

proptest! {
    #[test]
    fn whatever_is_written_gets_a_plan_or_a_message(text in mutilated(GOOD)) {
        let said = Fleet::parse(&text).and_then(|fleet| fleet.plan());
        match said {
            Err(error) => prop_assert!(!error.to_string().is_empty()),
            Ok(plan) => {
                prop_assert!(plan.solved.placed <= plan.chains && plan.solved.hosts_used <= plan.hosts);
                prop_assert!(f64::from(plan.solved.placed) <= plan.bound_placed + 1e-6, "{text}");
            }
        }
    }
}
