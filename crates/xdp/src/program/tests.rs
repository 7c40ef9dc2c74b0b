//! The program's bytes, and its actions on frames in a small interpreter.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};

use super::*;

/// Maps are identified by the number of their descriptor.
struct World {
    sockets: std::fs::File,
    filter: std::fs::File,
    rules: std::fs::File,
    copies: std::fs::File,
    entries: BTreeMap<[u8; KEY_LEN], u8>,
    steered: BTreeMap<u32, SteeringRule>,
}

/// Action of the program.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Pass,
    /// To the socket of this queue.
    Redirect(u32),
    /// Passed, and copied.
    Copy,
}

/// Addresses of the interpreter's memory.
const CONTEXT: u64 = 0x1000;
const FRAME: u64 = 0x1_0000;
const STACK_END: u64 = 0x2_0000;
const VALUE: u64 = 0x3_0000;
const RESERVED: u64 = 0x4_0000;
/// The first queue that may be steered.
const FIRST: u32 = 2;
/// Bytes of a record for copies.
const RECORD: u32 = 72;
const STACK_LEN: usize = 64;

impl World {
    fn new(entries: &[Address], steered: &[(u32, SteeringRule)]) -> World {
        let file = || std::fs::File::open("/dev/null").unwrap();
        let (sockets, filter, rules, copies) = (file(), file(), file(), file());
        let entries = entries.iter().map(|address| (address.key(), address.value()[0])).collect();
        let steered = steered.iter().copied().collect();
        World { sockets, filter, rules, copies, entries, steered }
    }

    fn code(&self, filter: bool, steered: bool, fragments: bool) -> Vec<Instruction> {
        let (addresses, copies) = (self.filter.as_fd(), self.copies.as_fd());
        let maps = Maps {
            sockets: self.sockets.as_fd(),
            filter: filter.then_some(Filter { addresses, copies, record: RECORD }),
            steered: steered.then_some(SteeredQueues { rules: self.rules.as_fd(), first: FIRST }),
        };
        redirect(maps, fragments)
    }

    /// Runs the whole program, with filter and steered queues, in both variants.
    fn run_all(&self, frame: &[u8], queue: u32) -> Action {
        let answer = run(self, &self.code(true, true, true), frame, queue);
        assert_eq!(run(self, &self.code(true, true, false), frame, queue), answer);
        answer
    }
}

/// Runs `code` on a frame. Panics if the kernel's verifier would reject an access.
fn run(world: &World, code: &[Instruction], frame: &[u8], queue: u32) -> Action {
    let mut machine = Machine { frame, queue, ..Machine::new(world) };
    let mut at = 0;
    for _ in 0..1000 {
        match machine.step(code[at]) {
            Some(jump) => at = (at as i64 + 1 + jump) as usize,
            None => return machine.answer(),
        }
    }
    panic!("the program does not end");
}

struct Machine<'a> {
    world: &'a World,
    frame: &'a [u8],
    queue: u32,
    regs: [u64; 11],
    stack: [u8; STACK_LEN],
    /// Value of the last look-up.
    value: [u8; RULE_LEN],
    redirected: Option<u32>,
    /// A record that is reserved, and those that were submitted.
    reserved: Option<Vec<u8>>,
    submitted: Vec<Vec<u8>>,
}

