//! What the reader of PTX finds in texts, and what it refuses.

use super::*;

const HEAD: &str = ".version 8.4\n.target sm_80\n.address_size 64\n";

fn read(body: &str) -> Parsed<Ptx> {
    parse(format!("{HEAD}{body}").as_bytes())
}

fn layout(parameters: &str) -> Vec<(u32, u32)> {
    let ptx = read(&format!(".visible .entry k({parameters}) {{ ret; }}")).expect("good text");
    ptx.entries[0].parameters.iter().map(|p| (p.offset, p.size)).collect()
}

#[test]
fn parameters_lie_at_their_natural_alignment() {
    assert_eq!(layout(""), []);
    assert_eq!(layout(".param .u64 a, .param .u64 b, .param .u32 c"), [(0, 8), (8, 8), (16, 4)]);
    assert_eq!(layout(".param .u32 a, .param .u64 b, .param .u8 c, .param .f16 d"), [(0, 4), (8, 8), (16, 1), (18, 2)]);
    assert_eq!(layout(".param .u8 a, .param .v4 .f32 b"), [(0, 1), (16, 16)]);
    assert_eq!(layout(".param.u32 a,.param.u64 b"), [(0, 4), (8, 8)]);
}

#[test]
fn arrays_take_their_declared_alignment() {
    assert_eq!(layout(".param .u32 a, .param .align 8 .b8 s[24], .param .u8 z"), [(0, 4), (8, 24), (32, 1)]);
    assert_eq!(layout(".param .u8 a, .param .b8 s[3], .param .align 2 .b8 t[2][3]"), [(0, 1), (1, 3), (4, 6)]);
}

#[test]
fn the_alignment_after_ptr_is_the_pointees() {
    assert_eq!(layout(".param .u32 n, .param .u64 .ptr .global .align 1 p"), [(0, 4), (8, 8)]);
    assert_eq!(layout(".param .u8 n, .param .u64 .ptr .align 128 p"), [(0, 1), (8, 8)]);
}

#[test]
fn comments_strings_and_debug_sections_are_no_code() {
    let ptx = read(
        "// .entry a() { ret; }\n/* .entry b() {} */ .file 1 \"x.cu .entry c() {\"\n\
         .section .debug_str { .b8 1,2,3 }\n.func (.param .b32 r) f (.param .b64 p) { ret; }\n\
         .func g;\n.visible .entry d(.param .u64 /* .u32 */ p) { // }\n { ret; } }",
    )
    .expect("good text");
    let names: Vec<_> = ptx.entries.iter().map(|e| e.name.to_str().unwrap()).collect();
    assert_eq!(names, ["d"]);
    assert_eq!(ptx.entries[0].parameter_bytes, 8);
}

#[test]
fn a_declaration_is_no_entry() {
    let ptx = read(".extern .entry k(.param .u64 p);").expect("good text");
    assert!(ptx.entries.is_empty());
    let ptx = read(".entry plain { ret; }").expect("an entry without a parameter list");
    assert_eq!(ptx.entries.len(), 1);
}

#[test]
fn variables_have_sizes() {
    let ptx = read(
        ".visible .global .align 4 .u32 counter;\n.const .align 8 .f64 table[2][5];\n\
         .global .align 1 .b8 text[] = {72, 105, 0};\n.global .u64 addresses[] = {counter, generic(counter)+8};\n\
         .extern .global .align 4 .b8 elsewhere[16];\n.global .v4 .f32 lanes;\n\
         .global .attribute(.managed) .align 8 .b64 shared_with_host;\n.global .align 16 .u32 one[2] = {1, 2}, two;",
    )
    .expect("good text");
    let sizes: Vec<_> = ptx.variables.iter().map(|v| (v.name.to_str().unwrap(), v.size)).collect();
    let expected = [
        ("counter", 4),
        ("table", 80),
        ("text", 3),
        ("addresses", 16),
        ("lanes", 16),
        ("shared_with_host", 8),
        ("one", 8),
        ("two", 4),
    ];
    assert_eq!(sizes, expected);
    assert!(ptx.variables[1].constant && !ptx.variables[0].constant);
    assert!(ptx.variables[5].managed && !ptx.variables[4].managed);
}

