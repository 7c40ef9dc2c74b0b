//! The bytes, against the output of clang and llvm-objdump for the same instructions.

use std::os::fd::AsFd;

use super::Reg::*;
use super::*;

/// The bytes of the program that `write` writes.
fn bytes(write: impl FnOnce(&mut Assembler)) -> Vec<u8> {
    let mut assembler = Assembler::new();
    write(&mut assembler);
    assembler.finish().concat()
}

#[test]
fn each_instruction_has_its_bytes() {
    type Write = fn(&mut Assembler);
    let cases: [(&str, Write, [u8; 8]); 15] = [
        ("r6 = r1", |a| _ = a.mov(R6, R1), [0xbf, 0x16, 0, 0, 0, 0, 0, 0]),
        ("r3 = 2", |a| _ = a.set(R3, 2), [0xb7, 3, 0, 0, 2, 0, 0, 0]),
        ("r2 += -4", |a| _ = a.add(R2, -4), [7, 2, 0, 0, 0xfc, 0xff, 0xff, 0xff]),
        ("r3 -= r2", |a| _ = a.sub(R3, R2), [0x1f, 0x23, 0, 0, 0, 0, 0, 0]),
        ("r5 &= 4095", |a| _ = a.and(R5, 4095), [0x57, 5, 0, 0, 0xff, 0xf, 0, 0]),
        ("r7 = be16 r7", |a| _ = a.from_be16(R7), [0xdc, 7, 0, 0, 16, 0, 0, 0]),
        (
            "r2 = *(u32 *)(r1 + 16)",
            |a| _ = a.load(Width::Word, R2, R1, 16),
            [0x61, 0x12, 16, 0, 0, 0, 0, 0],
        ),
        (
            "r5 = *(u16 *)(r2 + 12)",
            |a| _ = a.load(Width::Half, R5, R2, 12),
            [0x69, 0x25, 12, 0, 0, 0, 0, 0],
        ),
        (
            "r5 = *(u8 *)(r2 + 0)",
            |a| _ = a.load(Width::Byte, R5, R2, 0),
            [0x71, 0x25, 0, 0, 0, 0, 0, 0],
        ),
        (
            "*(u32 *)(r10 - 4) = r7",
            |a| _ = a.store(Width::Word, R10, -4, R7),
            [0x63, 0x7a, 0xfc, 0xff, 0, 0, 0, 0],
        ),
        (
            "*(u16 *)(r10 - 10) = r7",
            |a| _ = a.store(Width::Half, R10, -10, R7),
            [0x6b, 0x7a, 0xf6, 0xff, 0, 0, 0, 0],
        ),
        (
            "*(u32 *)(r10 - 16) = 1",
            |a| _ = a.store_value(Width::Word, R10, -16, 1),
            [0x62, 0x0a, 0xf0, 0xff, 1, 0, 0, 0],
        ),
        (
            "*(u16 *)(r10 - 12) = 0",
            |a| _ = a.store_value(Width::Half, R10, -12, 0),
            [0x6a, 0x0a, 0xf4, 0xff, 0, 0, 0, 0],
        ),
        ("call 51", |a| _ = a.call(51), [0x85, 0, 0, 0, 51, 0, 0, 0]),
        ("exit", |a| _ = a.exit(), [0x95, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (text, write, want) in cases {
        assert_eq!(bytes(write), want, "{text}");
    }
}

#[test]
fn a_map_takes_two_instructions() {
    let stdin = std::io::stdin(); // number 0
    let got = bytes(|assembler| _ = assembler.map(R1, stdin.as_fd()));
    assert_eq!(got, [0x18, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn jumps_count_from_the_instruction_behind_them() {
    let got = bytes(|assembler| {
        let (back, ahead) = (assembler.label(), assembler.label());
        assembler.bind(back).set(R0, 0);
        assembler.jump_if(R5, Condition::Equal, 0x81, ahead);
        assembler.jump_if(R5, Condition::AnyBit, 1, ahead);
        assembler.jump_if_reg(R4, Condition::Greater, R3, back);
        assembler.jump(ahead);
        assembler.bind(ahead).exit();
    });
    let jumps: Vec<&[u8]> = got.chunks(8).skip(1).take(4).collect();
    assert_eq!(
        jumps,
        [
            [0x15, 5, 3, 0, 0x81, 0, 0, 0],
            [0x45, 5, 2, 0, 1, 0, 0, 0],
            [0x2d, 0x34, 0xfc, 0xff, 0, 0, 0, 0],
            [0x05, 0, 0, 0, 0, 0, 0, 0],
        ]
    );
}

#[test]
#[should_panic(expected = "every label is bound")]
fn a_label_that_is_nowhere_is_a_bug() {
    let mut assembler = Assembler::new();
    let nowhere = assembler.label();
    assembler.jump(nowhere);
    assembler.finish();
}
