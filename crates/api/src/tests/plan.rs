//! Answers of the planner.

use ::plan::advise::advise;
use ::plan::machine::Machine;
use ::plan::workload::Workload;
use serde_json::{Value, json};

use super::{Site, null};

/// The workload of an answer has the recommended paths and the rate of the answer.
#[test]
fn the_answer_is_the_planners() {
    let site = Site::new();
    for (query, nic, host) in [
        ("", None, None),
        ("?nic=e810&cores=3&guest_cores=16&length=8&chains=2&frame=512", Some("e810"), None),
        ("?host=shunt&length=2&frame=1518", None, Some("shunt")),
    ] {
        let told = site.get(&format!("/v1/plan{query}"));
        let mut machine = Machine::shipped(nic, host).unwrap();
        machine.host.switch_cores.value = told["cores"].as_f64().unwrap();
        machine.host.guest_cores.value = told["guest_cores"].as_f64().unwrap();
        let workload = Workload::parse(told["workload"].as_str().unwrap()).unwrap();
        let advice = advise(&machine, &workload).unwrap();
        assert_eq!(told["advice"]["mpps"], json!(advice.scale), "{query}");
        assert_eq!(told["advice"]["binding_limit"], json!(advice.binding), "{query}");
        let paths = advice.adapters.iter().map(|adapter| json!(adapter.path)).collect::<Vec<_>>();
        let said = told["advice"]["adapters"].as_array().unwrap();
        assert_eq!(said.iter().map(|one| one["path"].clone()).collect::<Vec<_>>(), paths);
        assert_eq!(
            told["nic"],
            json!(machine.host.soft_nic.is_none().then_some(nic.unwrap_or("xl710")))
        );
    }
}

/// A client sees the values that it asked for, and the curves go through the point it asked about.
#[test]
fn curves_go_through_the_point() {
    let site = Site::new();
    let told = site.get("/v1/plan?length=3&frame=512&chains=2&cores=4");
    assert_eq!(
        [&told["length"], &told["frame"], &told["chains"], &told["cores"]],
        [&json!(3), &json!(512), &json!(2), &json!(4.0)]
    );
    let at = |curves: &Value, value: u32| {
        let place = curves["at"].as_array().unwrap().iter().position(|it| *it == json!(value));
        let place = place.unwrap();
        let lines = curves["lines"].as_array().unwrap();
        lines.iter().map(|line| line["mpps"][place].clone()).collect::<Vec<_>>()
    };
    let rates = at(&told["over_length"], 3);
    assert_eq!(rates, at(&told["over_frame"], 512));
    assert!(rates.iter().all(|rate| rate.as_f64().is_some_and(|rate| rate > 0.0)), "{rates:?}");
    let names = ["vf", "ends-on-vf", "synthetic", "kernel"];
    for (line, name) in told["over_frame"]["lines"].as_array().unwrap().iter().zip(names) {
        assert_eq!(line["placement"], json!(name));
    }
}

/// No value is a file, and none makes the computation long.
#[test]
fn values_are_bounded() {
    let site = Site::new();
    for (query, said) in [
        ("nic=/etc/passwd", "write one of 82598, cx6"),
        ("host=shunt.toml", "write one of nfv-2017, shunt"),
        ("length=9", "write a whole number, 1 to 8"),
        ("chains=65", "write a whole number, 1 to 64"),
        ("cores=0", "write a whole number, 1 to 64"),
        ("frame=+64", "write a whole number, 64 to 1518"),
        ("nic=e810&host=shunt", "leave nic out"),
        ("colour=red", "this path takes nic, host, cores, guest_cores, length, chains, frame"),
    ] {
        let refusal = site.refuses(400, "GET", &format!("/v1/plan?{query}"), null());
        assert!(refusal.body.to_string().contains(said), "{query}: {refusal:?}");
    }
}

#[test]
fn every_profile_is_offered() {
    let told = Site::new().get("/v1/plan");
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&told["nics"]), ::plan::machine::nics().collect::<Vec<_>>());
    assert_eq!(names(&told["hosts"]), ::plan::machine::hosts().collect::<Vec<_>>());
}
