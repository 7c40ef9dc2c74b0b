//! Sums against the examples of the RFCs, a naive sum and etherparse.

use etherparse::checksum::u32_16bit_word as theirs;
use proptest::prelude::*;

use super::*;

/// RFC 1071, section 1, word by word.
fn naive(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in data.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn example_of_rfc_1071() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::new().bytes(&data).finish(), !0xddf2);
    assert_eq!(Sum::new().bytes(&data).folded(), 0xddf2);
    assert_eq!(Sum::new().finish(), 0xffff);
}

#[test]
fn a_header_worked_out_by_hand() {
    // 4500 + 0073 + 4000 + 4011 + c0a8 + 0001 + c0a8 + 00c7 = 2479c; 479c + 2 = 479e; !479e = b861.
    let header =
        [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
    assert_eq!(Sum::new().bytes(&header).finish(), 0xb861);
}

#[test]
fn the_largest_words_do_not_overflow() {
    let ones = vec![0xff; 1 << 20];
    assert_eq!(Sum::new().bytes(&ones).finish(), 0);
    assert_eq!(Sum::new().bytes(&ones).word(1).finish(), !1);
    assert_eq!(Sum(u64::MAX).finish(), 0);
    for sum in [u64::MAX - 1, 0xffff_ffff_ffff_0000, 0x1_ffff_fffe, 0x1_fffe, 0x1_ffff, 1] {
        // Equal modulo 0xffff, with 0 as 0xffff.
        assert_eq!(u64::from(Sum(sum).folded()) % 0xffff, sum % 0xffff);
        assert_ne!(Sum(sum).folded(), 0);
    }
}

#[test]
fn every_length_is_summed() {
    let data: Vec<u8> = (0..700u32).map(|n| ((n * 7919) >> 3) as u8).collect();
    for start in 0..3 {
        for end in start..=data.len() {
            let piece = &data[start..end];
            assert_eq!(Sum::new().bytes(piece).finish(), naive(piece), "{start}..{end}");
        }
    }
}

proptest! {
    #[test]
    fn agrees_with_a_naive_sum_and_etherparse(data in prop::collection::vec(any::<u8>(), 0..3000)) {
        let expected = theirs::ones_complement(theirs::add_slice(0, &data)).to_be();
        prop_assert_eq!(Sum::new().bytes(&data).finish(), expected);
        prop_assert_eq!(naive(&data), expected);
    }

    #[test]
    fn pieces_add_up(data in prop::collection::vec(any::<u8>(), 0..600), cut: prop::sample::Index) {
        let cut = cut.index(data.len() + 1) & !1;
        let (a, b) = data.split_at(cut);
        prop_assert_eq!(Sum::new().bytes(a).bytes(b).finish(), naive(&data));
    }

    #[test]
    fn update_equals_a_new_sum(mut data in prop::collection::vec(1u8.., 8..64), new: [u8; 4]) {
        let before = Sum::new().bytes(&data).finish();
        let old: [u8; 4] = data[2..6].try_into().unwrap();
        data[2..6].copy_from_slice(&new);
        prop_assert_eq!(update(before, &old, &new), Sum::new().bytes(&data).finish());
    }

    #[test]
    fn pseudo_headers_are_those_of_the_rfcs(src: [u8; 16], dst: [u8; 16], protocol: u8, len: u16) {
        let [high, low] = len.to_be_bytes();
        let v6 = [&src[..], &dst, &[0, 0, high, low, 0, 0, 0, protocol]].concat();
        prop_assert_eq!(pseudo_v6(src, dst, protocol).word(len).finish(), naive(&v6));
        let v4 = [&src[..4], &dst[..4], &[0, protocol, high, low]].concat();
        let sum = pseudo_v4(*src.first_chunk().unwrap(), *dst.first_chunk().unwrap(), protocol);
        prop_assert_eq!(sum.word(len).finish(), naive(&v4));
    }
}
