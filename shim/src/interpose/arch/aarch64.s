    // dlsym and dlvsym for aarch64: x0 = handle, x1 = name, x2 = version (dlvsym only).
    // A name that begins with cu, nv or dl is put to {decide}; every other name goes on to the real
    // function by a jump, with all arguments and the caller's return address as they came.
    .cfi_startproc
    hint #34                        // bti c
    ldrb w9, [x1]
    cmp w9, #99                     // c
    b.eq 20f
    cmp w9, #110                    // n
    b.eq 21f
    cmp w9, #100                    // d
    b.eq 22f
30: adrp x16, {real}
    ldr x16, [x16, :lo12:{real}]
    cbz x16, 40f                    // not found yet: {decide} finds it
    br x16
20: ldrb w9, [x1, #1]
    cmp w9, #117                    // cu
    b.eq 40f
    b 30b
21: ldrb w9, [x1, #1]
    cmp w9, #118                    // nv
    b.eq 40f
    b 30b
22: ldrb w9, [x1, #1]
    cmp w9, #108                    // dl
    b.ne 30b
40: mov x3, x30                     // the caller
    stp x29, x30, [sp, #-48]!
    .cfi_adjust_cfa_offset 48
    .cfi_rel_offset x29, 0
    .cfi_rel_offset x30, 8
    mov x29, sp
    stp x0, x1, [sp, #16]
    str x2, [sp, #32]
    bl {decide}                     // x0 = address, x1 = 1: jump there, 0: it is the answer
    mov x16, x0
    mov x17, x1
    ldp x0, x1, [sp, #16]
    ldr x2, [sp, #32]
    ldp x29, x30, [sp], #48
    .cfi_adjust_cfa_offset -48
    .cfi_restore x29
    .cfi_restore x30
    cbz x17, 50f
    br x16
50: mov x0, x16
    ret
    .cfi_endproc
