//! The redirect program, which the kernel runs for every frame of the interface.
//!
//! # Model
//! A frame goes to the socket of its receive queue. The host receives, as without a program, frames
//! of a queue without a socket, frames for addresses outside the filter, and frames too short to be
//! classified.
//!
//! Some queues, from one on, may be steered ([`SteeringRule`]): of such a queue only untagged
//! frames to one address, and no longer than its buffers, are redirected. The host receives the
//! others: the kernel binds a socket to its queue, so no frame can go to another queue's socket.
//!
//! The filter's key is an [`Address`]. Frames to groups are for all: those in the filter are copied
//! to a separate ring ([`crate::Groups`]), and also passed to the host. The program does not see a
//! tag that the interface removes (rx-vlan-offload).

use std::os::fd::BorrowedFd;

use crate::asm::{Assembler, Condition, Instruction, Label, Reg, Width};

/// Destination of frames: an entry of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Destination. A group's address (multicast and broadcast) stands for all groups of the VLAN,
    /// whose frames the host gets as well.
    pub mac: [u8; 6],
    /// VLAN of the outermost tag, 802.1Q or 802.1ad; 0 without one, and for a priority tag.
    pub vlan: u16,
}

/// Bytes of a key in the filter's map.
pub(crate) const KEY_LEN: usize = 8;
/// Bytes of a value there: one of the two below.
pub(crate) const VALUE_LEN: usize = 1;
const REDIRECT: u8 = 1;
const COPY: u8 = 2;
/// Key bytes that stand for every group address.
const GROUPS: [u8; 6] = [1, 0, 0, 0, 0, 0];

impl Address {
    fn is_group(self) -> bool {
        self.mac[0] & 1 == 1
    }

    /// The address itself, or the entry for all groups of its VLAN.
    pub(crate) fn normal(self) -> Address {
        Address { mac: if self.is_group() { GROUPS } else { self.mac }, ..self }
    }

    /// Action for its frames.
    pub(crate) fn value(self) -> [u8; VALUE_LEN] {
        [if self.is_group() { COPY } else { REDIRECT }]
    }

    /// Key in the filter's map.
    pub(crate) fn key(self) -> [u8; KEY_LEN] {
        let mut key = [0; KEY_LEN];
        key[..6].copy_from_slice(&self.normal().mac);
        key[6..].copy_from_slice(&self.vlan.to_ne_bytes());
        key
    }
}

/// The maps that a program uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps<'a> {
    /// Receive queue to socket.
    pub(crate) sockets: BorrowedFd<'a>,
    /// Addresses whose frames are redirected or copied. Without it every frame is redirected.
    pub(crate) filter: Option<Filter<'a>>,
    /// Steered queues.
    pub(crate) steered: Option<SteeredQueues<'a>>,
}

/// Queues whose frames are placed in another owner's buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SteeredQueues<'a> {
    /// Receive queue to [`SteeringRule::rule`]; zeros for an ordinary queue.
    pub(crate) rules: BorrowedFd<'a>,
    /// First queue that may have a rule: others need no look-up.
    pub(crate) first: u32,
}

/// Frames of a steered queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringRule {
    /// Destination address.
    pub mac: [u8; 6],
    /// Longest frame, bytes; not 0.
    pub longest: u32,
}

/// Bytes of a rule for a queue.
pub(crate) const RULE_LEN: usize = 12;

impl SteeringRule {
    /// Rule in the program's format: the length, the address, padding.
    pub(crate) fn rule(self) -> [u8; RULE_LEN] {
        let mut rule = [0; RULE_LEN];
        rule[..4].copy_from_slice(&self.longest.to_ne_bytes());
        rule[4..10].copy_from_slice(&self.mac);
        rule
    }
}

/// The maps that a filter uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'a> {
    /// [`Address::key`] to [`Address::value`].
    pub(crate) addresses: BorrowedFd<'a>,
    /// Ring of copies, in records of `record` bytes, of which [`RECORD_HEADER`] precede the frame.
    pub(crate) copies: BorrowedFd<'a>,
    /// Bytes of a record, a multiple of 8.
    pub(crate) record: u32,
}

/// Bytes before a copied frame: its length, as a word, and padding.
pub(crate) const RECORD_HEADER: u32 = 8;

