//! Programs as XLA's compiler writes them, run on a small memory.

use super::*;
use crate::kernel::ptx;

#[derive(Default)]
struct Bytes {
    kept: HashMap<u64, u8>,
    end: u64,
}

impl Memory for Bytes {
    fn load(&mut self, at: u64, bytes: u32) -> Option<u64> {
        let byte = |i: u32| u64::from(*self.kept.get(&(at + u64::from(i))).unwrap_or(&0)) << (8 * i);
        (at + u64::from(bytes) <= self.end).then(|| (0..bytes).map(byte).sum())
    }

    fn store(&mut self, at: u64, bytes: u32, value: u64) -> Option<()> {
        if at + u64::from(bytes) > self.end {
            return None;
        }
        self.kept.extend((0..bytes).map(|i| (at + u64::from(i), (value >> (8 * i)) as u8)));
        Some(())
    }
}

/// A kernel with the parameters `a` and `b`, addresses 64 and 128.
fn program(body: &str) -> Option<Program> {
    let text = format!(
        ".version 8.1\n.target sm_80\n.visible .entry k(.param .u64 a, .param .u64 b)\n.reqntid 1, 1, 1\n{{\n{body}\n}}\n"
    );
    ptx::parse(text.as_bytes()).expect("PTX").entries.pop().expect("an entry").program
}

fn run(body: &str, word: u64) -> Option<Bytes> {
    let mut memory = Bytes { end: 4096, ..Bytes::default() };
    memory.store(64, 8, word)?;
    let arguments = [64u64.to_le_bytes(), 128u64.to_le_bytes()].concat();
    program(body).expect("it can be computed").run(&arguments, &mut memory).map(|()| memory)
}

/// What a body that computes `%r2` or `%rd9` of the word at `a` stores at `b`.
fn computed(instructions: &str, kind: &str, register: &str, word: u64) -> u64 {
    let body = format!(
        ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<12>;\n\
         ld.param.b64 %rd1, [a];\ncvta.to.global.u64 %rd2, %rd1;\nld.param.b64 %rd3, [b];\n\
         ld.global.nc.{kind} {register}, [%rd2];\n{instructions}\nst.global.{kind} [%rd3], {register};\nret;"
    );
    run(&body, word).expect("it ends").load(128, 8).expect("memory")
}

#[test]
fn a_loop_condition_compares_a_counter() {
    let body = ".reg .pred %p<2>;\n.reg .b16 %rs<2>;\n.reg .b32 %r<2>;\n.reg .b64 %rd<5>;\n\
        ld.param.b64 \t%rd1, [a];\ncvta.to.global.u64 \t%rd2, %rd1;\nld.param.b64 \t%rd3, [b];\n\
        cvta.to.global.u64 \t%rd4, %rd3;\nld.global.nc.b32 \t%r1, [%rd2];\nsetp.lt.s32 \t%p1, %r1, 64;\n\
        selp.b16 \t%rs1, 1, 0, %p1;\nst.global.b8 \t[%rd4], %rs1;\nret;";
    for (counter, goes_on) in [(0u32, 1), (63, 1), (64, 0), (65, 0), (u32::MAX, 1)] {
        assert_eq!(run(body, counter.into()).expect("it ends").kept[&128], goes_on, "{counter}");
    }
}

