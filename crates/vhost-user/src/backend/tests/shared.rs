//! The dirty log, inflight records, back-end requests, and the device's state.

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::*;
use crate::backend::RingLog;
use crate::payload::{Inflight, StateTransfer};
use crate::socket::{Receiver, send};

fn log(size: u64) -> Message {
    message(Request::SetLogBase, &LogArea { size, offset: 0 }, 1)
}

fn logged(index: u32, at: u64) -> VringAddr {
    VringAddr { flags: VRING_LOG, log: at, ..addresses(index) }
}

fn set_log(session: &mut Session, size: u64) {
    let reply: LogArea = session.ask(log(size));
    assert_eq!(reply, LogArea { size, offset: 0 });
}

/// With rings 0 and 1 running.
fn running() -> Session {
    let mut session = Session::ready();
    for index in [0, 1] {
        session.set_up(index, 0);
        session.enable(index, true);
    }
    session
}

#[test]
fn a_migration_begins_and_ends_while_rings_run() {
    let mut session = running();
    session.device.served = 3;
    // In QEMU's order: log, features, addresses.
    set_log(&mut session, 4096);
    assert_eq!(session.device.ring(0).unwrap().log, None);
    session.done(message(Request::SetFeatures, &(OFFERED | LOG_ALL), 0));
    let all = RingLog { buffers: true, used: None };
    assert_eq!(session.device.ring(1).unwrap().log, Some(all));
    for index in [0, 1] {
        session.done(message(Request::SetVringAddr, &logged(index, 0x5000), 0));
        let log = session.device.ring(index as usize).unwrap().log;
        assert_eq!(log, Some(RingLog { used: Some(0x5000), ..all }));
    }
    // Memory was added: a larger log.
    set_log(&mut session, 8192);
    assert_eq!(session.device.log(), Some(8192));

    session.done(message(Request::SetFeatures, &OFFERED, 0));
    assert_eq!(session.device.log(), Some(8192), "two rings still log their used rings");
    let used = Some(RingLog { buffers: false, used: Some(0x5000) });
    assert_eq!(session.device.ring(0).unwrap().log, used);
    for index in [0, 1] {
        session.done(message(Request::SetVringAddr, &addresses(index), 0));
        assert_eq!(session.device.ring(index as usize).unwrap().log, None);
    }
    assert_eq!(session.device.log(), None, "no ring needs it");
    let calls = session.device.calls();
    assert_eq!((calls.starts, calls.stops), (2, 0), "they never stood");
    // Memory and rings 5 times, for 2 rings each except the addresses.
    let base = session.device.ring(0).unwrap().base;
    assert_eq!(u64::from(base), 3 * calls.renewals / 2);
}

#[test]
fn a_ring_that_must_log_waits_for_the_log() {
    // A guest boots during its migration: QEMU sends the log last.
    let mut session = Session::ready();
    session.done(message(Request::SetFeatures, &(OFFERED | LOG_ALL), 0));
    session.set_up(0, 7);
    session.done(message(Request::SetVringAddr, &logged(0, 0x5000), 0));
    session.enable(0, true);
    assert!(!session.runs(0));
    set_log(&mut session, 4096);
    assert!(session.runs(0));
    assert_eq!(session.device.ring(0).unwrap().base, 7);
    // The flag alone requires it as well.
    session.done(message(Request::SetFeatures, &OFFERED, 0));
    session.done(message(Request::SetVringAddr, &addresses(0), 0));
    assert!(session.runs(0) && session.device.log().is_none());
    session.done(message(Request::SetVringAddr, &logged(0, 0x5000), 0));
    assert!(!session.runs(0));
    session.done(message(Request::SetVringAddr, &addresses(0), 0));
    assert!(session.runs(0));
}

