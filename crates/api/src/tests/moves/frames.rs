//! Frames that a move carries: answered again, taken once, given back.

use serde_json::{Value, json};

use super::*;

fn numbered(numbers: std::ops::Range<u8>) -> Vec<Vec<u8>> {
    numbers.map(|number| vec![number; 60]).collect()
}

fn digits(frames: &[Vec<u8>]) -> Value {
    let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    frames.iter().map(hex).collect()
}

impl Site {
    fn keeps(&self, name: &str, frames: Vec<Vec<u8>>) {
        let mut paper = self.plane.0.lock().unwrap();
        paper.kept.entry(name.to_owned()).or_default().extend(frames);
    }

    fn kept(&self, name: &str) -> Vec<Vec<u8>> {
        self.plane.0.lock().unwrap().kept.get(name).cloned().unwrap_or_default()
    }
}

/// A lost response can be requested again; an abort loses no frame.
#[test]
fn what_was_handed_over_is_answered_again_and_given_back_by_an_abort() {
    let site = Site::new();
    site.apply(document());
    let from = |from: u64| json!({"id": "m1", "step": "hand-over", "from": from});
    site.moves("web", step("leave"));
    site.keeps("web", numbered(0..3));
    for _ in 0..2 {
        let status = site.moves("web", step("hand-over"));
        assert_eq!(status["frames"], digits(&numbered(0..3)));
        assert_eq!((&status["from"], &status["kept"]), (&json!(0), &json!(0)));
    }
    site.keeps("web", numbered(3..5)); // in the moment of the change
    let status = site.moves("web", from(3));
    assert_eq!((&status["frames"], &status["from"]), (&digits(&numbered(3..5)), &json!(3)));
    assert_eq!(site.moves("web", from(1))["frames"], digits(&numbered(1..5)));
    assert_eq!(site.moves("web", from(99))["frames"], json!([]));
    // The frames parked at the target follow them.
    let back = json!({"id": "m1", "step": "frames", "from": 0, "frames": digits(&numbered(5..6))});
    site.moves("web", back.clone());
    site.moves("web", back);
    site.moves("web", step("abort"));
    assert_eq!(site.kept("web"), numbered(0..6));

    // The same if its rings say that the guest is here after all.
    site.moves("web", step("leave"));
    site.moves("web", step("hand-over"));
    assert_eq!(site.kept("web"), Vec::<Vec<u8>>::new());
    site.set_connected("web", true);
    eventually("it is given back", || site.kept("web") == numbered(0..6));
    assert_eq!(site.get("/v1/adapters/web").get("move"), None);
}

#[test]
fn frames_that_are_brought_again_are_not_taken_again() {
    let site = Site::new();
    site.apply(document());
    site.moves("new", arrival("new", 9, 1));
    site.moves("new", step("take-over"));
    site.keeps("new", numbered(9..10)); // came here
    let chunk = |from: u8, to: u8| {
        let frames = digits(&numbered(from..to));
        json!({"id": "m1", "step": "frames", "from": from, "frames": frames})
    };
    for (from, to) in [(0, 2), (0, 2), (2, 4), (1, 4), (3, 5)] {
        site.moves("new", chunk(from, to));
    }
    let refusal = site.refuses(409, "POST", "/v1/adapters/new/move", chunk(6, 7));
    assert_eq!(
        (&*refusal.first().field, &*refusal.first().message),
        ("from", "frames 5 to 5 are missing")
    );
    let all = [numbered(0..5), numbered(9..10)].concat();
    assert_eq!(site.kept("new"), all);
    // It tells them from what came here; again, though the adapter has gone with the step.
    for _ in 0..2 {
        let status = site.moves("new", step("abort"));
        assert_eq!((&status["frames"], &status["brought"]), (&digits(&all), &json!(5)));
    }
    site.refuses(404, "POST", "/v1/adapters/new/move", json!({"id": "m2", "step": "abort"}));
    site.tick_in(70_000);
    site.refuses(404, "POST", "/v1/adapters/new/move", step("abort"));
}
