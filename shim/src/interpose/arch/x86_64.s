    // dlsym and dlvsym for x86-64: rdi = handle, rsi = name, rdx = version (dlvsym only).
    // A name that begins with cu, nv or dl is put to {decide}; every other name goes on to the real
    // function by a jump, with all arguments and the caller's return address as they came.
    .cfi_startproc
    endbr64
    cmp byte ptr [rsi], 99          // c
    je 20f
    cmp byte ptr [rsi], 110         // n
    je 21f
    cmp byte ptr [rsi], 100         // d
    je 22f
30: mov rax, qword ptr [rip + {real}]
    test rax, rax
    jz 40f                          // not found yet: {decide} finds it
    jmp rax
20: cmp byte ptr [rsi + 1], 117     // cu
    je 40f
    jmp 30b
21: cmp byte ptr [rsi + 1], 118     // nv
    je 40f
    jmp 30b
22: cmp byte ptr [rsi + 1], 108     // dl
    jne 30b
40: mov rcx, qword ptr [rsp]        // the caller
    push rdi
    .cfi_adjust_cfa_offset 8
    push rsi
    .cfi_adjust_cfa_offset 8
    push rdx
    .cfi_adjust_cfa_offset 8
    call {decide}                   // rax = address, rdx = 1: jump there, 0: it is the answer
    mov r11, rdx
    pop rdx
    .cfi_adjust_cfa_offset -8
    pop rsi
    .cfi_adjust_cfa_offset -8
    pop rdi
    .cfi_adjust_cfa_offset -8
    test r11, r11
    jz 50f
    jmp rax
50: ret
    .cfi_endproc
