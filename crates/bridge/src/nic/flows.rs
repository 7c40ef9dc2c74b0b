//! Flow cache: verdicts of the flows of one source.
//!
//! Model: a direct-mapped cache from the addresses and type of an untagged frame to its verdict.
//! The verdict replaces the first two bytes of payload, so an entry is 16 bytes. A look-up is two
//! multiplications, two loads and no branch. It pays for sources with several MACs: otherwise each
//! of their frames takes two look-ups in the MAC table. A source owns its cache, so a guest with
//! many flows spoils only its own.
//!
//! Entries are valid as long as the table: the cache records its table and is emptied for another
//! one. Two flows in one slot evict each other; if that continues, another hash is tried, at
//! growing intervals. For a source with more flows than slots the cache pauses for a while each
//! time, so that it costs little.

use wire::{FrameHeader, Mac};

use crate::{BURST, Verdict};

/// Bits of a slot number. 1024 slots are 16 KiB.
const SLOT_BITS: u32 = 10;
const SLOTS: usize = 1 << SLOT_BITS;
/// Bytes 14 and 15, where an entry has its verdict.
const VERDICT_SHIFT: u32 = 48;
/// Conflicts until the first change of the hash; doubled each time.
const PATIENCE: u32 = 16;
const PATIENCE_MAX: u32 = 1 << 24;
/// Bursts without look-ups after one of mostly unknown flows.
const PAUSE: u32 = 15;

/// The cache of one source's flows; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Flows {
    /// Both words of a header, the verdict in the second; empty before the first use.
    entries: Box<[[u64; 2]]>,
    hash: Hash,
    /// Table and source of the entries.
    of: (u64, Verdict),
    conflicts: u32,
    patience: u32,
    pause: u32,
}

/// Hash from a flow to its slot.
#[derive(Clone, Copy, Debug)]
struct Hash {
    low: u64,
    high: u64,
}

impl Hash {
    const FIRST: Self = Self { low: 0x9e37_79b9_7f4a_7c15, high: 0xbf58_476d_1ce4_e5b9 << 16 };

    /// Slot of a flow. The shift in `high` leaves out bytes 14 and 15.
    #[inline(always)]
    fn slot(self, low: u64, high: u64) -> usize {
        let mixed = low.wrapping_mul(self.low).wrapping_add(high.wrapping_mul(self.high));
        (mixed >> (u64::BITS - SLOT_BITS)) as usize
    }

    /// Next hash: multipliers stay odd.
    fn next(self) -> Self {
        let step = |word: u64| (word ^ word >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) | 1;
        Self { low: step(self.low), high: step(self.high >> 16) << 16 }
    }
}

/// Contents of an empty slot: a flow with another slot, so that nothing matches it.
fn empty(hash: Hash) -> impl Fn(usize) -> [u64; 2] {
    let zeros = hash.slot(0, 0);
    let other = (1..).find(|low| hash.slot(*low, 0) != zeros).unwrap_or(1);
    move |slot| if slot == zeros { [other, 0] } else { [0, 0] }
}

impl Default for Flows {
    fn default() -> Self {
        Self::new()
    }
}

impl Flows {
    /// Makes an empty cache, which allocates at the first use.
    pub fn new() -> Self {
        Self {
            entries: Box::default(),
            hash: Hash::FIRST,
            of: (0, Verdict::FLOOD),
            conflicts: 0,
            patience: PATIENCE,
            pause: 0,
        }
    }

    /// Begins a burst of the source `own` of the table `table`; returns `true` if a look-up is
    /// worthwhile.
    #[inline]
    pub(crate) fn begin(&mut self, table: u64, own: Verdict) -> bool {
        if self.of != (table, own) {
            self.of = (table, own);
            self.patience = PATIENCE;
            self.pause = 0;
            self.clear();
        }
        if self.conflicts >= self.patience {
            self.patience = (2 * self.patience).min(PATIENCE_MAX);
            self.hash = self.hash.next();
            self.clear();
        }
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        true
    }

    #[cold]
    fn clear(&mut self) {
        self.conflicts = 0;
        self.entries = (0..SLOTS).map(empty(self.hash)).collect();
    }

    /// Sets the verdicts of frames with a known flow; returns the set of all others, frame 0 in bit
    /// 0.
    #[inline]
    pub(crate) fn look_up(&self, headers: &[[u8; 16]], verdicts: &mut [Verdict; BURST]) -> u64 {
        let Some(entries) = self.entries.first_chunk::<SLOTS>() else { return u64::MAX };
        let hash = self.hash;
        // A flow's entry, and the bits of both words that differ from it.
        let read = |header: &[u8; 16]| {
            let header = FrameHeader(*header);
            let (low, high) = (header.low_word(), header.high_word());
            let [there_low, there_high] = entries[hash.slot(low, high) % SLOTS];
            (there_high, low ^ there_low, high ^ there_high)
        };
        // Usually all are known: which ones are not is found out afterwards.
        let (mut differing_low, mut differing_high) = (0, 0);
        for (header, verdict) in headers.iter().zip(verdicts) {
            let (entry, low, high) = read(header);
            differing_low |= low;
            differing_high |= high;
            *verdict = Verdict::from_raw((entry >> VERDICT_SHIFT) as u16);
        }
        let differs = |low, high| low | (high & Mac::KEY_MASK) != 0;
        if !differs(differing_low, differing_high) {
            return 0;
        }
        let unknown = headers.iter().map(read).map(|(_, low, high)| differs(low, high));
        unknown.enumerate().fold(0, |set, (i, unknown)| set | u64::from(unknown) << i)
    }

