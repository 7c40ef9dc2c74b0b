//! Features, acknowledgements, status and configuration.

use super::*;
use crate::payload::ConfigHeader;

fn config_message(request: Request, offset: u32, bytes: &[u8]) -> Message {
    let header = ConfigHeader { offset, size: bytes.len() as u32, flags: 0 };
    message(request, &[header.as_bytes(), bytes].concat()[..], 0)
}

#[test]
fn a_back_end_does_not_offer_what_it_cannot_serve() {
    let new = |config| Backend::new(config).err();
    assert_eq!(new(CONFIG), None);
    for pairs in [0, 129] {
        let error = new(BackendConfig { queue_pairs_max: pairs, ..CONFIG });
        assert_eq!(error, Some(ConfigError::QueuePairs(pairs)));
    }
    for slots in [0, 513] {
        let error = new(BackendConfig { mem_slots_max: slots, ..CONFIG });
        assert_eq!(error, Some(ConfigError::MemSlots(slots)));
    }
    let features = Features::ACCESS_PLATFORM;
    let error = new(BackendConfig { features: features.bits() | FEATURES, ..CONFIG });
    assert_eq!(error, Some(ConfigError::Features(features)));
    let error = new(BackendConfig { features: LOG_ALL | FEATURES, ..CONFIG });
    assert_eq!(error, Some(ConfigError::Features(Features::LOG_ALL)));
    let protocol_features = ProtocolFeatures::PAGEFAULT;
    let error = new(BackendConfig { protocol_features, ..CONFIG });
    assert_eq!(error, Some(ConfigError::ProtocolFeatures(protocol_features)));
}

#[test]
fn features_are_offered_and_accepted() {
    let mut session = Session::new(CONFIG);
    let offered: u64 = session.ask(message(Request::GetFeatures, &[0u8; 0], 0));
    assert_eq!(offered, OFFERED | LOG_ALL);
    let protocol: u64 = session.ask(message(Request::GetProtocolFeatures, &[0u8; 0], 0));
    assert_eq!(protocol, ProtocolFeatures::SUPPORTED.bits());
    assert_eq!(session.ask::<u64>(message(Request::GetQueueNum, &[0u8; 0], 0)), 2);
    let reason = session.fail(message(Request::SetFeatures, &(OFFERED | 1 << 40), 0));
    assert_eq!(reason, Reason::FeaturesNotOffered(1 << 40));
    let reason = session.fail(message(Request::SetProtocolFeatures, &(1u64 << 8), 0));
    assert_eq!(reason, Reason::FeaturesNotOffered(1 << 8));
    session.done(message(Request::SetFeatures, &OFFERED, 0));
    assert_eq!(session.backend.features(), OFFERED);
}

#[test]
fn without_protocol_features_none_can_be_used() {
    let protocol_features = ProtocolFeatures::empty();
    let mut session = Session::new(BackendConfig { protocol_features, ..CONFIG });
    assert_eq!(session.ask::<u64>(message(Request::GetFeatures, &[0u8; 0], 0)), FEATURES);
    for request in [Request::GetQueueNum, Request::ResetDevice] {
        assert_eq!(session.fail(message(request, &[0u8; 0], 0)), Reason::NotOffered);
    }
    for request in [Request::NetSetMtu, Request::SendRarp] {
        assert_eq!(session.fail(message(request, &1500u64, 0)), Reason::NotOffered);
    }
    let reason = session.fail(message(Request::SetVringEnable, &state(0, 1), 0));
    assert_eq!(reason, Reason::NotOffered);
    let wanted = Reason::NotNegotiated(ProtocolFeatures::STATUS);
    assert_eq!(session.fail(message(Request::GetStatus, &[0u8; 0], 0)), wanted);
    let wanted = Reason::NotNegotiated(ProtocolFeatures::CONFIG);
    assert_eq!(session.fail(config_message(Request::GetConfig, 0, &[0; 6])), wanted);
    let wanted = Reason::NotNegotiated(ProtocolFeatures::CONFIGURE_MEM_SLOTS);
    assert_eq!(session.fail(message(Request::GetMaxMemSlots, &[0u8; 0], 0)), wanted);
}

