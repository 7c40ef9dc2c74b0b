//! The planner from the command line: output, and errors for invalid input.

mod terminal;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use model::config::{Config, default_run_dir};
use serde_json::Value;

const CHAIN: &str = r#"
frames = "imix"
[[service]]
name = "firewall"
guests = 2
adapters = ["outside", "inside"]
[[service]]
name = "cache"
[[flow]]
name = "in"
through = ["wire", "firewall", "cache"]
mpps = 1.5
[[flow]]
name = "out"
through = ["cache", "wire"]
mpps = 1.0
"#;

const FLEET: &str = r#"
[[host]]
name = "rack"
count = 4
nic = "xl710"
profile = "nfv-2017"
guest_cores = 28
[[chain]]
name = "edge"
count = 10
services = 4
mpps = 0.5
frames = "imix"
"#;

/// Runs `shunt plan` with these arguments; returns its exit code and both outputs.
fn plan(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_shunt"))
        .arg("plan")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("shunt was built for this test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn json(args: &[&str]) -> Value {
    let (code, said, error) = plan(&[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{error}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().expect("a temporary directory's name is text").to_owned()
}

#[test]
fn one_point_names_its_limit_and_its_terms() {
    let mut args =
        vec!["predict", "--nic", "xl710", "--pattern", "east-west", "--path", "synthetic"];
    args.extend(["--frame", "64", "--guests", "8"]);
    let point = json(&args);
    let mpps = point["mpps"].as_f64().unwrap();
    assert!((39.0..44.0).contains(&mpps), "the paper has 41.46: {point:#}");
    assert!((point["gbps"].as_f64().unwrap() - mpps * 60.0 * 8.0 / 1000.0).abs() < 1e-9);
    assert_eq!(point["binding_limit"], "guest-port");
    assert_eq!(point["terms"][0]["limit"], "guest-port");
    assert_eq!(point["terms"][0]["mpps"], point["mpps"]);
    let (code, said, _) = plan(&args);
    assert_eq!(code, Some(0));
    assert!(said.contains("bottleneck guest-port") && said.is_ascii(), "{said}");
}

#[test]
fn points_of_few_guests_tell_those_of_many() {
    let said = json(&["validate", "--fit-guests", "4"]);
    assert_eq!(said["points"], 96);
    assert!(said["median_error_pct"].as_f64().unwrap() <= 5.0, "{said:#}");
    assert!(said["worst_error_pct"].as_f64().unwrap() <= 25.0, "{said:#}");
    assert_eq!(said["list"].as_array().unwrap().len(), 180);
    let (code, people, _) = plan(&["validate"]);
    assert_eq!(code, Some(0));
    assert!(people.contains("Not explained"), "{people}");
}

/// Results of the lab become a profile, which other queries use.
#[test]
fn a_run_of_the_lab_becomes_a_host() {
    let dir = tempfile::tempdir().unwrap();
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../plan/measured/shunt-lab.json");
    let here = dir.path().join("here.toml");
    let here = here.to_str().unwrap();
    let said = json(&["validate", "--from", run, "--fit-guests", "2", "--write", here]);
    assert_eq!((&said["fit_guests"], &said["guests_max"]), (&2.into(), &8.into()));
    assert!(said["median_error_pct"].as_f64().unwrap() <= 15.0, "{said:#}");
    let args = ["predict", "--pattern", "north-south", "--path", "vf", "--frame", "1518"];
    let point = json(&[&args[..], &["--guests", "4", "--host", here]].concat());
    let listed = said["list"].as_array().unwrap().iter().find(|one| {
        one["pattern"] == "north-south"
            && one["path"] == "vf"
            && (&one["frame_bytes"], &one["guests"]) == (&1518.into(), &4.into())
    });
    let (mpps, listed) = (&point["mpps"], &listed.unwrap()["predicted_mpps"]);
    let off = mpps.as_f64().unwrap() / listed.as_f64().unwrap() - 1.0;
    assert!(off.abs() < 1e-9, "{mpps} and {listed}");
    let no_run = file(dir.path(), "results.json", "{}");
    let (code, _, error) = plan(&["validate", "--from", &no_run]);
    assert_eq!(code, Some(2));
    assert!(error.contains("results.json: invalid results"), "{error}");
}

#[test]
fn a_workload_gets_paths_and_a_configuration_that_the_daemon_takes() {
    let dir = tempfile::tempdir().unwrap();
    let chain = file(dir.path(), "chain.toml", CHAIN);
    let to = dir.path().join("shunt.toml");
    let said = json(&["--workload", &chain, "--write", to.to_str().unwrap()]);
    let adapters = said["adapters"].as_array().unwrap();
    assert_eq!(adapters.len(), 3, "{said:#}");
    assert!(said["scale"].as_f64().unwrap() > 1.0);
    let text = std::fs::read_to_string(&to).unwrap();
    Config::parse("shunt.toml", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let swept = json(&["--workload", &chain, "--what-if", "cores=1..4"]);
    let scales: Vec<f64> = swept["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["scale"].as_f64().unwrap())
        .collect();
    assert!(scales.len() == 4 && scales.is_sorted(), "{swept:#}");
    let swept = json(&["--workload", &chain, "--what-if", "nic=x520,xl710"]);
    assert_eq!((&swept["list"][0]["value"], &swept["figure"]), (&"x520".into(), &"nic".into()));
    assert!(swept["list"][0]["scale"].as_f64() < swept["list"][1]["scale"].as_f64(), "{swept:#}");
}

/// A daemon with run directory `DIR/shunt`.
struct Daemon<'d>(&'d Path, std::process::Child);

impl<'d> Daemon<'d> {
    fn up(dir: &'d Path) -> Self {
        let run_dir = format!("run_dir = {:?}\n", dir.join("shunt"));
        let config = file(dir, "empty.toml", &run_dir);
        let mut command = shunt(dir, &["up", "--with-parent", "--config", &config]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("shunt was built");
        let mut line = String::new();
        let out = child.stdout.take().expect("it was piped");
        BufReader::new(out).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Self(dir, child)
    }

    /// Output of a command that succeeds.
    fn says(&self, args: &[&str]) -> String {
        let output = shunt(self.0, args).output();
        let output = output.expect("shunt was built");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        assert!(output.status.success(), "{args:?}: {}", text(output.stderr));
        text(output.stdout)
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
    }
}

/// A command for the daemon of `DIR/shunt`.
fn shunt(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shunt"));
    command.args(args).stdin(Stdio::null()).env("SHUNT_RUN_DIR", dir.join("shunt"));
    command
}

#[test]
fn a_written_configuration_comes_up_on_the_planned_paths() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // The cache's path is fixed, so the plan has both paths.
    let chain = CHAIN.replace("name = \"cache\"", "name = \"cache\"\npath = \"synthetic\"");
    let chain = file(dir, "chain.toml", &chain);
    let written = dir.join("planned.toml");
    let written = written.to_str().unwrap();
    let daemon = Daemon::up(dir);
    let said = daemon.says(&["plan", "--workload", &chain, "--write", written, "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let mut planned = BTreeMap::new();
    for adapter in said["adapters"].as_array().unwrap() {
        let name = adapter["adapter"].as_str().unwrap();
        let path = adapter["path"].as_str().unwrap().to_owned();
        match name {
            "cache" => drop(planned.insert(name.to_owned(), path)),
            _ => planned.extend((0..2).map(|guest| (format!("{name}-{guest}"), path.clone()))),
        }
    }
    // The file's sockets are in the default run directory of this user.
    let text = std::fs::read_to_string(written).unwrap();
    let sockets = |dir: &Path| format!("socket = \"{}/", dir.display());
    let here = text.replace(&sockets(&default_run_dir()), &sockets(&dir.join("shunt")));
    assert_ne!(here, text);
    std::fs::write(written, here).unwrap();
    let paths: BTreeSet<&str> = planned.values().map(String::as_str).collect();
    assert_eq!(paths, BTreeSet::from(["synthetic", "vf"]), "{said:#}");
    daemon.says(&["apply", "--file", written]);
    let list: Value = serde_json::from_str(&daemon.says(&["adapter", "list", "--json"])).unwrap();
    let in_force: BTreeMap<String, String> = (list.as_array().unwrap().iter())
        .map(|adapter| {
            (adapter["name"].as_str().unwrap(), adapter["actual_path"].as_str().unwrap())
        })
        .map(|(name, path)| (name.to_owned(), path.to_owned()))
        .collect();
    assert_eq!(in_force, planned);
}

#[test]
fn paths_have_the_daemons_names_with_a_papers_in_brackets() {
    let (code, said, _) = plan(&["validate"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("on path synthetic (vhost)"), "{said}");
    let unexplained = said.lines().filter(|line| line.contains(" B, "));
    assert!(unexplained.clone().count() > 0, "{said}");
    for line in unexplained {
        assert!(line.contains(" vf ") || line.contains(" synthetic (vhost) "), "{line}");
    }
    let args = ["predict", "--pattern", "north-south", "--frame", "64", "--guests", "1", "--path"];
    let (code, _, error) = plan(&[&args[..], &["vhost"]].concat());
    assert_eq!(code, Some(2));
    assert!(error.contains("write one of vf, synthetic, kernel (vhost is synthetic)"), "{error}");
}

#[test]
fn what_cannot_be_gets_one_clear_message() {
    let dir = tempfile::tempdir().unwrap();
    let cycle = CHAIN.replace("\"firewall\", \"cache\"]", "\"firewall\", \"cache\", \"firewall\"]");
    let bad = [
        ("cycle.toml", cycle.as_str(), "\"firewall\" is passed twice"),
        ("zero.toml", &CHAIN.replace("imix", "0"), "the workload, frames: 0 is out of range"),
        ("none.toml", "", "has no [[service]]"),
        ("many.toml", &CHAIN.replace("guests = 2", "guests = 70\npath = \"vf\""), "needs 140 VFs"),
    ];
    for (name, text, expected) in bad {
        let path = file(dir.path(), name, text);
        let (code, said, error) = plan(&["--workload", &path]);
        assert_eq!((code, said.as_str()), (Some(2), ""), "{name}: {error}");
        assert!(error.contains(expected) && error.contains(name), "{name}: {error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
    let chain = file(dir.path(), "chain.toml", CHAIN);
    for (args, expected) in [
        (&["--nic", "3c509"][..], "--nic: \"3c509\" is no NIC profile; write one of 82598"),
        (&["--cores", "0"], "--cores: 0 is out of range; write a number, 0.001 to 1024"),
        (&["--what-if", "colour=1..3"], "cores, guest-cores"),
        (&["--what-if", "cores=many"], "--what-if: \"cores=many\" is no number"),
        (
            &["--what-if", "cores=0"],
            "--what-if: \"cores=0\" is out of range; write a number, 0.001 to 1024",
        ),
        (&["--what-if", "cores=9..1"], "such as 1..8"),
        (&["--what-if", "lanes=3"], "1, 2, 4, 8 or 16 lanes"),
        (&["--what-if", "nic=xl710,3c509"], "--what-if: \"nic=3c509\" is no NIC profile"),
    ] {
        let (code, _, error) = plan(&[&["--workload", &chain], args].concat());
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_fleet_that_is_too_small_names_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "fleet.toml", FLEET);
    let said = json(&["fleet", "--fleet", &path]);
    assert_eq!(said["plan"]["solved"]["placed"], 10, "{said:#}");
    let small = file(dir.path(), "small.toml", &FLEET.replace("count = 4", "count = 1"));
    let said = json(&["fleet", "--fleet", &small]);
    assert_eq!(said["plan"]["missing"][0]["limit"], "cores", "{said:#}");
    let (code, people, _) = plan(&["fleet", "--fleet", &small]);
    assert_eq!(code, Some(0));
    assert!(people.contains("cores: all chains need 1.4x of what is available"), "{people}");
}

#[test]
fn the_output_fits_terminals_of_80_and_60_columns() {
    let dir = tempfile::tempdir().unwrap();
    let long = "l".repeat(26);
    let chain = CHAIN.replace("firewall", &long).replace("cache", &format!("{long}-cache"));
    let [chain, fleet, small] = [
        ("chain.toml", chain),
        ("fleet.toml", FLEET.to_owned()),
        ("small.toml", FLEET.replace("count = 4", "count = 1").replace("edge", &long)),
    ]
    .map(|(name, text)| file(dir.path(), name, &text));
    let predict = ["plan", "predict", "--guests", "4", "--frame", "512", "--path", "vf"];
    for words in [
        &["plan", "--workload", &chain][..],
        &["plan", "--workload", &chain, "--what-if", "nic=x520,xl710"],
        &["plan", "fleet", "--fleet", &fleet],
        &["plan", "fleet", "--fleet", &small],
        &[&predict[..], &["--pattern", "east-west"]].concat(),
        &["plan", "validate"],
    ] {
        terminal::fits(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
    }
}

#[test]
fn a_chain_is_drawn() {
    let (code, svg, error) = plan(&["explain", "--guests", "6"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(svg.starts_with("<svg") && svg.contains("12 crossings of PCIe"), "{svg}");
}

/// The examples in the document are valid files.
#[test]
fn the_examples_of_the_page_are_files_that_work() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = std::fs::read_to_string(docs.join("planner.md")).expect("the page");
    let mut shown = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    for (name, command, option) in
        [("chain.toml", &["plan"][..], "--workload"), ("fleet.toml", &["plan", "fleet"], "--fleet")]
    {
        let path = docs.join(name);
        let text = std::fs::read_to_string(&path).expect("an example");
        assert!(text.ends_with(shown.next().expect("an example")), "{name} is not what is shown");
        let mut program = Command::new(env!("CARGO_BIN_EXE_shunt"));
        let output = program.args(command).arg(option).arg(&path).output().expect("it runs");
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
