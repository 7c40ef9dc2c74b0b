//! Split rings: virtio 1.2, section 2.7.
//!
//! [`SplitRing`] is the ring in memory, for both sides; [`SplitDevice`] is the device's side.

mod driver;
pub(crate) mod event;

use std::sync::atomic::{AtomicU16, Ordering};

use guestmem::{Buffer, CacheLine, GuestMemory, Ticket};

use self::event::EventSuppression;
use crate::chain::{Chain, Table};
use crate::crash;
use crate::device::{BURST, Staging};
use crate::fault::Fault;
use crate::log::WriteLog;
use crate::ring::{Addresses, Descriptor, RING_SIZE_MAX, SetupError, part};
use crate::start::Position;

pub(crate) use self::driver::SplitDriver;

/// The three parts of a split ring in memory (sections 2.7.5 to 2.7.8): pointers, every access
/// within bounds, since an entry's index is masked by the size.
///
/// The memory behind must outlive it: its owner keeps the memory beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitRing {
    mask: u16,
    desc: *mut [u64; 2],
    /// `flags`, `idx`, `ring[size]`, `used_event`.
    avail: *mut u16,
    /// `flags`, `idx`, the entries, `avail_event`.
    used: *mut u16,
}

// SAFETY: shared memory without references: volatile and atomic accesses, and plain stores to used
// entries.
unsafe impl Send for SplitRing {}

impl SplitRing {
    /// Checks size, ranges and alignment.
    pub(crate) fn new(
        memory: &GuestMemory,
        addresses: &Addresses,
        size: u16,
    ) -> Result<SplitRing, SetupError> {
        if !size.is_power_of_two() || size > RING_SIZE_MAX {
            return Err(SetupError::Size(size));
        }
        let entries = usize::from(size);
        let part = |name, addr, bytes, align| part(memory, (name, addr), (bytes, align));
        Ok(SplitRing {
            mask: size - 1,
            desc: part("descriptor table", addresses.desc, Descriptor::SIZE * entries, 16)?.cast(),
            avail: part("available ring", addresses.avail, 6 + 2 * entries, 2)?.cast(),
            used: part("used ring", addresses.used, 6 + 8 * entries, 4)?.cast(),
        })
    }

    /// The highest descriptor index.
    #[inline(always)]
    pub(crate) fn mask(&self) -> u16 {
        self.mask
    }