#[test]
fn whole_numbers_wrap_and_keep_their_sign() {
    for (instructions, kind, word, expected) in [
        ("add.s32 %r2, %r2, 1;", "b32", 0xffff_ffff, 0),
        ("sub.s32 %r2, %r2, 1;", "b32", 0, 0xffff_ffff),
        ("mul.lo.s32 %r2, %r2, -3;", "b32", 2, 0xffff_fffa),
        ("shr.s32 %r2, %r2, 1;", "b32", 0x8000_0000, 0xc000_0000),
        ("shr.u32 %r2, %r2, 1;", "b32", 0x8000_0000, 0x4000_0000),
        ("shr.u32 %r2, %r2, 32;", "b32", 5, 0),
        ("shl.b32 %r2, %r2, 40;", "b32", 5, 0),
        ("min.s32 %r2, %r2, 7;", "b32", 0xffff_fff0, 0xffff_fff0),
        ("min.u32 %r2, %r2, 7;", "b32", 0xffff_fff0, 7),
        ("rem.u32 %r2, %r2, 7;", "b32", 15, 1),
        ("xor.b32 %r2, %r2, 0xF;", "b32", 5, 10),
        ("not.b32 %r2, %r2;", "b32", 0, 0xffff_ffff),
        ("neg.s32 %r2, %r2;", "b32", 5, 0xffff_fffb),
        ("mad.lo.s32 %r2, %r2, 3, 4;", "b32", 5, 19),
        ("cvt.s64.s32 %rd4, %r2; shr.s64 %rd5, %rd4, 32; cvt.u32.u64 %r2, %rd5;", "b32", 0xffff_fff0, 0xffff_ffff),
        ("mul.wide.s32 %rd4, %r2, 4; shr.u64 %rd5, %rd4, 32; cvt.u32.u64 %r2, %rd5;", "b32", 0xffff_ffff, 0xffff_ffff),
        ("mul.wide.u32 %rd4, %r2, 4; shr.u64 %rd5, %rd4, 32; cvt.u32.u64 %r2, %rd5;", "b32", 0xffff_ffff, 3),
    ] {
        assert_eq!(computed(instructions, kind, "%r2", word), expected, "{instructions}");
    }
}

#[test]
fn floats_are_computed_and_compared_with_what_is_no_number() {
    let bits = |value: f32| u64::from(value.to_bits());
    assert_eq!(computed("add.rn.f32 %r2, %r2, 0f3F800000;", "b32", "%r2", bits(1.5)), bits(2.5));
    assert_eq!(computed("fma.rn.f32 %r2, %r2, %r2, 0f3F800000;", "b32", "%r2", bits(3.0)), bits(10.0));
    assert_eq!(computed("cvt.rzi.s32.f32 %r2, %r2;", "b32", "%r2", bits(-2.7)), u64::from(-2i32 as u32));
    assert_eq!(computed("cvt.rn.f32.s32 %r2, %r2;", "b32", "%r2", u64::from(-2i32 as u32)), bits(-2.0));
    for (comparison, holds) in [("lt", 0), ("ltu", 1), ("eq", 0), ("neu", 1)] {
        let instructions = format!("setp.{comparison}.f32 %p1, %r2, 0f00000000; selp.b32 %r2, 1, 0, %p1;");
        assert_eq!(computed(&instructions, "b32", "%r2", bits(f32::NAN)), holds, "{comparison}");
    }
}

#[test]
fn branches_and_guards_are_followed() {
    let sum = "mov.b32 %r3, 0;\n$L1:\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $L2;\nadd.s32 %r3, %r3, %r2;\n\
        sub.s32 %r2, %r2, 1;\nbra.uni $L1;\n$L2:\nmov.b32 %r2, %r3;\n@!%p1 mov.b32 %r2, 0;";
    assert_eq!(computed(sum, "b32", "%r2", 10), 55);
}

#[test]
fn what_is_not_known_or_goes_astray_is_not_computed() {
    for body in
        ["ex2.approx.f32 %r1, %r1;", "ld.global.v2.b32 {%r1, %r2}, [%rd1];", "bra $nowhere;", "call f;", "mov.b32 %r1"]
    {
        assert_eq!(program(body), None, "{body}");
    }
    assert!(run("$L1:\nbra $L1;", 0).is_none(), "it never ends");
    assert!(run("mov.b64 %rd1, 0x100000;\nst.global.b32 [%rd1], 1;\nret;", 0).is_none(), "none of its memory");
    let many = ".version 8.1\n.target sm_80\n.visible .entry k(.param .u64 a)\n.reqntid 2, 1, 1\n{\nret;\n}\n";
    assert!(ptx::parse(many.as_bytes()).expect("PTX").entries[0].program.is_none(), "two threads");
}
