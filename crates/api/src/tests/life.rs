//! Starts, stops and crashes.

use model::state::State;
use model::testing::{document, state};
use serde_json::json;

use super::{Site, eventually};
use crate::store::{Directory, Store};
use crate::testing::Paper;

#[test]
fn a_restart_brings_the_state_back_with_its_owners() {
    let mut site = Site::new();
    site.apply(document());
    let before = (site.get("/v1/state"), site.get("/v1/actual"));
    for _ in 0..3 {
        site.start(None);
        assert_eq!((site.get("/v1/state"), site.get("/v1/actual")), before);
    }
    assert_eq!(site.plane.0.lock().unwrap().reached, [state(&document())]);
}

/// The first of three adapters had the first VF and was removed: the others keep theirs over a
/// restart.
#[test]
fn adapters_have_the_same_vfs_after_a_restart() {
    let mut site = Site::new();
    let adapter = |number: u8| {
        json!({
            "name": format!("a{number}"),
            "nic": "nic0",
            "mac": format!("02:00:00:00:00:{number:02x}"),
            "iov_weight": 50,
            "attachment": {"socket": format!("/tmp/a{number}.sock")},
        })
    };
    let nic = json!({"name": "nic0", "total_vfs": 4, "num_vfs": 4});
    let adapters = [adapter(1), adapter(2), adapter(3)];
    site.apply(json!({"version": 1, "nic": [nic], "adapter": adapters}));
    site.does("DELETE", "/v1/adapters/a1", super::null());
    let before = site.get("/v1/actual");
    assert_eq!(before["actual"]["adapters"][1]["vf"], 2, "{before:#}");
    *site.plane.0.lock().unwrap() = Paper::default(); // a daemon that knows nothing
    site.start(None);
    assert_eq!(site.get("/v1/actual"), before);
}

#[test]
fn an_interrupted_apply_is_undone_at_the_next_start() {
    let mut site = Site::new();
    site.apply(document());
    site.server = None;
    {
        let (mut store, _) =
            Store::open(Directory::open(&site.dir.path().join("state")).unwrap()).unwrap();
        store.begin(&State::default()).unwrap(); // and the process is gone
    }
    site.start(None);
    assert_eq!(site.get("/v1/state"), state(&document()).to_document());
    let events = site.get("/v1/events");
    assert_eq!(events["events"][0]["kind"], "undo");
    site.start(None);
    assert_eq!(site.get("/v1/events")["events"][0]["kind"], "start", "once");
}

#[test]
fn a_damaged_journal_is_told_as_an_event() {
    let mut site = Site::new();
    site.apply(document());
    site.server = None;
    std::fs::write(site.dir.path().join("state/journal.json"), "{").unwrap();
    site.start(None);
    assert_eq!(site.get("/v1/state"), state(&document()).to_document());
    let event = &site.get("/v1/events")["events"][0];
    assert_eq!(event["kind"], "undo");
    let text = event["text"].as_str().unwrap();
    assert!(text.contains("state/journal.json.damaged"), "{text}");
    assert!(text.contains("state/state.json, generation 1"), "{text}");
}

#[test]
fn a_stored_state_that_cannot_be_brought_back_stops_the_start() {
    let mut site = Site::new();
    site.apply(document());
    site.server = None;
    std::fs::write(site.dir.path().join("state/state.json"), "{").unwrap();
    let told = format!("{:#}", site.manager().unwrap_err());
    assert!(
        told.contains("state.json is damaged") && told.contains("restore it from a copy"),
        "{told}"
    );
}

/// On a disk error the response reports it, and the state in force is the stored one.
#[test]
fn a_state_that_cannot_be_stored_is_not_in_force() {
    let site = Site::new();
    site.apply(document());
    let directory = site.dir.path().join("state");
    // A directory in the place of the new record: root, too, cannot write that.
    std::fs::create_dir(directory.join("state.json.new")).unwrap();
    let refusal = site.refuses(500, "DELETE", "/v1/adapters/db", super::null());
    let told = refusal.first();
    let record = directory.join("state.json");
    let message = format!("the state could not be stored: cannot write {}: ", record.display());
    assert!(told.message.starts_with(&message), "{refusal:?}");
    assert!(told.message.ends_with("(os error 21)"), "{refusal:?}");
    assert!(told.remedy.starts_with("free disk space or correct the permissions"), "{refusal:?}");
    assert_eq!(site.plane.0.lock().unwrap().reached.last(), Some(&state(&document())));
    assert_eq!(site.get("/v1/adapters").as_array().unwrap().len(), 2);
    std::fs::remove_dir(directory.join("state.json.new")).unwrap();
    site.does("DELETE", "/v1/adapters/db", super::null());
    assert_eq!(site.get("/v1/adapters").as_array().unwrap().len(), 1);
}

#[test]
fn dropping_the_server_ends_it_with_its_connections() {
    let mut site = Site::new();
    let idle = std::os::unix::net::UnixStream::connect(site.socket()).unwrap();
    site.server = None;
    assert!(!site.socket().exists());
    eventually("the connection ends", || {
        let mut byte = [0];
        matches!(std::io::Read::read(&mut &idle, &mut byte), Ok(0) | Err(_))
    });
}

#[test]
fn a_fault_of_the_data_plane_does_not_take_the_api_down() {
    let site = Site::new();
    site.apply(document());
    let poison = site.plane.clone();
    let _ = std::thread::spawn(move || {
        let _held = poison.0.lock().unwrap();
        panic!("on purpose: each later lock panics");
    })
    .join();
    let refusal = site.refuses(500, "GET", "/v1/actual", super::null());
    assert!(refusal.first().message.contains("restart the daemon"), "{refusal:?}");
    assert_eq!(site.get("/openapi.json")["openapi"], json!("3.1.0"), "still there");
}

/// A daemon that hangs: the client tells that it waits, and gives up at its limit.
#[test]
fn a_daemon_that_does_not_answer_is_waited_for_aloud() {
    static TOLD: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("api.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let client = super::Client::new(&socket).within(std::time::Duration::from_millis(200));
    let client = client.telling(|text| TOLD.lock().unwrap().push(text.to_owned()));
    let error = client.send(hyper::Method::GET, "/v1/state", None, None).unwrap_err();
    let place = socket.display();
    assert_eq!(*TOLD.lock().unwrap(), [format!("waiting for the daemon at {place}, up to 0.2 s")]);
    let told = format!("daemon at {place} has not answered within 0.2 s; see its log, ");
    assert!(error.to_string().starts_with(&told), "{error}");
}