    /// Entries; a power of two.
    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        // The mask of 32768 entries plus one still fits.
        self.mask + 1
    }

    /// Snapshot of the descriptor at `index` modulo the size. Each word is read once.
    #[inline(always)]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        // SAFETY: the masked index is inside the table that `new` checked; words are aligned.
        let words = unsafe {
            let at = self.desc.add(usize::from(index & self.mask)).cast::<u64>();
            [at.read_volatile(), at.add(1).read_volatile()]
        };
        Descriptor::from_words(words)
    }

    #[inline(always)]
    pub(crate) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        let [addr, word] = descriptor.to_words();
        // SAFETY: as in `descriptor`.
        unsafe {
            let at = self.desc.add(usize::from(index & self.mask)).cast::<u64>();
            at.write_volatile(addr);
            at.add(1).write_volatile(word);
        }
    }

    /// Asks the cache for a descriptor. Any index is harmless.
    #[inline(always)]
    pub(crate) fn prefetch_descriptor(&self, index: u16) {
        let at = self.desc.wrapping_add(usize::from(index & self.mask));
        CacheLine::of(at).prefetch_read();
    }

    /// Address of the available ring's entry for position `index`, behind the flags and the index.
    #[inline(always)]
    fn avail_at(&self, index: u16) -> *mut u16 {
        self.avail.wrapping_add(2 + usize::from(index & self.mask))
    }

    /// Address of the used ring's entry at `index`, behind the flags and the index.
    #[inline(always)]
    fn used_at(&self, index: u16) -> *mut u32 {
        self.used.cast::<u32>().wrapping_add(1 + 2 * usize::from(index & self.mask))
    }

    /// The available ring's entry for position `index`.
    #[inline(always)]
    pub(crate) fn avail_entry(&self, index: u16) -> u16 {
        // SAFETY: inside the part that `new` checked.
        unsafe { self.avail_at(index).read_volatile() }
    }

    /// Entries from position `index` on that follow without a wrap, at most `n`.
    #[inline(always)]
    pub(crate) fn run(&self, index: u16, n: usize) -> usize {
        n.min(usize::from(self.mask) + 1 - usize::from(index & self.mask))
    }

    /// The entries of the available ring from position `index` on, as [`run`](Self::run) of `n`
    /// counts them. Each is read once.
    #[inline(always)]
    pub(crate) fn avail_run(&self, index: u16, n: usize) -> impl Iterator<Item = u16> {
        let n = self.run(index, n);
        let first = self.avail_at(index);
        // SAFETY: the run ends at the latest with the last entry, inside the part that `new`
        // checked.
        (0..n).map(move |i| unsafe { first.add(i).read_volatile() })
    }

    #[inline(always)]
    pub(crate) fn set_avail_entry(&self, index: u16, head: u16) {
        // SAFETY: as in `avail_entry`.
        unsafe { self.avail_at(index).write_volatile(head) }
    }

    /// The used ring's entry at `index`: head of the chain and bytes written.
    #[inline(always)]
    pub(crate) fn used_entry(&self, index: u16) -> (u32, u32) {
        // SAFETY: inside the part that `new` checked, which is aligned to 4 bytes, as are its
        // words.
        unsafe {
            let at = self.used_at(index);
            (at.read_volatile(), at.add(1).read_volatile())
        }
    }

    /// Prefetches the used ring's entry at `index` for writing.
    #[inline(always)]
    pub(crate) fn prefetch_used_entry(&self, index: u16) {
        CacheLine::of(self.used_at(index)).prefetch_write();
    }

    #[inline(always)]
    pub(crate) fn set_used_entry(&self, index: u16, head: u16, len: u32) {
        let entry = u64::from(head) | u64::from(len) << 32;
        // SAFETY: as in `used_entry`; one unaligned word instead of two. A plain store: the
        // compiler keeps it before the release store of the index, and no reader looks earlier.
        unsafe { self.used_at(index).cast::<u64>().write_unaligned(entry) };
    }

    #[inline(always)]
    pub(crate) fn avail_flags(&self) -> &AtomicU16 {
        self.word(self.avail, 0)
    }

    #[inline(always)]
    pub(crate) fn avail_idx(&self) -> &AtomicU16 {
        self.word(self.avail, 1)
    }

    /// The used index at which the driver wants an interrupt (section 2.7.7).
    #[inline(always)]
    pub(crate) fn used_event(&self) -> &AtomicU16 {
        self.word(self.avail, 2 + usize::from(self.size()))
    }

    #[inline(always)]
    pub(crate) fn used_flags(&self) -> &AtomicU16 {
        self.word(self.used, 0)
    }

    #[inline(always)]
    pub(crate) fn used_idx(&self) -> &AtomicU16 {
        self.word(self.used, 1)
    }

    /// The available index at which the device wants a kick (section 2.7.10).
    #[inline(always)]
    pub(crate) fn avail_event(&self) -> &AtomicU16 {
        self.word(self.used, 2 + 4 * usize::from(self.size()))
    }

    #[inline(always)]
    fn word(&self, part: *mut u16, index: usize) -> &AtomicU16 {
        // SAFETY: every caller's index is inside the part, whose size and alignment `new` checked.
        unsafe { AtomicU16::from_ptr(part.add(index)) }
    }
}

/// Offsets in the used ring, bytes: virtio 1.2, section 2.7.8.
const USED_FLAGS: u64 = 0;
const USED_IDX: u64 = 2;
const USED_ENTRIES: u64 = 4;

/// State of the device in a split ring.
#[derive(Debug)]
pub(crate) struct SplitDevice {
    ring: SplitRing,
    event_idx: bool,
    /// The next available entry to stage.
    next_avail: u16,
    /// The available index as last read: entries before it need no new read.
    seen_avail: u16,
    /// The descriptors of entries before it were prefetched.
    prefetched: u16,
    /// The next used entry to write.
    next_used: u16,
    /// The used index as the guest sees it.
    published: u16,
}

impl SplitDevice {
    /// Continues after the last used entry. Buffers are used in order, so all before it are done
    /// and none after it was begun.
    pub(crate) fn new(ring: SplitRing, event_idx: bool) -> SplitDevice {
        let next = ring.used_idx().load(Ordering::Acquire);
        SplitDevice {
            ring,
            event_idx,
            next_avail: next,
            seen_avail: next,
            prefetched: next,
            next_used: next,
            published: next,
        }
    }