/// Leave the frame to the host.
const XDP_PASS: i32 = 2;

const MAP_LOOKUP_ELEM: i32 = 1;
const REDIRECT_MAP: i32 = 51;
/// Length of a frame with all its fragments (Linux 5.18).
const XDP_GET_BUFF_LEN: i32 = 188;

/// Copies bytes of a frame across fragments (Linux 5.18).
const XDP_LOAD_BYTES: i32 = 189;
const RINGBUF_RESERVE: i32 = 131;
const RINGBUF_SUBMIT: i32 = 132;
const RINGBUF_DISCARD: i32 = 133;

/// Offsets in `struct xdp_md`, linux/bpf.h.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE_INDEX: i16 = 16;

/// Offsets of the program's keys from the end of the stack.
const QUEUE_KEY: i16 = -4;
const ADDRESS_KEY: i16 = -16;

/// An EtherType as a 16-bit load reads it.
fn ether_type(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Assembles the program. With `fragments` the kernel may pass frames in several fragments, of
/// which the program sees the first.
pub(crate) fn redirect(maps: Maps<'_>, fragments: bool) -> Vec<Instruction> {
    use Reg::{R0, R1, R2, R3, R6};
    let mut asm = Assembler::new();
    let (pass, copy, redirect) = (asm.label(), asm.label(), asm.label());
    asm.mov(R6, R1);
    if let Some(steered) = maps.steered {
        check_steering(&mut asm, steered, fragments, (pass, redirect));
    }
    if let Some(filter) = maps.filter {
        pass_unless_filtered(&mut asm, filter.addresses, pass);
        asm.load(Width::Byte, R1, R0, 0).jump_if(R1, Condition::Equal, COPY.into(), copy);
    }
    asm.bind(redirect).load(Width::Word, R2, R6, RX_QUEUE_INDEX);
    asm.map(R1, maps.sockets);
    asm.set(R3, XDP_PASS); // if the queue has no socket (Linux 5.3)
    asm.call(REDIRECT_MAP).exit();
    if let Some(filter) = maps.filter {
        asm.bind(copy);
        copy_frame(&mut asm, filter, pass);
    }
    // The verifier rejects unreachable instructions.
    if maps.filter.is_some() || maps.steered.is_some() {
        asm.bind(pass).set(R0, XDP_PASS).exit();
    }
    asm.finish()
}

/// For a queue with a rule, jumps to `pass` or `redirect`; for another, continues. `R6` is the
/// context.
fn check_steering(
    asm: &mut Assembler,
    steered: SteeredQueues<'_>,
    fragments: bool,
    (pass, redirect): (Label, Label),
) {
    use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
    let (rule, other) = (asm.label(), asm.label());
    asm.load(Width::Word, R7, R6, RX_QUEUE_INDEX);
    if steered.first > 0 {
        asm.jump_if(R7, Condition::Greater, (steered.first - 1) as i32, rule).jump(other);
    }
    asm.bind(rule).store(Width::Word, R10, QUEUE_KEY, R7);
    asm.map(R1, steered.rules).mov(R2, R10).add(R2, i32::from(QUEUE_KEY));
    asm.call(MAP_LOOKUP_ELEM).jump_if(R0, Condition::Equal, 0, other);
    asm.mov(R9, R0).load(Width::Word, R8, R9, 0).jump_if(R8, Condition::Equal, 0, other);
    if fragments {
        asm.mov(R1, R6).call(XDP_GET_BUFF_LEN);
    } else {
        asm.load(Width::Word, R0, R6, DATA_END);
        asm.load(Width::Word, R1, R6, DATA);
        asm.sub(R0, R1);
    }
    asm.jump_if_reg(R0, Condition::Greater, R8, pass);
    asm.load(Width::Word, R2, R6, DATA);
    asm.load(Width::Word, R3, R6, DATA_END);
    asm.mov(R4, R2).add(R4, 14).jump_if_reg(R4, Condition::Greater, R3, pass);
    asm.load(Width::Half, R5, R2, 12);
    asm.jump_if(R5, Condition::Equal, ether_type(0x8100), pass);
    asm.jump_if(R5, Condition::Equal, ether_type(0x88a8), pass);
    let last = asm.label();
    asm.load(Width::Word, R5, R2, 0).load(Width::Word, R4, R9, 4);
    asm.jump_if_reg(R5, Condition::Equal, R4, last).jump(pass);
    asm.bind(last).load(Width::Half, R5, R2, 4).load(Width::Half, R4, R9, 8);
    asm.jump_if_reg(R5, Condition::Equal, R4, redirect).jump(pass);
    asm.bind(other);
}

/// Copies the frame, if there is room and it fits a record, and continues to `pass`, which follows.
/// `R6` is the context.
fn copy_frame(asm: &mut Assembler, filter: Filter<'_>, pass: Label) {
    use Reg::{R0, R1, R2, R3, R4, R6, R7, R8};
    let submit = asm.label();
    let longest = (filter.record - RECORD_HEADER) as i32;
    asm.mov(R1, R6).call(XDP_GET_BUFF_LEN).mov(R7, R0);
    asm.jump_if(R7, Condition::Equal, 0, pass).jump_if(R7, Condition::Greater, longest, pass);
    asm.map(R1, filter.copies).set(R2, filter.record as i32).set(R3, 0);
    asm.call(RINGBUF_RESERVE).jump_if(R0, Condition::Equal, 0, pass);
    asm.mov(R8, R0).store(Width::Word, R8, 0, R7);
    asm.mov(R1, R6).set(R2, 0).mov(R3, R8).add(R3, RECORD_HEADER as i32).mov(R4, R7);
    asm.call(XDP_LOAD_BYTES);
    asm.mov(R1, R8).set(R2, 0).jump_if(R0, Condition::Equal, 0, submit);
    asm.call(RINGBUF_DISCARD).jump(pass);
    asm.bind(submit).call(RINGBUF_SUBMIT);
}

/// Jumps to `pass` unless the filter has the frame's address; else `R0` points to the entry's
/// value. `R6` is the context.
fn pass_unless_filtered(asm: &mut Assembler, filter: BorrowedFd<'_>, pass: Label) {
    use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R10};
    let (group, vlan, tagged, look_up) = (asm.label(), asm.label(), asm.label(), asm.label());
    asm.load(Width::Word, R2, R6, DATA);
    asm.load(Width::Word, R3, R6, DATA_END);
    asm.mov(R4, R2).add(R4, 14).jump_if_reg(R4, Condition::Greater, R3, pass);

    asm.load(Width::Byte, R5, R2, 0).jump_if(R5, Condition::AnyBit, 1, group);
    // The frame is loaded in pieces, since its start is not aligned in memory, and stored in the
    // same, so that the key has the bytes in order.
    asm.load(Width::Word, R5, R2, 0).store(Width::Word, R10, ADDRESS_KEY, R5);
    asm.load(Width::Half, R5, R2, 4).store(Width::Half, R10, ADDRESS_KEY + 4, R5);
    asm.jump(vlan);
    asm.bind(group);
    let [a, b, c, d, e, f] = GROUPS;
    let (first, last) = (i32::from_ne_bytes([a, b, c, d]), i16::from_ne_bytes([e, f]));
    asm.store_value(Width::Word, R10, ADDRESS_KEY, first);
    asm.store_value(Width::Half, R10, ADDRESS_KEY + 4, i32::from(last));

    asm.bind(vlan).set(R7, 0);
    asm.load(Width::Half, R5, R2, 12);
    asm.jump_if(R5, Condition::Equal, ether_type(0x8100), tagged);
    asm.jump_if(R5, Condition::Equal, ether_type(0x88a8), tagged);
    asm.jump(look_up);
    asm.bind(tagged).mov(R4, R2).add(R4, 18).jump_if_reg(R4, Condition::Greater, R3, pass);
    asm.load(Width::Half, R7, R2, 14).from_be16(R7).and(R7, 0x0fff);

    asm.bind(look_up).store(Width::Half, R10, ADDRESS_KEY + 6, R7);
    asm.map(R1, filter).mov(R2, R10).add(R2, i32::from(ADDRESS_KEY));
    asm.call(MAP_LOOKUP_ELEM).jump_if(R0, Condition::Equal, 0, pass);
}

#[cfg(all(test, target_endian = "little"))]
mod tests;