#[test]
fn who_has_no_shared_log_has_none_to_wait_for() {
    let mut session = Session::new(CONFIG);
    let without = ProtocolFeatures::SUPPORTED - ProtocolFeatures::LOG_SHMFD;
    session.done(message(Request::SetProtocolFeatures, &without.bits(), 0));
    session.done(message(Request::SetFeatures, &(OFFERED | LOG_ALL), 0));
    session.done(table(&[region(0, 0x1000)]));
    session.set_up(0, 0);
    session.enable(0, true);
    assert_eq!(session.device.ring(0).unwrap().log, None);
    let wanted = Reason::NotNegotiated(ProtocolFeatures::LOG_SHMFD);
    assert_eq!(session.fail(log(4096)), wanted);
    let addr = message(Request::SetVringAddr, &logged(0, 0), 0);
    assert_eq!(session.fail(addr), wanted);
    assert!(session.runs(0));
}

#[test]
fn a_ring_that_cannot_start_does_not_keep_the_log_out() {
    let mut session = Session::ready();
    session.set_up(0, 3);
    session.device.refusals = 1;
    session.fail(message(Request::SetVringEnable, &state(0, 1), 0));
    session.device.refusals = 0b10; // the log is taken, the ring refused once more
    set_log(&mut session, 4096);
    let refusal = session.backend.take_refusal().expect("the operator is told");
    assert!(matches!(refusal.reason, Reason::Device(_)), "{refusal}");
    assert_eq!((session.device.log(), session.runs(0)), (Some(4096), false));
    session.device.refusals = 0;
    session.enable(0, true);
    assert!(session.runs(0));
}

#[test]
fn a_log_that_is_refused_leaves_the_old() {
    let mut session = running();
    set_log(&mut session, 4096);
    for (size, offset) in [(0, 0), (2, u64::MAX)] {
        let bad = message(Request::SetLogBase, &LogArea { size, offset }, 1);
        assert_eq!(session.fail(bad), Reason::BadArea { size, offset });
    }
    session.device.refusals = 1;
    assert!(matches!(session.fail(log(8192)), Reason::Device(_)));
    assert_eq!((session.device.log(), session.device.rings_running()), (Some(4096), 2));
    session.device.refusals = 0;
    session.backend.disconnect(&mut session.device);
    assert_eq!(session.device.log(), None);
}

fn inflight(request: Request, rings: u16, fds: usize) -> Message {
    let asked = Inflight { rings, ring_size: 256, size: 128, ..Inflight::default() };
    message(request, &asked, fds)
}

#[test]
fn records_of_what_is_in_flight_come_and_go() {
    let mut session = running();
    let reply = session.handle(inflight(Request::GetInflightFd, 2, 0)).unwrap().unwrap();
    let given = Inflight::read_from_bytes(&reply.payload).unwrap();
    assert_eq!((given.size, given.offset, given.rings, given.ring_size), (128, 0, 2, 256));
    assert_eq!((reply.fds.len(), session.device.inflight()), (1, Some(2)));
    assert_eq!(session.device.calls().renewals, 2, "rings that run keep records from now on");
    session.done(inflight(Request::SetInflightFd, 4, 1));
    assert_eq!(session.device.inflight(), Some(4));
    // Also with the length of the specification.
    let mut short = inflight(Request::GetInflightFd, 1, 0);
    short.payload.truncate(Inflight::UNPADDED);
    let reply = session.handle(short).unwrap().unwrap();
    assert_eq!(reply.payload.len(), Inflight::UNPADDED);
    for rings in [0, 5, u16::MAX] {
        let reason = session.fail(inflight(Request::GetInflightFd, rings, 0));
        assert_eq!(reason, Reason::InflightRings { rings, ring_size: 256, has: 4 });
        let reason = session.fail(inflight(Request::SetInflightFd, rings, 1));
        assert_eq!(reason, Reason::InflightRings { rings, ring_size: 256, has: 4 });
    }
    session.backend.disconnect(&mut session.device);
    assert_eq!((session.device.inflight(), session.device.cleared), (None, 0), "they stay valid");
}