    /// Stages up to `wanted` buffers behind those that are staged.
    pub(crate) fn take(&mut self, staging: &mut Staging, wanted: usize) {
        let mut ready = usize::from(self.seen_avail.wrapping_sub(self.next_avail));
        if ready < wanted {
            let seen = self.ring.avail_idx().load(Ordering::Acquire);
            ready = usize::from(seen.wrapping_sub(self.next_avail));
            if ready > usize::from(self.ring.size()) {
                // A ring that was truncated away reads as zeros: name the cause, not the effect.
                staging.notice_truncation();
                staging.fault.get_or_insert(Fault::IndexJump);
                return;
            }
            self.seen_avail = seen;
        }
        let n = ready.min(wanted);
        if n == 0 {
            return;
        }
        staging.notice_truncation();
        self.prefetch_descriptors(n);
        self.prefetch_used(n);
        let mut left = n;
        while left > 0 && staging.takes_more() {
            let run = self.ring.run(self.next_avail, left);
            let taken = match (staging.format.writable, staging.keep) {
                (true, _) => self.take_simple::<true, false>(staging, run),
                (false, false) => self.take_simple::<false, false>(staging, run),
                (false, true) => self.take_simple::<false, true>(staging, run),
            };
            left -= taken;
            if taken < run {
                self.take_chain(staging);
                left -= 1;
            }
        }
        // Those of the next burst arrive while this one is copied.
        self.prefetch_descriptors(usize::from(self.seen_avail.wrapping_sub(self.next_avail)));
    }

    /// Prefetches the descriptors of the next `n` available entries, at most a burst, as far as
    /// that is not done.
    #[inline(always)]
    fn prefetch_descriptors(&mut self, n: usize) {
        let n = n.min(BURST);
        let done = usize::from(self.prefetched.wrapping_sub(self.next_avail)).min(n);
        self.prefetched = self.next_avail.wrapping_add(n as u16);
        for i in done..n {
            let head = self.ring.avail_entry(self.next_avail.wrapping_add(i as u16));
            self.ring.prefetch_descriptor(head);
        }
    }

    /// Prefetches the next `n` used entries for writing: the fence of a publication waits for them.
    #[inline(always)]
    fn prefetch_used(&self, n: usize) {
        const IN_LINE: usize = CacheLine::LEN / 8;
        for i in (0..n + IN_LINE).step_by(IN_LINE) {
            self.ring.prefetch_used_entry(self.next_used.wrapping_add(i as u16));
        }
    }

    /// Stages the chains of the next `n` available entries while they are the usual case: one
    /// descriptor, in the region of the last hit. Returns their number. Its state is in locals, and
    /// so in registers.
    #[inline(always)]
    fn take_simple<const WRITABLE: bool, const KEEP: bool>(
        &mut self,
        staging: &mut Staging,
        n: usize,
    ) -> usize {
        let (ring, format, window) = (self.ring, staging.format, staging.translator.last_hit());
        let (wanted, mask) = (format.wanted_flags(), ring.mask());
        let mut taken = 0;
        let places =
            staging.staged[staging.end..].iter_mut().zip(&mut staging.headers[staging.end..]);
        for (head, place) in ring.avail_run(self.next_avail, n).zip(places) {
            if head > mask {
                break;
            }
            let Descriptor { addr, len, flags, .. } = ring.descriptor(head);
            let range = (addr, len, head);
            if flags != wanted
                || !Staging::put_simple::<WRITABLE, KEEP>((format, window), place, range)
            {
                break;
            }
            taken += 1;
        }
        staging.end += taken;
        self.next_avail = self.next_avail.wrapping_add(taken as u16);
        taken
    }

    /// Stages the next chain, of any kind, or records its fault. Reads it again: values read by
    /// [`take_simple`](Self::take_simple) do not count.
    #[cold]
    fn take_chain(&mut self, staging: &mut Staging) {
        let head = self.ring.avail_entry(self.next_avail);
        if head > self.ring.mask() {
            staging.fault = Some(Fault::BadIndex);
            return;
        }
        let ticket = Ticket { id: head, descriptors: 1 };
        if staging.put_chain(|chain| follow(&self.ring, chain, head).map(|()| ticket)).is_some() {
            self.next_avail = self.next_avail.wrapping_add(1);
        }
    }

    #[inline(always)]
    pub(crate) fn add_used(&mut self, ticket: Ticket, len: u32) {
        self.ring.set_used_entry(self.next_used, ticket.id, len);
        self.next_used = self.next_used.wrapping_add(1);
    }