impl<'a> Machine<'a> {
    fn new(world: &'a World) -> Machine<'a> {
        let mut regs = [0; 11];
        (regs[1], regs[10]) = (CONTEXT, STACK_END);
        Machine {
            world,
            frame: &[],
            queue: 0,
            regs,
            stack: [0; STACK_LEN],
            value: [0; RULE_LEN],
            redirected: None,
            reserved: None,
            submitted: Vec::new(),
        }
    }

    /// The final action. A copy must equal the frame, and no record may be left reserved.
    fn answer(self) -> Action {
        assert!(self.reserved.is_none());
        let passed = self.regs[0] == XDP_PASS as u64;
        match (self.redirected, &self.submitted[..]) {
            (Some(queue), []) => Action::Redirect(queue),
            (None, []) if passed => Action::Pass,
            (None, [copy]) if passed => {
                assert_eq!(copy[..4], (self.frame.len() as u32).to_ne_bytes());
                assert_eq!(&copy[RECORD_HEADER as usize..][..self.frame.len()], self.frame);
                Action::Copy
            }
            other => panic!("{other:?}, {:#x}", self.regs[0]),
        }
    }

    /// Runs one instruction; returns the number to skip, or that the program ended.
    fn step(&mut self, instruction: Instruction) -> Option<i64> {
        let [op, both, low, high, ..] = instruction;
        let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
        let offset = i64::from(i16::from_le_bytes([low, high]));
        let number = i32::from_le_bytes(instruction[4..].try_into().unwrap());
        let (immediate, regs) = (number as i64 as u64, &mut self.regs);
        let jump_if = |taken| if taken { offset } else { 0 };
        let width = [4, 2, 1, 8][usize::from(op >> 3 & 3)];
        match op {
            0xbf => regs[to] = regs[from],
            0xb7 => regs[to] = immediate,
            0x07 => regs[to] = regs[to].wrapping_add(immediate),
            0x1f => regs[to] = regs[to].wrapping_sub(regs[from]),
            0x57 => regs[to] &= immediate,
            0xdc => regs[to] = u64::from((regs[to] as u16).to_be()),
            0x18 => {
                regs[to] = immediate;
                return Some(1); // over the upper half
            }
            0x61 | 0x69 | 0x71 => {
                let place = regs[from].wrapping_add_signed(offset);
                self.regs[to] = self.load(place, width);
            }
            0x63 | 0x6b | 0x62 | 0x6a => {
                let value = if op & 1 == 1 { regs[from] } else { immediate };
                let place = regs[to].wrapping_add_signed(offset);
                self.store(place, &value.to_le_bytes()[..width]);
            }
            0x05 => return Some(offset),
            0x1d => return Some(jump_if(regs[to] == regs[from])),
            0x15 => return Some(jump_if(regs[to] == immediate)),
            0x45 => return Some(jump_if(regs[to] & immediate != 0)),
            0x25 => return Some(jump_if(regs[to] > immediate)),
            0x2d => return Some(jump_if(regs[to] > regs[from])),
            0x85 => self.regs[0] = self.call(number),
            0x95 => return None,
            other => panic!("instruction {other:#x}"),
        }
        Some(0)
    }

    fn load(&self, place: u64, width: usize) -> u64 {
        match place {
            CONTEXT..FRAME => match (place - CONTEXT) as i16 {
                DATA => FRAME,
                DATA_END => FRAME + self.frame.len() as u64,
                RX_QUEUE_INDEX => u64::from(self.queue),
                other => panic!("context field {other}"),
            },
            FRAME..STACK_END => {
                let bytes = &self.frame[(place - FRAME) as usize..][..width];
                bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            VALUE..RESERVED => {
                let bytes = &self.value[(place - VALUE) as usize..][..width];
                bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
            }
            _ => panic!("load from {place:#x}"),
        }
    }

    fn store(&mut self, place: u64, bytes: &[u8]) {
        if let (RESERVED.., Some(record)) = (place, &mut self.reserved) {
            let at = (place - RESERVED) as usize;
            return record[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let place = STACK_LEN - (STACK_END - place) as usize;
        assert!(place.is_multiple_of(bytes.len()), "the stack is written aligned");
        self.stack[place..place + bytes.len()].copy_from_slice(bytes);
    }

    fn call(&mut self, helper: i32) -> u64 {
        let (world, map) = (self.world, self.regs[1]);
        let key = || &self.stack[STACK_LEN - (STACK_END - self.regs[2]) as usize..];
        match helper {
            MAP_LOOKUP_ELEM if map == world.filter.as_raw_fd() as u64 => {
                let found = world.entries.get(&key()[..KEY_LEN]).copied();
                self.value[0] = found.unwrap_or(0);
                u64::from(found.is_some()) * VALUE
            }
            MAP_LOOKUP_ELEM => {
                assert_eq!(map, world.rules.as_raw_fd() as u64);
                let queue = u32::from_le_bytes(key()[..4].try_into().unwrap());
                assert!(queue >= FIRST, "the others are spared the look-up");
                let rule = world.steered.get(&queue);
                self.value = rule.map_or([0; RULE_LEN], |rule| rule.rule());
                VALUE
            }
            XDP_GET_BUFF_LEN => self.frame.len() as u64,
            REDIRECT_MAP => {
                assert_eq!(map, world.sockets.as_raw_fd() as u64);
                assert_eq!(self.regs[3], XDP_PASS as u64);
                self.redirected = Some(self.regs[2] as u32);
                4
            }
            RINGBUF_RESERVE => {
                assert_eq!((map, self.regs[3]), (world.copies.as_raw_fd() as u64, 0));
                self.reserved = Some(vec![0; self.regs[2] as usize]);
                RESERVED
            }
            XDP_LOAD_BYTES => {
                let (to, len) = ((self.regs[3] - RESERVED) as usize, self.regs[4] as usize);
                let record = self.reserved.as_mut().expect("a reserved record");
                record[to..to + len].copy_from_slice(&self.frame[self.regs[2] as usize..][..len]);
                0
            }
            RINGBUF_SUBMIT => {
                assert_eq!(self.regs[1..3], [RESERVED, 0]);
                self.submitted.extend(self.reserved.take());
                0
            }
            other => panic!("helper {other}"),
        }
    }
}

const MAC: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
const IPV6_GROUP: [u8; 6] = [0x33, 0x33, 0xff, 0, 0, 1];

/// A frame of 60 bytes; `tag` is the tag's type and its 16 bits of control information.
fn frame(to: [u8; 6], tag: Option<(u16, u16)>) -> Vec<u8> {
    let mut frame = [to, [2, 0, 0, 0, 0, 1]].concat();
    if let Some((kind, control)) = tag {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(0x0800u16.to_be_bytes());
    frame.resize(60, 0);
    frame
}

#[test]
fn without_options_it_is_the_default_program_of_libbpf() {
    let world = World::new(&[], &[]);
    let map = world.sockets.as_raw_fd() as u8;
    let want: [[u8; 8]; 7] = [
        [0xbf, 0x16, 0, 0, 0, 0, 0, 0],   // r6 = r1
        [0x61, 0x62, 16, 0, 0, 0, 0, 0],  // r2 = *(u32 *)(r6 + 16)
        [0x18, 0x11, 0, 0, map, 0, 0, 0], // r1 = map
        [0; 8],
        [0xb7, 0x03, 0, 0, 2, 0, 0, 0], // r3 = XDP_PASS
        [0x85, 0, 0, 0, 51, 0, 0, 0],   // call bpf_redirect_map
        [0x95, 0, 0, 0, 0, 0, 0, 0],    // exit
    ];
    let code = world.code(false, false, true);
    assert_eq!(code, want);
    assert_eq!(run(&world, &code, &frame(MAC, None), 3), Action::Redirect(3));
}

#[test]
fn the_filter_takes_what_it_names() {
    let world = World::new(&[Address { mac: MAC, vlan: 0 }, Address { mac: MAC, vlan: 7 }], &[]);
    let taken = Action::Redirect(1);
    for (tag, want) in [
        (None, true),
        (Some((0x8100, 7)), true),
        (Some((0x88a8, 7)), true),
        (Some((0x8100, 0xf007)), true), // priority and drop eligibility do not count
        (Some((0x8100, 0xe000)), true), // a priority tag is no VLAN
        (Some((0x8100, 8)), false),
        (Some((0x9100, 7)), true), // no tag that the standard knows, so VLAN 0
    ] {
        let answer = world.run_all(&frame(MAC, tag), 1);
        assert_eq!(answer == taken, want, "{tag:x?}: {answer:?}");
    }
    for other in [[0x02, 0x11, 0x22, 0x33, 0x44, 0x56], [0x06, 0x11, 0x22, 0x33, 0x44, 0x55]] {
        assert_eq!(world.run_all(&frame(other, None), 1), Action::Pass);
    }
    assert_eq!(world.run_all(&frame([0xff; 6], None), 1), Action::Pass);
}

#[test]
fn groups_are_copied_by_vlan() {
    let world = World::new(&[Address { mac: [0xff; 6], vlan: 7 }], &[]);
    for group in [[0xff; 6], IPV6_GROUP, [1, 0x80, 0xc2, 0, 0, 0]] {
        assert_eq!(world.run_all(&frame(group, Some((0x8100, 7))), 0), Action::Copy);
        assert_eq!(world.run_all(&frame(group, None), 0), Action::Pass);
    }
    assert_eq!(world.run_all(&frame(MAC, Some((0x8100, 7))), 0), Action::Pass);
}

#[test]
fn frames_to_groups_that_are_too_long_to_be_copied_are_the_hosts() {
    let world = World::new(&[Address { mac: [0xff; 6], vlan: 0 }], &[]);
    let mut long = frame([0xff; 6], None);
    long.resize((RECORD - RECORD_HEADER) as usize, 0x55);
    assert_eq!(world.run_all(&long, 0), Action::Copy);
    long.push(0x55);
    assert_eq!(world.run_all(&long, 0), Action::Pass);
}

#[test]
fn a_steered_queue_takes_only_what_its_buffers_are_for() {
    let steered = SteeringRule { mac: MAC, longest: 60 };
    // Independent of the filter, which has another address.
    let other = [2, 0, 0, 0, 0, 9];
    let world = World::new(&[Address { mac: other, vlan: 0 }], &[(3, steered)]);
    let taken = frame(MAC, None);
    assert_eq!(world.run_all(&taken, 3), Action::Redirect(3));
    assert_eq!(world.run_all(&[&taken[..], &[0]].concat(), 3), Action::Pass, "too long");
    assert_eq!(world.run_all(&taken[..14], 3), Action::Redirect(3));
    assert_eq!(world.run_all(&taken[..13], 3), Action::Pass, "too short to be classified");
    for tag in [(0x8100, 0), (0x8100, 7), (0x88a8, 7)] {
        assert_eq!(world.run_all(&frame(MAC, Some(tag)), 3), Action::Pass, "{tag:x?}");
    }
    for place in 0..6 {
        let mut near = MAC;
        near[place] ^= 1;
        assert_eq!(world.run_all(&frame(near, None), 3), Action::Pass, "{near:x?}");
    }
    assert_eq!(world.run_all(&frame([0xff; 6], None), 3), Action::Pass);
    assert_eq!(world.run_all(&frame(other, None), 3), Action::Pass);
    for ordinary in [0, 1, 2, 4] {
        assert_eq!(world.run_all(&taken, ordinary), Action::Pass, "the filter's affair");
        assert_eq!(world.run_all(&frame(other, None), ordinary), Action::Redirect(ordinary));
    }
}

#[test]
fn a_steered_queue_needs_no_filter() {
    let world = World::new(&[], &[(2, SteeringRule { mac: MAC, longest: 60 })]);
    let code = world.code(false, true, true);
    assert_eq!(run(&world, &code, &frame(MAC, None), 2), Action::Redirect(2));
    assert_eq!(run(&world, &code, &frame([0xff; 6], None), 2), Action::Pass);
    assert_eq!(run(&world, &code, &frame([0xff; 6], None), 3), Action::Redirect(3));
    assert_eq!(run(&world, &code, &frame([0xff; 6], None), 1), Action::Redirect(1));
}

#[test]
fn frames_too_short_to_be_judged_are_passed() {
    let world = World::new(&[Address { mac: MAC, vlan: 0 }, Address { mac: MAC, vlan: 7 }], &[]);
    let (plain, tagged) = (frame(MAC, None), frame(MAC, Some((0x8100, 7))));
    for len in 0..60 {
        let want = |least| if len >= least { Action::Redirect(0) } else { Action::Pass };
        assert_eq!(world.run_all(&plain[..len], 0), want(14), "{len} bytes");
        assert_eq!(world.run_all(&tagged[..len], 0), want(18), "{len} bytes, tagged");
    }
}

#[test]
fn all_groups_of_a_vlan_have_one_key() {
    let key = |mac, vlan| Address { mac, vlan }.key();
    assert_eq!(key(MAC, 7)[..6], MAC);
    assert_eq!(key(MAC, 7)[6..], 7u16.to_ne_bytes());
    assert_eq!(key([0xff; 6], 7), key(IPV6_GROUP, 7));
    assert_ne!(key([0xff; 6], 7), key([0xff; 6], 8));
    assert_ne!(key(MAC, 0), key([0xff; 6], 0));
}
