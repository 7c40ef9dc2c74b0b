//! Built-in experiment files, and errors in files.

use super::*;
use crate::PathKind;

fn shipped(name: &str) -> Experiment {
    Experiment::parse(Experiment::shipped(name).expect("it is shipped"), &[]).expect("it is right")
}

fn change(key: &'static str, value: impl Into<Value>) -> SettingOverride {
    SettingOverride { key, value: value.into() }
}

#[test]
fn every_shipped_file_has_its_name_and_its_paper() {
    for (name, text) in SHIPPED {
        let experiment = Experiment::parse(text, &[]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(experiment.name, name);
        assert!(experiment.paper.is_some(), "{name}");
        // `results.json` has the same experiment.
        let again = Experiment::parse(&toml::to_string(&experiment).unwrap(), &[]).unwrap();
        assert_eq!(again, experiment);
    }
}

#[test]
fn no_file_is_left_out() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/experiments");
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let files = names.filter(|name| name.to_string_lossy().ends_with(".toml")).count();
    assert_eq!(files, SHIPPED.len(), "each is in SHIPPED");
}

#[test]
fn the_schemas_in_the_repository_are_the_programs() {
    let kept = include_str!("../../../../lab/experiments/schema.json");
    let command = "run: shunt lab show --schema experiment > lab/experiments/schema.json";
    assert!(kept == schema(), "{command}");
    let kept = include_str!("../../../../docs/results.schema.json");
    let command = "run: shunt lab show --schema results > docs/results.schema.json";
    assert!(kept == crate::json::schema(), "{command}");
}

#[test]
fn published_values_are_in_the_published_tables() {
    let headlines = include_str!("../../../../published/headlines.csv");
    let tcp = include_str!("../../../../published/nfv_netperf_tcp.csv");
    let fields: Vec<&str> =
        [headlines, tcp].iter().flat_map(|text| text.split([',', '\n'])).collect();
    let is_published = |value: f64| {
        let number =
            |field: &&str| field.trim().trim_start_matches("close to ").parse::<f64>().ok();
        // Reports print Mbit/s as Gbit/s.
        let same = |field: f64| field == value || (field / 1e3 - value).abs() < 1e-9;
        fields.iter().filter_map(number).any(same)
    };
    let mut seen = 0;
    for (name, _) in SHIPPED {
        let experiment = shipped(name);
        let values = experiment.transfer.iter().flat_map(|sweep| sweep.published.values());
        let received = experiment.receive.iter().filter_map(|sweep| sweep.published);
        let received = received.flat_map(|it| [it.without_gbps, it.with_gbps]);
        for value in values.copied().chain(received) {
            assert!(is_published(value), "{name}: {value}");
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} values");
}

#[test]
fn changes_reach_every_table_and_nothing_else() {
    let text = Experiment::shipped("ntttcp").unwrap();
    let paths = Value::from(vec!["virtio"]);
    let changes = [change("paths", paths), change("rounds", 1), change("seconds", 0.5)];
    let experiment = Experiment::parse(text, &changes).unwrap();
    assert!(experiment.transfer.iter().all(|sweep| {
        (&sweep.paths[..], sweep.rounds, sweep.seconds) == (&[PathKind::Virtio][..], 1, 0.5)
    }));
    let error = Experiment::parse(text, &[change("guests", vec![1])]).unwrap_err().to_string();
    assert_eq!(error, "guests: is no setting of experiment ntttcp; leave it out");
}

#[test]
fn what_was_published_stands_beside_its_own_setting_only() {
    let text = Experiment::shipped("vmdq").unwrap();
    let published = |changes: &[SettingOverride]| {
        let experiment = Experiment::parse(text, changes).unwrap();
        experiment.receive.iter().map(|sweep| sweep.published.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(published(&[]), [false, true], "TCP over 10 GbE is no match for 64 B");
    assert_eq!(published(&[change("frame_bytes", vec![1518])]), [true], "one table is left");
    assert_eq!(published(&[change("frame_bytes", vec![256])]), [false]);
    assert_eq!(published(&[change("rounds", 1)]), [false, true]);
}

#[test]
fn a_path_that_the_machine_lacks_is_left_out() {
    let experiment = shipped("quick").on_paths(&[PathKind::Vf]);
    assert_eq!(experiment.forward[0].paths, [PathKind::Vf]);
    assert_eq!(experiment.paths().count(), 1);
    assert_eq!(shipped("ntttcp").on_paths(&[]).paths().count(), 0);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let told = |text: &str| Experiment::parse(text, &[]).unwrap_err().to_string();
    let head = "name = \"mine\"\ntitle = \"t\"\nquestion = \"q\"\n";
    assert!(told(head).starts_with("there are no measurements"), "{}", told(head));
    assert!(told(&format!("{head}colour = 1\n")).contains("colour"));
    let forward = |settings: &str| {
        format!(
            "{head}[[forward]]\npatterns = [\"east-west\"]\npaths = [\"vf\"]\nload = \"closed\"\n\
             ring = \"split\"\nrounds = 1\nwarmup_s = 0.1\nseconds = 0.2\n{settings}"
        )
    };
    let error = told(&forward("guests = [2, 9]\nframe_bytes = [64]\n"));
    assert_eq!(error, "[[forward]], guests: 9 is out of range; write a number, 1 to 8");
    let error = told(&forward("guests = [1]\nframe_bytes = [64]\n"));
    assert!(error.ends_with("write a number, 2 to 8"), "{error}");
    let error = told(&forward("guests = [2, 4, 2]\nframe_bytes = [64]\n"));
    assert_eq!(error, "[[forward]], guests: \"2\" is there twice; leave one of the two out");
    let error = told(&forward("guests = [2]\nframe_bytes = []\n"));
    assert_eq!(error, "[[forward]], frame_bytes: the list is empty; give at least one value");
    let error = told(&forward("guests = [2]\nframe_bytes = [\"big\"]\n"));
    assert!(error.contains("expected u32"), "{error}");
    let wrong = forward("guests = [2]\nframe_bytes = [\"big\"]\n");
    let error = Experiment::parse(&wrong, &[change("rounds", 1)]).unwrap_err();
    assert_eq!(error.problems[0].line, 13, "{error}");
    let receive = "[[receive]]\nguests = [1]\nframe_bytes = [64]\nrounds = 1\nwarmup_s = 0.1\n\
                   seconds = 0.2\npublished = { without_gbps = nan, with_gbps = 1.0 }\n";
    let error = told(&format!("{head}{receive}"));
    assert_eq!(
        error,
        "[[receive]], published: \"NaN\" is no measured value; write a number above 0"
    );
    let error = told(&head.replace("mine", "my own"));
    assert_eq!(
        error,
        "name: \"my own\" is no name of an experiment; use letters, digits and hyphens"
    );
}