#[test]
fn a_record_ends_when_the_front_end_knows_better() {
    let mut session = running();
    session.done(inflight(Request::SetInflightFd, 4, 1));
    let _: VringState = session.ask(message(Request::GetVringBase, &state(0, 0), 0));
    assert_eq!(session.device.cleared, 1);
    session.done(message(Request::SetStatus, &0u64, 0));
    assert_eq!(session.device.cleared, 1 + 4, "a reset restarts all rings");
    session.done(message(Request::ResetDevice, &[0u8; 0], 0));
    assert_eq!(session.device.cleared, 1 + 4 + 4);
}

#[test]
fn changes_of_the_configuration_are_told_to_who_wants_to_know() {
    let mut session = Session::ready();
    assert!(session.backend.config_change().is_none());
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut channel = message(Request::SetBackendReqFd, &[0u8; 0], 0);
    channel.fds.push(theirs.into());
    session.done(channel);
    let (stream, change) = session.backend.config_change().unwrap();
    send(stream, &change).unwrap();
    let came = Receiver::new().poll(&ours).unwrap().unwrap();
    assert_eq!((came.request, came.flags, came.payload.len()), (2, Flags::empty(), 0));
    // Only with CONFIG, without which the front-end would not read it again.
    let without = (ProtocolFeatures::SUPPORTED - ProtocolFeatures::CONFIG).bits();
    session.done(message(Request::SetProtocolFeatures, &without, 0));
    assert!(session.backend.config_change().is_none());

    let reason = session.fail(message(Request::SetBackendReqFd, &[0u8; 0], 1));
    assert_eq!(reason, Reason::NotASocket);
    session.backend.disconnect(&mut session.device);
    assert!(session.backend.config_change().is_none());
}

fn transfer(direction: u32, pipe: impl Into<OwnedFd>) -> Message {
    let payload = StateTransfer { direction, phase: StateTransfer::STOPPED };
    let mut message = message(Request::SetDeviceStateFd, &payload, 0);
    message.fds.push(ForeignFd::from(pipe));
    message
}

#[test]
fn a_state_is_saved_and_loaded() {
    let mut source = Session::ready();
    let mut target = Session::ready();
    source.device.state = b"what a guest leaves behind".to_vec();
    let (read, write) = std::io::pipe().unwrap();
    assert_eq!(source.ask::<u64>(transfer(StateTransfer::SAVE, write)), 0x100);
    crate::transfer::wait_for_end(&read);
    let check = || message(Request::CheckDeviceState, &[0u8; 0], 0);
    assert_eq!(source.ask::<u64>(check()), 0);
    assert_eq!(target.ask::<u64>(transfer(StateTransfer::LOAD, read)), 0x100);
    assert_eq!(target.ask::<u64>(check()), 0);
    assert_eq!(target.device.state, source.device.state);

    // A front-end that asks too early gets an error, and the operator the cause.
    let (read, mut write) = std::io::pipe().unwrap();
    write.write_all(b"half").unwrap();
    assert_eq!(target.ask::<u64>(transfer(StateTransfer::LOAD, read)), 0x100);
    assert_eq!(target.ask::<u64>(check()), 1);
    let refusal = target.backend.take_refusal().unwrap().to_string();
    assert!(refusal.starts_with("CHECK_DEVICE_STATE (43): refused by the device"), "{refusal}");
}

#[test]
fn a_state_is_not_moved_under_rings_that_run() {
    let mut session = running();
    let (read, _write) = std::io::pipe().unwrap();
    assert_eq!(session.ask::<u64>(transfer(StateTransfer::SAVE, read)), 0x101);
    assert_eq!(session.backend.take_refusal().unwrap().reason, Reason::StateWhileRunning);
    let mut session = Session::ready();
    let (read, _write) = std::io::pipe().unwrap();
    assert_eq!(session.ask::<u64>(transfer(7, read)), 0x101);
    let reason = session.backend.take_refusal().unwrap().reason;
    assert_eq!(reason, Reason::StateTransfer { direction: 7, phase: 0 });
}