#[test]
fn acknowledgements_tell_success_and_refusal() {
    let mut session = Session::new(CONFIG);
    // Not negotiated: the flag is ignored.
    session.done(asked(message(Request::SetOwner, &[0u8; 0], 0)));
    let bits = CONFIG.protocol_features.bits();
    let ack: u64 = session.ask(asked(message(Request::SetProtocolFeatures, &bits, 0)));
    assert_eq!(ack, 0);
    // Not requested: none.
    session.done(message(Request::SetOwner, &[0u8; 0], 0));
    // Refused: reported to the front-end, and the cause to the operator.
    let bad = || message(Request::SetVringNum, &state(0, 3), 0);
    assert_eq!(session.ask::<u64>(asked(bad())), 1);
    let refusal = session.backend.take_refusal().unwrap();
    assert_eq!(
        refusal.to_string(),
        "SET_VRING_NUM (8): size 3 of ring 0; allowed: up to 32768, and for a split ring a power of two"
    );
    assert_eq!(session.backend.take_refusal(), None, "told once");
    assert_eq!(session.fail(bad()), refusal.reason, "without an answer it is an error");
    // Unknown requests, and those of features not offered, alike.
    let mut unknown = asked(message(Request::SetOwner, &[0u8; 0], 0));
    unknown.request = 4711;
    assert_eq!(session.ask::<u64>(unknown), 1);
    for request in [Request::IotlbMsg, Request::SetLogFd, Request::VringKick] {
        assert_eq!(session.ask::<u64>(asked(message(request, &0u64, 1))), 1);
        assert_eq!(session.backend.take_refusal().unwrap().reason, Reason::NotOffered);
        assert_eq!(session.fail(message(request, &0u64, 1)), Reason::NotOffered);
    }
    // A malformed message, or one with a reply of its own, cannot be answered so.
    let malformed = session.fail(asked(message(Request::SetFeatures, &0u32, 0)));
    assert_eq!(malformed, Reason::PayloadSize { expected: 8, got: 4 });
    let valueless = session.fail(asked(message(Request::GetVringBase, &state(9, 0), 0)));
    assert_eq!(valueless, Reason::NoSuchRing { index: 9, rings: 4 });
    // Requests with a reply of their own get that one.
    let answer: u64 = session.ask(asked(message(Request::GetMaxMemSlots, &[0u8; 0], 0)));
    assert_eq!(answer, 4);
}

#[test]
fn status_mtu_and_rarp_reach_the_device() {
    let mut session = Session::ready();
    assert_eq!(session.ask::<u64>(message(Request::GetStatus, &[0u8; 0], 0)), 0);
    session.done(message(Request::SetStatus, &0xfu64, 0));
    assert_eq!(session.ask::<u64>(message(Request::GetStatus, &[0u8; 0], 0)), 0xf);
    assert_eq!(session.device.status, Some(0xf));
    let reason = session.fail(message(Request::SetStatus, &0x100u64, 0));
    assert_eq!(reason, Reason::Status(0x100));

    session.done(message(Request::NetSetMtu, &9000u64, 0));
    assert_eq!(session.device.mtu, Some(9000));
    for mtu in [0u64, 67, 65536, u64::MAX] {
        assert_eq!(session.fail(message(Request::NetSetMtu, &mtu, 0)), Reason::Mtu(mtu));
    }
    session.device.refusals = 1;
    let reason = session.fail(message(Request::NetSetMtu, &1500u64, 0));
    assert_eq!(reason, Reason::Device(Refused::new("MTU refused by the test")));
    assert_eq!(session.device.mtu, Some(9000));

    let mac = [2u8, 1, 2, 3, 4, 5, 0, 0];
    session.done(message(Request::SendRarp, &mac, 0));
    assert_eq!(session.device.rarp, Some([2, 1, 2, 3, 4, 5]));
    for mac in [[0u8; 8], [0xff; 8]] {
        assert_eq!(session.fail(message(Request::SendRarp, &mac, 0)), Reason::RarpAddress);
    }
}

#[test]
fn configuration_is_read_and_not_written() {
    let mut session = Session::ready();
    session.device.config = vec![2, 0, 0, 0, 0, 1, 1, 0];
    let read = |session: &mut Session, offset, len| {
        let reply = session.handle(config_message(Request::GetConfig, offset, &vec![9; len]));
        reply.unwrap().unwrap().payload
    };
    let payload = read(&mut session, 0, 6);
    let header = ConfigHeader { offset: 0, size: 6, flags: 0 };
    assert_eq!(payload, [header.as_bytes(), &[2, 0, 0, 0, 0, 1]].concat());
    assert_eq!(read(&mut session, 6, 4)[12..], [1, 0, 0, 0], "missing bytes read as zero");
    assert_eq!(read(&mut session, 0, 256).len(), 268);
    for (offset, len) in [(0, 257), (256, 1), (u32::MAX, 8), (3, 0)] {
        assert_eq!(read(&mut session, offset, len).len(), 0, "an error is an empty answer");
    }
    session.done(config_message(Request::SetConfig, 4, &[0, 1]));
    let reason = session.fail(config_message(Request::SetConfig, 4, &[0, 2]));
    assert_eq!(reason, Reason::ConfigReadOnly);
    let reason = session.fail(config_message(Request::SetConfig, 255, &[0, 0]));
    assert_eq!(reason, Reason::ConfigRange { offset: 255, end: 257 });
}

#[test]
fn memory_slots_are_counted() {
    let mut session = Session::ready();
    let add = |at| {
        let single = SingleRegion { padding: 0, region: region(at, 0x1000) };
        message(Request::AddMemReg, &single, 1)
    };
    for at in [0x1000, 0x2000, 0x3000] {
        session.done(add(at));
    }
    assert_eq!(session.fail(add(0x4000)), Reason::NoSlotLeft { max: 4 });
    // With a descriptor, as some front-ends send, which must be closed and not used.
    let single = SingleRegion { padding: 0, region: region(0x2000, 0x1000) };
    session.done(message(Request::RemMemReg, &single, 1));
    session.done(add(0x4000));
    assert_eq!(session.device.regions().len(), 4);
}