    #[inline(always)]
    pub(crate) fn add_used_batch(&mut self, staged: &[Buffer<'static>], lens: &[u32]) {
        let (ring, next) = (self.ring, self.next_used);
        for (i, (buffer, len)) in staged.iter().zip(lens).enumerate() {
            ring.set_used_entry(next.wrapping_add(i as u16), buffer.ticket.id, *len);
        }
        self.next_used = next.wrapping_add(lens.len() as u16);
    }

    /// Publishes the used entries by one store; returns `true` if the guest wants a notification.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_used);
        if old == new {
            return false;
        }
        crash::point();
        self.ring.used_idx().store(new, Ordering::Release);
        self.published = new;
        let suppression = EventSuppression {
            flags: self.ring.avail_flags(),
            event: self.ring.used_event(),
            event_idx: self.event_idx,
        };
        suppression.needs_notification(old, new)
    }

    pub(crate) fn enable_notification(&mut self) -> bool {
        self.event_suppression()
            .enable_notification(self.next_avail, || self.ring.avail_idx().load(Ordering::Acquire))
    }

    pub(crate) fn disable_notification(&mut self) {
        self.event_suppression().disable_notification(self.next_avail);
    }

    /// Logs the used entries that [`publish`](Self::publish) wrote since `from`, and their index.
    pub(crate) fn log_published(&self, log: &WriteLog, from: Position) {
        let size = u64::from(self.ring.size());
        let count = u64::from(self.published.wrapping_sub(from as u16)).min(size);
        let start = u64::from(from as u16 & self.ring.mask());
        let run = count.min(size - start);
        log.used(USED_ENTRIES + 8 * start, 8 * run);
        log.used(USED_ENTRIES, 8 * (count - run));
        log.used(USED_IDX, 2);
    }

    /// Logs the whole used ring: a former owner may have died before it logged its writes.
    pub(crate) fn log_shown(&self, log: &WriteLog) {
        log.used(USED_FLAGS, USED_ENTRIES + 8 * u64::from(self.ring.size()));
    }

    /// Logs the field that [`enable_notification`](Self::enable_notification) and
    /// [`disable_notification`](Self::disable_notification) write.
    pub(crate) fn log_event_suppression(&self, log: &WriteLog) {
        match self.event_idx {
            true => log.used(USED_ENTRIES + 8 * u64::from(self.ring.size()), 2),
            false => log.used(USED_FLAGS, 2),
        }
    }

    fn event_suppression(&self) -> EventSuppression<'_, AtomicU16> {
        EventSuppression {
            flags: self.ring.used_flags(),
            event: self.ring.avail_event(),
            event_idx: self.event_idx,
        }
    }

    /// Lines of the available index, and of the next entry.
    #[inline]
    pub(crate) fn next_lines(&self) -> [CacheLine; 2] {
        let entry = self.ring.avail_at(self.next_avail);
        [CacheLine::of(self.ring.avail_idx()), CacheLine::of(entry)]
    }

    pub(crate) fn position(&self) -> Position {
        self.published.into()
    }

    pub(crate) fn size(&self) -> u16 {
        self.ring.size()
    }

    #[inline(always)]
    pub(crate) fn has_backlog(&self) -> bool {
        self.seen_avail != self.next_avail
            || self.ring.avail_idx().load(Ordering::Relaxed) != self.next_avail
    }
}

/// Appends the descriptor at `head` and its chain: in the ring's table, and at the end in one
/// indirect table. "The device MUST handle the case of zero or more normal chained descriptors
/// followed by a single descriptor with flags&VIRTQ_DESC_F_INDIRECT" (2.7.5.3.2).
fn follow(ring: &SplitRing, chain: &mut Chain<'_>, head: u16) -> Result<(), Fault> {
    let mut table: Option<Table> = None;
    let mut entries = ring.size();
    let mut longest = chain.format.longest().min(usize::from(entries));
    let mut descriptor = ring.descriptor(head);
    loop {
        if descriptor.flags & Descriptor::INDIRECT != 0 {
            if table.is_some() {
                return Err(Fault::BadIndirect); // a table inside a table
            }
            let inner = Table::new(chain, descriptor)?;
            entries = inner.entries;
            longest = chain.format.longest().min(chain.len() + usize::from(entries));
            descriptor = Descriptor::from_words(inner.words(0));
            table = Some(inner);
            continue;
        }
        chain.append(descriptor)?;
        if descriptor.flags & Descriptor::NEXT == 0 {
            return Ok(());
        }
        if descriptor.next >= entries {
            return Err(Fault::BadIndex);
        }
        if chain.len() >= longest {
            return Err(Fault::ChainTooLong);
        }
        descriptor = match &table {
            Some(table) => Descriptor::from_words(table.words(descriptor.next)),
            None => ring.descriptor(descriptor.next),
        };
    }
}