    /// Records the verdict of an untagged frame.
    #[inline]
    pub(crate) fn learn(&mut self, header: FrameHeader, verdict: Verdict) {
        let (low, high) = (header.low_word(), header.high_word() & Mac::KEY_MASK);
        let slot = self.hash.slot(low, high);
        if let Some(place) = self.entries.get_mut(slot) {
            let held = self.hash.slot(place[0], place[1]) == slot;
            self.conflicts = self.conflicts.saturating_add(u32::from(held));
            *place = [low, high | u64::from(verdict.raw()) << VERDICT_SHIFT];
        }
    }

    /// Pauses look-ups: most of a burst was unknown.
    pub(crate) fn pause(&mut self) {
        self.pause = PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DropReason, PortId};

    fn header(dst: u8, src: u8, payload: u8) -> [u8; 16] {
        [2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 1, src, 8, 0, payload, payload]
    }

    #[test]
    fn nothing_is_known_of_an_empty_cache() {
        let mut flows = Flows::new();
        let mut verdicts = [Verdict::FLOOD; BURST];
        for table in 1..20 {
            flows.begin(table, Verdict::FLOOD);
            flows.hash = flows.hash.next();
            flows.clear();
            for headers in [[[0; 16]; 2], [[0xff; 16]; 2], [header(1, 2, 3), header(0, 0, 0)]] {
                assert_eq!(flows.look_up(&headers, &mut verdicts), 0b11);
            }
        }
    }

    #[test]
    fn payload_makes_no_flow() {
        let mut flows = Flows::new();
        let mut verdicts = [Verdict::FLOOD; BURST];
        assert!(flows.begin(1, Verdict::FLOOD));
        let said = Verdict::drop(DropReason::Hairpin);
        flows.learn(FrameHeader(header(1, 2, 7)), said);
        let unknown = flows.look_up(&[header(1, 3, 9), header(1, 2, 9)], &mut verdicts);
        assert_eq!((unknown, verdicts[1]), (0b01, said));
    }

    #[test]
    fn another_table_or_source_knows_nothing() {
        let mut flows = Flows::new();
        let mut verdicts = [Verdict::FLOOD; BURST];
        for of in [(1, PortId::PF), (2, PortId::PF), (2, PortId::vf(0)), (1, PortId::PF)] {
            flows.begin(of.0, Verdict::port(of.1));
            assert_eq!(flows.look_up(&[header(1, 2, 3)], &mut verdicts), 1);
            flows.learn(FrameHeader(header(1, 2, 3)), Verdict::port(PortId::vf(9)));
            assert_eq!(flows.look_up(&[header(1, 2, 3)], &mut verdicts), 0);
        }
    }

    #[test]
    fn sixty_four_flows_find_places_of_their_own() {
        let mut flows = Flows::new();
        let mut verdicts = [Verdict::FLOOD; BURST];
        let headers: Vec<_> = (0..64).map(|n| header(n, 63 - n, 0)).collect();
        let mut unknown = u64::MAX;
        for _ in 0..100_000 {
            flows.begin(1, Verdict::FLOOD);
            unknown = flows.look_up(&headers, &mut verdicts);
            if unknown == 0 {
                break;
            }
            for (i, header) in headers.iter().enumerate().filter(|(i, _)| unknown >> i & 1 == 1) {
                flows.learn(FrameHeader(*header), Verdict::port(PortId::vf(i as u8)));
            }
        }
        assert_eq!(unknown, 0);
    }

    proptest! {
        #[test]
        fn what_is_known_is_what_was_last_said(
            said in prop::collection::vec((0u8..20, 0u8..20, 0u8..9), 1..300),
        ) {
            let mut flows = Flows::new();
            let mut verdicts = [Verdict::FLOOD; BURST];
            let mut last = std::collections::HashMap::new();
            for (dst, src, port) in said {
                flows.begin(1, Verdict::FLOOD);
                let verdict = Verdict::port(PortId::vf(port));
                flows.learn(FrameHeader(header(dst, src, port)), verdict);
                last.insert((dst, src), verdict);
                for ((dst, src), said) in &last {
                    if flows.look_up(&[header(*dst, *src, 77)], &mut verdicts) == 0 {
                        prop_assert_eq!(verdicts[0], *said);
                    }
                }
            }
        }
    }
}
