//! Messages byte for byte; the numbers are those of `linux/vduse.h` and `linux/vdpa.h`.

use proptest::prelude::*;

use crate::bus::{dev_request, is_of_vduse};
use crate::is_name;
use crate::message::{Position, REQUEST_LEN, Request, RequestKind, Response};

/// A request of a type, with these words after its header.
pub(super) fn bytes(kind: u32, id: u32, body: &[u8]) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..8].copy_from_slice(&id.to_ne_bytes());
    bytes[24..24 + body.len()].copy_from_slice(body);
    bytes
}

#[test]
fn requests_are_read() {
    let range = [7u64.to_ne_bytes(), u64::MAX.to_ne_bytes()].concat();
    let cases = [
        (bytes(0, 1, &3u32.to_ne_bytes()), RequestKind::Position { ring: 3 }),
        (bytes(1, 2, &[0x8f, 0xff]), RequestKind::Status(0x8f)),
        (bytes(2, u32::MAX, &range), RequestKind::Memory { start: 7, last: u64::MAX }),
        (bytes(3, 4, &[]), RequestKind::Unknown(3)),
    ];
    for (bytes, kind) in cases {
        let id = u32::from_ne_bytes(bytes[4..8].try_into().unwrap());
        assert_eq!(Request::from_bytes(&bytes), Request { id, kind });
    }
}

#[test]
fn answers_are_written() {
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    for (answer, result) in [(Response::Done, 0), (Response::Failed, 1)] {
        let bytes = answer.to_bytes(9);
        assert_eq!((word(&bytes, 0), word(&bytes, 4)), (9, result));
        assert!(bytes[8..].iter().all(|byte| *byte == 0), "reserved");
    }
    let at = Response::At { ring: 1, position: Position([1, 0x7fff, 0, 5]) }.to_bytes(9);
    assert_eq!((word(&at, 0), word(&at, 4), word(&at, 24)), (9, 0, 1));
    let words: Vec<u16> =
        at[28..36].chunks(2).map(|two| u16::from_ne_bytes(two.try_into().unwrap())).collect();
    assert_eq!(words, [1, 0x7fff, 0, 5]);
    assert!(at[8..24].iter().chain(&at[36..]).all(|byte| *byte == 0));
}

proptest! {
    #[test]
    fn whatever_is_read_is_something(bytes in proptest::array::uniform32(any::<u8>()), more: u8) {
        let mut request = [more; REQUEST_LEN];
        request[..32].copy_from_slice(&bytes);
        Request::from_bytes(&request);
    }

    #[test]
    fn positions_of_packed_rings_are_what_they_were(base: u32) {
        prop_assert_eq!(Position::packed(base).base(true), base);
    }

    #[test]
    fn positions_of_split_rings_are_what_they_were(base: u16) {
        prop_assert_eq!(Position::split(base).base(false), u32::from(base));
    }
}

#[test]
fn a_fresh_packed_ring_begins_with_both_wrap_counters_set() {
    assert_eq!(Position([1, 0, 1, 0]).base(true), 0x8000_8000);
}

#[test]
fn the_bus_is_asked_as_the_kernel_reads_it() {
    let asked = dev_request(0x21, 3, &[(4, "web0"), (2, "vduse")]).into_bytes(0);
    let expected: Vec<u8> = [
        &44u32.to_ne_bytes()[..],
        &0x21u16.to_ne_bytes(),
        &5u16.to_ne_bytes(), // NLM_F_REQUEST | NLM_F_ACK
        &[0; 8],
        &[3, 1, 0, 0],
        &9u16.to_ne_bytes(),
        &4u16.to_ne_bytes(),
        b"web0\0\0\0\0",
        &10u16.to_ne_bytes(),
        &2u16.to_ne_bytes(),
        b"vduse\0\0\0",
    ]
    .concat();
    assert_eq!(asked[4..], expected[4..]);
    assert_eq!(asked.len(), u32::from_ne_bytes(asked[..4].try_into().unwrap()) as usize);
}

#[test]
fn a_device_of_a_card_is_told_from_one_of_vduse() {
    // The message after its header is as long for a request as for an answer.
    let device = |texts: &[(u16, &str)]| dev_request(0x21, 3, texts).into_bytes(0).split_off(16);
    assert!(is_of_vduse(&device(&[(2, "vduse"), (4, "web0")])));
    assert!(!is_of_vduse(&device(&[(1, "pci"), (2, "0000:01:00.2"), (4, "web0")])));
    assert!(!is_of_vduse(&device(&[(1, "auxiliary"), (2, "vduse"), (4, "web0")])));
    assert!(!is_of_vduse(&device(&[(4, "web0")])));
    assert!(!is_of_vduse(&[]));
}

#[test]
fn names_are_such_as_all_tools_take() {
    for good in ["a", "web0", "7", "a.b_c-d", &"x".repeat(63)] {
        assert!(is_name(good), "{good}");
    }
    for bad in ["", "control", ".", "-a", "a/b", "a b", "ä", &"x".repeat(64)] {
        assert!(!is_name(bad), "{bad}");
    }
}
