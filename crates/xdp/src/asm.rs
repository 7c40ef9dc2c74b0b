//! A small assembler of eBPF instructions, with labels, for the redirect program.
//!
//! Follows the BPF instruction set of RFC 9669. An instruction is eight bytes: opcode, two register
//! numbers, a signed 16-bit offset and a signed 32-bit immediate, in the machine's byte order.
//! Arithmetic is on 64 bits.

use std::os::fd::{AsRawFd, BorrowedFd};

/// A register. `R0` is the result, `R1` to `R5` are arguments and clobbered by a call, `R6` to `R9`
/// are callee-saved, and `R10` is the (read-only) end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reg {
    /// Result of a call, and of the program.
    R0,
    /// First argument; the context at program start.
    R1,
    /// Second argument.
    R2,
    /// Third argument.
    R3,
    /// Fourth argument.
    R4,
    /// Callee-saved.
    R5,
    /// Callee-saved.
    R6,
    /// Callee-saved.
    R7,
    /// Callee-saved.
    R8,
    /// Callee-saved.
    R9,
    /// End of the stack, which has 512 bytes below it.
    R10,
}

/// Operand size of a load or store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// 4 bytes.
    Word = 0x00,
    /// 2 bytes.
    Half = 0x08,
    /// 1 byte.
    Byte = 0x10,
}

/// Condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Both are equal.
    Equal = 0x10,
    /// The register is greater, unsigned.
    Greater = 0x20,
    /// They have a bit in common.
    AnyBit = 0x40,
}

/// A position in the program; jumps may name it before it is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// One instruction as the kernel reads it.
pub type Instruction = [u8; 8];

/// A program being assembled. Labels must be bound and near enough, which [`Assembler::finish`]
/// checks. Programs are part of this crate, so a broken one is a bug and panics.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    /// Position of each bound label.
    labels: Vec<Option<usize>>,
    /// Jumps to patch: the instruction, and its target.
    jumps: Vec<(usize, Label)>,
}

const IMMEDIATE: Reg = Reg::R0; // a source register's place where there is none
/// The immediate of `LOAD_64` is a map's file descriptor (`BPF_PSEUDO_MAP_FD`).
const PSEUDO_MAP_FD: Reg = Reg::R1;

const LOAD_64: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_IMMEDIATE: u8 = 0x62;
const ADD_IMMEDIATE: u8 = 0x07;
const SUBTRACT: u8 = 0x1f;
const AND_IMMEDIATE: u8 = 0x57;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
/// With a register in place of an immediate.
const REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

impl Assembler {
    /// An empty program.
    pub fn new() -> Assembler {
        Assembler::default()
    }

