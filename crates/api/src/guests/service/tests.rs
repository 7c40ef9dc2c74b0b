//! Order of requests, with a simulated clock.

use std::collections::BTreeMap;

use super::*;

const GUESTS: usize = 6;

/// Number of responses to each guest.
type Answered = Arc<Mutex<BTreeMap<String, u32>>>;

/// A service thread with this many guests, each with a channel, and the responses to each.
fn service(now: Instant) -> (ServiceThread, Vec<UnixStream>, Answered) {
    let dir = tempfile::tempdir().unwrap();
    let answered = Answered::default();
    let counted = answered.clone();
    let answer: RequestHandler = Box::new(move |channel, _| {
        *counted.lock().unwrap().entry(channel.vpf.clone()).or_default() += 1;
        Ok(serde_json::Value::Null)
    });
    let mut guests = Vec::new();
    let served = (0..GUESTS).map(|i| {
        let path = dir.path().join(i.to_string());
        let socket = Listener::bind(&path).unwrap();
        guests.push(UnixStream::connect(&path).unwrap());
        let (vpf, socket) = (format!("vm{i}"), Arc::new(socket));
        ServedChannel::new(Channel { vpf, socket, connected: Arc::default() }, now)
    });
    let served = served.collect();
    let (_, woken) = UnixStream::pair().unwrap();
    let changes = Changes::new(now);
    let server = ServiceThread { wanted: Arc::default(), woken, served, changes, answer };
    (server, guests, answered)
}

#[test]
fn what_all_guests_change_is_rationed_and_each_has_its_turn() {
    let start = Instant::now();
    let (mut server, mut guests, answered) = service(start);
    // Each asks for as much as it may have at once: three times what all may.
    const EACH: usize = 20;
    let request = b"{\"v\":1,\"id\":5,\"op\":\"reset\",\"vf\":0}\n";
    guests.iter_mut().for_each(|guest| guest.write_all(&request.repeat(EACH)).unwrap());
    let after = |server: &mut ServiceThread, s: u64| {
        (0..2 * GUESTS * EACH).for_each(|_| server.turn(start + Duration::from_secs(s)));
        answered.lock().unwrap().values().copied().collect::<Vec<u32>>()
    };
    let at_once = after(&mut server, 0);
    assert_eq!(at_once.iter().sum::<u32>(), CHANGES.0);
    assert!(at_once.iter().all(|count| [6, 7].contains(count)), "{at_once:?}");
    let a_second_later = after(&mut server, 1);
    assert_eq!(a_second_later.iter().sum::<u32>(), CHANGES.0 + CHANGES.1 as u32);
    assert!(a_second_later.iter().all(|count| *count == 10), "{a_second_later:?}");
    let in_the_end = (2..10).map(|s| after(&mut server, s)).last().unwrap();
    assert_eq!(in_the_end, [EACH as u32; GUESTS]);
    // A read-only request does not wait for that.
    guests[0].write_all(b"{\"v\":1,\"id\":5,\"op\":\"list\"}\n").unwrap();
    server.turn(start + Duration::from_secs(9));
    assert_eq!(answered.lock().unwrap()["vm0"], EACH as u32 + 1);
}
