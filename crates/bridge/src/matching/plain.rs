//! Plain frames: TCP or UDP over IP without options, behind at most one tag.
//!
//! Model: nearly all frames of most guests are plain. Their fields are at fixed offsets, so their
//! key is read without a parser. And whether one more frame has the same key, as far as rules
//! examine it, is a comparison of its first bytes under a mask ([`PlainMask`]): nothing is parsed.
//!
//! Cannot panic: each offset is constant.

use wire::{FrameHeader, HeaderSnapshot, ethernet};

use crate::matching::key::{TCP, UDP};
use crate::matching::{Key, Words, has};

/// Bytes up to TCP's flags.
const UPPER_LEN: usize = 14;
/// Words of a snapshot up to TCP's flags, behind a tag and IPv6.
const WORDS: usize = 10;
/// Words up to TCP's flags, behind a tag and IPv4.
const WORDS_IPV4: usize = 8;

/// Layout of a plain frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Ipv4,
    Ipv4Tagged,
    Ipv6,
    Ipv6Tagged,
}

impl Layout {
    /// Number of layouts.
    pub(crate) const COUNT: usize = 4;
    const ALL: [Self; Self::COUNT] = [Self::Ipv4, Self::Ipv4Tagged, Self::Ipv6, Self::Ipv6Tagged];

    /// Offset of the IP header, and its length.
    const fn ip(self) -> (usize, usize) {
        match self {
            Self::Ipv4 => (14, 20),
            Self::Ipv4Tagged => (18, 20),
            Self::Ipv6 => (14, 40),
            Self::Ipv6Tagged => (18, 40),
        }
    }

    const fn is_ipv4(self) -> bool {
        matches!(self, Self::Ipv4 | Self::Ipv4Tagged)
    }
}

/// Bytes at a constant offset, which must be within [`HeaderSnapshot::LEN`].
#[inline(always)]
fn fixed<const N: usize>(snapshot: &HeaderSnapshot, at: usize) -> [u8; N] {
    std::array::from_fn(|n| snapshot.bytes[at + n])
}

/// Word `n` of a snapshot's bytes.
#[inline(always)]
fn word(snapshot: &HeaderSnapshot, n: usize) -> u64 {
    u64::from_le_bytes(fixed(snapshot, 8 * n))
}

impl Key {
    /// Words of a frame's key, as of [`of`](Self::of), and the layout of a plain frame.
    #[inline(always)]
    pub(crate) fn words_and_layout(
        header: FrameHeader,
        snapshot: &HeaderSnapshot,
        vid: u16,
    ) -> Option<(Words, Option<Layout>)> {
        let plain = if header.is_tagged() {
            Self::plain::<18>(snapshot)
        } else {
            Self::plain::<14>(snapshot)
        };
        match plain {
            Some((key, layout)) => {
                let big_endian = |key: u64| key.swap_bytes() >> 16;
                let (src_mac, dst_mac) =
                    (big_endian(header.src_key()), big_endian(header.dst_key()));
                Some((Self { src_mac, dst_mac, vid, ..key }.words(), Some(layout)))
            }
            None => Self::of(header, snapshot, vid).map(|key| (key.words(), None)),
        }
    }

    /// Words of a frame's key, as of [`of`](Self::of).
    #[inline]
    pub fn words_of(header: FrameHeader, snapshot: &HeaderSnapshot, vid: u16) -> Option<Words> {
        Self::words_and_layout(header, snapshot, vid).map(|(words, _)| words)
    }