    /// A label that is bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub fn bind(&mut self, label: Label) -> &mut Assembler {
        assert!(self.labels[label.0].is_none(), "a label is bound once");
        self.labels[label.0] = Some(self.code.len());
        self
    }

    /// `to = from`.
    pub fn mov(&mut self, to: Reg, from: Reg) -> &mut Assembler {
        self.emit(MOVE, to, from, 0, 0)
    }

    /// `to = value`.
    pub fn set(&mut self, to: Reg, value: i32) -> &mut Assembler {
        self.emit(MOVE_IMMEDIATE, to, IMMEDIATE, 0, value)
    }

    /// `to += value`.
    pub fn add(&mut self, to: Reg, value: i32) -> &mut Assembler {
        self.emit(ADD_IMMEDIATE, to, IMMEDIATE, 0, value)
    }

    /// `to -= from`.
    pub fn sub(&mut self, to: Reg, from: Reg) -> &mut Assembler {
        self.emit(SUBTRACT, to, from, 0, 0)
    }

    /// `to &= value`.
    pub fn and(&mut self, to: Reg, value: i32) -> &mut Assembler {
        self.emit(AND_IMMEDIATE, to, IMMEDIATE, 0, value)
    }

    /// The low 16 bits of `to`, from the network's byte order to the machine's; the rest is zero.
    pub fn from_be16(&mut self, to: Reg) -> &mut Assembler {
        self.emit(TO_BIG_ENDIAN, to, IMMEDIATE, 0, 16)
    }

    /// `to = *(from + offset)`, zero-extended.
    pub fn load(&mut self, width: Width, to: Reg, from: Reg, offset: i16) -> &mut Assembler {
        self.emit(LOAD | width as u8, to, from, offset, 0)
    }

    /// `*(to + offset) = from`.
    pub fn store(&mut self, width: Width, to: Reg, offset: i16, from: Reg) -> &mut Assembler {
        self.emit(STORE | width as u8, to, from, offset, 0)
    }

    /// `*(to + offset) = value`.
    pub fn store_value(
        &mut self,
        width: Width,
        to: Reg,
        offset: i16,
        value: i32,
    ) -> &mut Assembler {
        self.emit(STORE_IMMEDIATE | width as u8, to, IMMEDIATE, offset, value)
    }

    /// `to = map`. The descriptor must be open when the program is loaded.
    pub fn map(&mut self, to: Reg, map: BorrowedFd<'_>) -> &mut Assembler {
        self.emit(LOAD_64, to, PSEUDO_MAP_FD, 0, map.as_raw_fd());
        self.emit(0, Reg::R0, IMMEDIATE, 0, 0) // the upper half of the immediate
    }

    /// Jumps to `label`.
    pub fn jump(&mut self, label: Label) -> &mut Assembler {
        self.jumps.push((self.code.len(), label));
        self.emit(JUMP, Reg::R0, IMMEDIATE, 0, 0)
    }

    /// Jumps to `label` if the condition holds for `left` and `value`.
    pub fn jump_if(
        &mut self,
        left: Reg,
        when: Condition,
        value: i32,
        label: Label,
    ) -> &mut Assembler {
        self.jumps.push((self.code.len(), label));
        self.emit(JUMP | when as u8, left, IMMEDIATE, 0, value)
    }

    /// Jumps to `label` if the condition holds for `left` and `right`.
    pub fn jump_if_reg(
        &mut self,
        left: Reg,
        when: Condition,
        right: Reg,
        label: Label,
    ) -> &mut Assembler {
        self.jumps.push((self.code.len(), label));
        self.emit(JUMP | REGISTER | when as u8, left, right, 0, 0)
    }

    /// Calls the kernel helper of this number.
    pub fn call(&mut self, helper: i32) -> &mut Assembler {
        self.emit(CALL, Reg::R0, IMMEDIATE, 0, helper)
    }

    /// Returns `R0`.
    pub fn exit(&mut self) -> &mut Assembler {
        self.emit(EXIT, Reg::R0, IMMEDIATE, 0, 0)
    }

    /// The program, with its jumps patched.
    ///
    /// # Panics
    /// If a label was never bound, or is more than 32767 instructions away.
    pub fn finish(mut self) -> Vec<Instruction> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].expect("every label is bound");
            // Counted from the instruction behind the jump.
            let distance = target as i64 - (at as i64 + 1);
            let offset = i16::try_from(distance).expect("labels are near");
            self.code[at][2..4].copy_from_slice(&offset.to_ne_bytes());
        }
        self.code
    }

    fn emit(&mut self, code: u8, to: Reg, from: Reg, offset: i16, value: i32) -> &mut Assembler {
        let (first, second) = if cfg!(target_endian = "little") { (to, from) } else { (from, to) };
        let mut instruction = [code, first as u8 | (second as u8) << 4, 0, 0, 0, 0, 0, 0];
        instruction[2..4].copy_from_slice(&offset.to_ne_bytes());
        instruction[4..].copy_from_slice(&value.to_ne_bytes());
        self.code.push(instruction);
        self
    }
}

#[cfg(all(test, target_endian = "little"))]
mod tests;
