//! Parsing of workloads, and error texts.

use proptest::prelude::*;

use super::*;
use crate::advise::advise;
use crate::validate::testbed;

const TWO: &str = r#"
frames = "imix"
[[service]]
name = "firewall"
guests = 2
adapters = ["outside", "inside"]
[[service]]
name = "cache"
path = "synthetic"
[[flow]]
name = "web"
through = ["wire", "firewall", "cache", "wire"]
mpps = 1.5
[[flow]]
name = "inner"
through = ["cache", "firewall"]
mpps = 0.5
frames = "64"
"#;

#[test]
fn frames_come_in_by_the_first_adapter_and_leave_by_the_last() {
    let workload = Workload::parse(TWO).unwrap();
    let names: Vec<_> = workload.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
    assert_eq!(names, ["firewall-outside", "firewall-inside", "cache"]);
    assert_eq!(workload.flows[0].hops, [(None, Some(0)), (Some(1), Some(2)), (Some(2), None)]);
    assert_eq!(workload.flows[1].hops, [(Some(2), Some(0))]);
    assert_eq!(workload.functions(&[PlannedPath::Vf, PlannedPath::Vf, PlannedPath::Synthetic]), 4);
    assert_eq!(workload.adapters[2].fixed, Some(PlannedPath::Synthetic));
}

#[test]
fn each_fault_is_said_with_its_place() {
    let faults = [
        (
            "guests = 2",
            "guests = 0",
            "service firewall, guests: 0 is out of range; write a number, 1 to 4096",
        ),
        ("guests = 2", "guest = 2", "unknown field `guest`"),
        ("guests = 2", "cores = 0.0", "service firewall, cores: 0 is out of range"),
        ("guests = 2", "cycles = nan", "service firewall, cycles: is out of range"),
        (
            "name = \"cache\"",
            "name = \"firewall\"",
            "service firewall, name: \"firewall\" is the name of another one",
        ),
        (
            "name = \"cache\"",
            "name = \"firewall-inside\"",
            "adapter firewall-inside, name: \"firewall-inside\" is the name of another one",
        ),
        (
            "name = \"cache\"",
            "name = \"wire\"",
            "service, name: \"wire\" is not allowed; write 1 to 32 letters",
        ),
        (
            "\"synthetic\"",
            "\"fast\"",
            "path: \"fast\" is not allowed; write one of vf, synthetic, kernel",
        ),
        ("\"synthetic\"", "\"vhost\"", "write one of vf, synthetic, kernel (vhost is synthetic)"),
        (
            "frames = \"64\"",
            "frames = \"0\"",
            "flow inner, frames: 0 is out of range; write a number, 64 to 9018",
        ),
        (
            "frames = \"imix\"",
            "",
            "flow web, frames: is missing; set it for the flow or for the workload",
        ),
        ("mpps = 1.5", "mpps = 0", "flow web, mpps: 0 is out of range"),
        ("mpps = 1.5", "", "flow web, mpps: is missing, and other flows have it"),
        (
            "\"cache\", \"wire\"",
            "\"cache\", \"firewall\"",
            "through: \"firewall\" is passed twice; make return traffic another flow",
        ),
        (
            "\"firewall\", \"cache\"",
            "\"wire\", \"cache\"",
            "through: has the wire between services; split it",
        ),
        (
            "\"firewall\", \"cache\"",
            "\"firewall\", \"nat\"",
            "through: \"nat\" is no service; write one of firewall, cache",
        ),
        ("[\"cache\", \"firewall\"]", "[\"cache\"]", "flow inner, through: is too short"),
        ("[\"cache\", \"firewall\"]", "[\"wire\", \"wire\"]", "with at least one service"),
    ];
    for (from, to, said) in faults {
        let text = TWO.replacen(from, to, 1);
        assert_ne!(text, TWO, "{from} is not there");
        let error = Workload::parse(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{to}: {error}");
    }
    let error = Workload::parse("frames = \"64\"").unwrap_err().to_string();
    assert!(error.contains("the workload has no [[service]]"), "{error}");
}

/// Text with some characters replaced.
pub(crate) fn mutilated(text: &'static str) -> impl Strategy<Value = String> {
    let letter = proptest::sample::select(&b"0123456789.-e\"[]= \nanifwx"[..]);
    let changes = proptest::collection::vec((0..text.len(), letter), 0..4);
    changes.prop_map(move |changes| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, letter) in changes {
            bytes[at] = letter;
        }
        String::from_utf8(bytes).expect("only ASCII is changed, and for ASCII")
    })
}

proptest! {
    #[test]
    fn whatever_is_written_gets_advice_or_a_message(text in mutilated(TWO)) {
        match Workload::parse(&text) {
            Err(error) => prop_assert!(!error.to_string().is_empty()),
            Ok(workload) => {
                let Ok(advice) = advise(&testbed().unwrap(), &workload) else { return Ok(()) };
                prop_assert!(advice.scale.is_finite() && advice.scale > 0.0, "{text}: {advice:?}");
                prop_assert_eq!(advice.adapters.len(), workload.adapters.len());
            }
        }
    }
}