#[test]
fn limits_and_shared_memory_of_a_kernel() {
    let ptx = read(
        ".shared .align 4 .b8 common[100];\n.extern .shared .align 16 .b8 dynamic[];\n\
         .entry k() .maxntid 32, 4, 2 .maxnreg 40 { .shared .align 4 .b8 mine[28]; .reg .b32 %r<9>; ret; }",
    )
    .expect("good text");
    let k = &ptx.entries[0];
    assert_eq!((k.max_threads, k.max_registers, k.shared_bytes), (Some(256), Some(40), 128));
}

#[test]
fn a_text_needs_version_and_target() {
    assert_eq!(parse(b".version 8.0\n.entry k() { ret; }"), Err(Malformed));
    assert_eq!(parse(b".target sm_80\n.entry k() { ret; }"), Err(Malformed));
    assert_eq!(parse(b".version eight .target sm_80"), Err(Malformed));
    assert_eq!(parse(b""), Err(Malformed));
    assert_eq!(read("").map(|p| p.version), Ok(84));
}

#[test]
fn broken_texts_are_refused() {
    for bad in [
        ".entry k(",
        ".entry k(.param .u64",
        ".entry k(.param .u64 p) {",
        ".entry k(.param .u64 p) { { ret; }",
        ".entry 9k() {}",
        ".entry k(.param p) {}",
        ".entry k(.param .u64 p[]) {}",
        ".entry k(.param .b8 p[0]) {}",
        ".entry k(.param .b8 p[32765]) {}",
        ".entry k(.param .b8 p[18446744073709551615][2]) {}",
        ".entry k(.param .align 3 .b8 p[4]) {}",
        ".entry k(.param .align 0 .b8 p[4]) {}",
        ".entry k(.reg .u64 p) {}",
        ".entry k() .maxntid 99999999999, 99999999999 {}",
        ".global .u32",
        ".global .u32 a[4",
        ".global .u32 a[4][]",
        ".global .u32 a[1 << 3];",
        ".global .u64 a[0xffffffffffffffff];",
        ".global .u32 a = {1, 2",
        ".global .attribute(.managed .u32 a;",
        "}",
        "{",
        ".version 8",
    ] {
        assert_eq!(read(bad), Err(Malformed), "{bad}");
    }
}

#[test]
fn no_bytes_break_the_reader() {
    let good = format!(
        "{HEAD}.global .align 4 .b8 t[] = {{1,2,3}}; /* c */ .shared .b32 s;\n\
         .visible .entry k(.param .u64 .ptr .align 4 a, .param .align 8 .b8 b[16]) .maxntid 1,2,3 {{ .shared .b8 x[4]; \"s\" }}"
    );
    assert!(parse(good.as_bytes()).is_ok());
    // Every prefix, and every byte replaced by signs that mean something.
    for at in 0..good.len() {
        let _ = parse(&good.as_bytes()[..at]);
        for sign in [0u8, b'{', b'}', b'[', b']', b'(', b')', b';', b',', b'"', b'.', b'/', b'*', 0xff] {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = sign;
            let _ = parse(&bytes);
        }
    }
    // Depth is counted, not recursed.
    assert_eq!(read(&"{".repeat(1 << 20)), Err(Malformed));
}

#[test]
fn a_first_word_distinguishes_ptx_from_other_texts() {
    assert!(looks_like_ptx(b"// made by hand\n.version 8.0"));
    assert!(looks_like_ptx(b"/* a */ .entry"));
    assert!(!looks_like_ptx(b"hello"));
    assert!(!looks_like_ptx(b""));
    assert!(!looks_like_ptx(b"// only a comment"));
}