    /// Key without MACs and VLAN of a plain frame whose IP header begins at `AT`.
    #[inline(always)]
    fn plain<const AT: usize>(snapshot: &HeaderSnapshot) -> Option<(Self, Layout)> {
        let ethertype = u16::from_be_bytes(fixed(snapshot, AT - 2));
        let is_tagged = AT > 14;
        let (protocol, src_ip, dst_ip, version, layout);
        if ethertype == ethernet::TYPE_IPV4 {
            let [version_ihl, _, len_high, len_low, _, _, offset_high, offset_low, _, next] =
                fixed(snapshot, AT);
            let total_len = u16::from_be_bytes([len_high, len_low]);
            let offset = u16::from_be_bytes([offset_high, offset_low]) & 0x1fff;
            if version_ihl != 0x45 || offset != 0 || total_len < IPV4_LEN_MIN {
                return None;
            }
            layout = if is_tagged { Layout::Ipv4Tagged } else { Layout::Ipv4 };
            (protocol, version) = (next, has::IPV4);
            src_ip = u32::from_be_bytes(fixed(snapshot, AT + 12)).into();
            dst_ip = u32::from_be_bytes(fixed(snapshot, AT + 16)).into();
        } else if ethertype == ethernet::TYPE_IPV6 {
            let [version_class, _, _, _, _, _, next] = fixed(snapshot, AT);
            if version_class >> 4 != 6 {
                return None;
            }
            layout = if is_tagged { Layout::Ipv6Tagged } else { Layout::Ipv6 };
            (protocol, version) = (next, has::IPV6);
            src_ip = u128::from_be_bytes(fixed(snapshot, AT + 8));
            dst_ip = u128::from_be_bytes(fixed(snapshot, AT + 24));
        } else {
            return None;
        }
        let tcp = protocol == TCP;
        let (_, ip_len) = layout.ip();
        let upper = AT + ip_len;
        if !(tcp || protocol == UDP) || usize::from(snapshot.len) < upper + UPPER_LEN {
            return None;
        }
        let [src_high, src_low, dst_high, dst_low] = fixed(snapshot, upper);
        let key = Self {
            src_ip,
            dst_ip,
            ethertype,
            src_port: u16::from_be_bytes([src_high, src_low]),
            dst_port: u16::from_be_bytes([dst_high, dst_low]),
            protocol,
            tcp_flags: if tcp { fixed::<1>(snapshot, upper + 13)[0] } else { 0 },
            has: version | has::IP | has::PORTS | if tcp { has::TCP } else { 0 },
            ..Self::default()
        };
        Some((key, layout))
    }
}

/// Minimum total length of plain IPv4: a header, and bytes up to TCP's flags.
const IPV4_LEN_MIN: u16 = 20 + UPPER_LEN as u16;

/// Bits of a plain frame's first bytes that decide whether another has the same layout and, under
/// a mask of [`Words`], the same key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainMask {
    words: [u64; WORDS],
    /// Minimum length of the snapshot.
    len_min: u8,
    is_ipv4: bool,
    is_tagged: bool,
    /// Minimum total length of IPv4; 0 for IPv6.
    total_len_min: u16,
}

impl PlainMask {
    /// The masks of all layouts, by layout, for these bits of a key. All of the addresses, the tag
    /// and the type count.
    pub(crate) fn all(key: &Words) -> [Self; Layout::COUNT] {
        Layout::ALL.map(|layout| Self::new(layout, key))
    }

    fn new(layout: Layout, key: &Words) -> Self {
        let mut bytes = [0_u8; 8 * WORDS];
        let mut put = |at: usize, mask: &[u8]| bytes[at..at + mask.len()].copy_from_slice(mask);
        let bits = Key::from_words(key);
        let (ip, ip_len) = layout.ip();
        put(0, &[u8::MAX; 18][..ip]);
        if layout.is_ipv4() {
            put(ip, &[0xff]); // version and header length
            put(ip + 6, &[0x1f, 0xff]); // fragment offset
            put(ip + 9, &[0xff]); // protocol
            put(ip + 12, &(bits.src_ip as u32).to_be_bytes());
            put(ip + 16, &(bits.dst_ip as u32).to_be_bytes());
        } else {
            put(ip, &[0xf0]); // version
            put(ip + 6, &[0xff]); // next header
            put(ip + 8, &bits.src_ip.to_be_bytes());
            put(ip + 24, &bits.dst_ip.to_be_bytes());
        }
        let upper = ip + ip_len;
        put(upper, &bits.src_port.to_be_bytes());
        put(upper + 2, &bits.dst_port.to_be_bytes());
        put(upper + 13, &[bits.tcp_flags]);
        let words = std::array::from_fn(|n| {
            u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * n + byte]))
        });
        let is_ipv4 = layout.is_ipv4();
        let total_len_min = if is_ipv4 { IPV4_LEN_MIN } else { 0 };
        let len_min = (upper + UPPER_LEN) as u8;
        Self { words, len_min, is_ipv4, is_tagged: ip > 14, total_len_min }
    }

    /// Returns `true` if a frame has the layout of this mask, and the key of the plain frame
    /// `first`. A `false` says nothing.
    #[inline(always)]
    pub(crate) fn is_like(&self, first: &HeaderSnapshot, other: &HeaderSnapshot) -> bool {
        let total_len = if self.is_tagged { fixed(other, 20) } else { fixed(other, 16) };
        let differ = |range: std::ops::Range<usize>| {
            range.fold(0, |all, n| all | (word(first, n) ^ word(other, n)) & self.words[n])
        };
        let mut same = differ(0..WORDS_IPV4) == 0;
        if !self.is_ipv4 {
            same &= differ(WORDS_IPV4..WORDS) == 0;
        }
        let is_long = u16::from_be_bytes(total_len) >= self.total_len_min;
        same & is_long & (other.len >= self.len_min)
    }
}
