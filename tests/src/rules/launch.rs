//! Rules of launching kernels: shapes, arguments, where they run.

use crate::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

/// Launches the spinning kernel for no time at all in a shape.
fn shape(grid: [u32; 3], block: [u32; 3], shared: u32) -> CUresult {
    context();
    let k = Kernels::load();
    let mut time = 0u64;
    let mut arguments: [*mut c_void; 1] = [(&raw mut time).cast()];
    let code = cuLaunchKernel(
        k.spin,
        grid[0],
        grid[1],
        grid[2],
        block[0],
        block[1],
        block[2],
        shared,
        DEFAULT,
        arguments.as_mut_ptr(),
        null_mut(),
    );
    ok(cuCtxSynchronize());
    code
}

/// A word that every device reaches and that no kernel has marked.
fn unmarked() -> *mut u32 {
    let flag = pinned_as::<u32>(4);
    // SAFETY: fresh memory that no work knows.
    unsafe { flag.write(0) };
    flag
}

/// What a compiled loop asks before each turn, and how it counts.
const LOOP: &CStr = c".version 7.0
.target sm_50
.address_size 64
.visible .entry goes_on(.param .u64 counter, .param .u64 result)
.reqntid 1, 1, 1
{
    .reg .pred %p<2>;
    .reg .b16 %rs<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [counter];
    cvta.to.global.u64 %rd2, %rd1;
    ld.param.u64 %rd3, [result];
    cvta.to.global.u64 %rd4, %rd3;
    ld.global.u32 %r1, [%rd2];
    setp.lt.s32 %p1, %r1, 3;
    selp.b16 %rs1, 1, 0, %p1;
    st.global.u8 [%rd4], %rs1;
    ret;
}
.visible .entry counts(.param .u64 counter)
.reqntid 1, 1, 1
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [counter];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r1, [%rd2];
    add.s32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
";

/// Runs a loop whose end the device decides.
fn device_decides() {
    context();
    let mut module = null_mut();
    ok(cuModuleLoadData(&raw mut module, LOOP.as_ptr().cast()));
    let (goes_on, counts) = (function(module, c"goes_on"), function(module, c"counts"));
    let (mut counter, mut result) = (alloc(4), alloc(1));
    put(counter, &[0; 4]);
    put(result, &[0xff]);
    let one = |f: CUfunction, arguments: &mut [*mut c_void]| {
        ok(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, DEFAULT, arguments.as_mut_ptr(), null_mut()));
        ok(cuCtxSynchronize());
    };
    let mut turns = 0;
    loop {
        one(goes_on, &mut [(&raw mut counter).cast(), (&raw mut result).cast()]);
        match get(result, 1)[0] {
            0 => break,
            1 => turns += 1,
            other => panic!("a truth is {other}"),
        }
        assert!(turns <= 3, "it never ends");
        one(counts, &mut [(&raw mut counter).cast()]);
    }
    assert_eq!((turns, get_word(counter)), (3, 3));
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "launch.device_decides",
        "cuLaunchKernel",
        "A kernel of one thread computes what its instructions say.",
        device_decides,
    ),
    rule(
        "launch.device_decides_without_content",
        "cuLaunchKernel",
        "It does so where memory has no backing, too.",
        device_decides,
    )
    .env(&[("VGPU_BACKING", "none")])
    .virtual_only(),
    rule("launch.empty_grid", "cuLaunchKernel", "A grid without blocks is an invalid value.", || {
        for grid in [[0, 1, 1], [1, 0, 1], [1, 1, 0]] {
            refused(shape(grid, [32, 1, 1], 0), INVALID_VALUE);
        }
    }),
    rule("launch.empty_block", "cuLaunchKernel", "A block without threads is an invalid value.", || {
        for block in [[0, 1, 1], [32, 0, 1], [32, 1, 0]] {
            refused(shape([1, 1, 1], block, 0), INVALID_VALUE);
        }
    }),
    rule(
        "launch.block_too_large",
        "cuLaunchKernel",
        "More threads than a block may have are an invalid value.",
        || {
            refused(shape([1, 1, 1], [1025, 1, 1], 0), INVALID_VALUE);
            refused(shape([1, 1, 1], [64, 64, 1], 0), INVALID_VALUE);
            refused(shape([1, 1, 1], [1, 1, 65], 0), INVALID_VALUE);
            ok(shape([1, 1, 1], [1024, 1, 1], 0));
        },
    ),
    rule(
        "launch.grid_too_large",
        "cuLaunchKernel",
        "More blocks than a grid may have in a dimension are an invalid value.",
        || {
            refused(shape([1, 65_536, 1], [1, 1, 1], 0), INVALID_VALUE);
            refused(shape([1, 1, 65_536], [1, 1, 1], 0), INVALID_VALUE);
            refused(shape([0x8000_0000, 1, 1], [1, 1, 1], 0), INVALID_VALUE);
        },
    ),
    rule(
        "launch.shared_too_large",
        "cuLaunchKernel",
        "More shared memory than the function may have is an invalid value.",
        || {
            refused(shape([1, 1, 1], [32, 1, 1], 1 << 30), INVALID_VALUE);
        },
    ),
    rule(
        "launch.arguments",
        "cuLaunchKernel",
        "Arguments are read when the kernel is launched, not when it runs.",
        || {
            context();
            let k = Kernels::load();
            let stream = stream();
            let ptr = alloc(4096);
            let (mut to, mut words, mut value) = (ptr, 1024u64, 55u32);
            let gate = Gate::close(stream);
            launch(k.fill, stream, &mut [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut value).cast()]);
            // SAFETY: plain writes to own variables, which the driver must not look at any more.
            unsafe {
                (&raw mut to).write_volatile(0);
                (&raw mut words).write_volatile(0);
                (&raw mut value).write_volatile(0);
            }
            gate.open();
            sync(stream);
            assert!(all_words(ptr, 1024, 55));
        },
    ),
    rule("launch.packed_arguments", "cuLaunchKernel", "Arguments can be given as one packed buffer.", || {
        context();
        let k = Kernels::load();
        let ptr = alloc(4096);
        let mut buffer = [0u8; 20];
        buffer[..8].copy_from_slice(&ptr.to_le_bytes());
        buffer[8..16].copy_from_slice(&1024u64.to_le_bytes());
        buffer[16..].copy_from_slice(&77u32.to_le_bytes());
        let mut size = buffer.len();
        let mut extra: [*mut c_void; 5] =
            [1 as _, buffer.as_mut_ptr().cast(), 2 as _, (&raw mut size).cast(), null_mut()];
        ok(cuLaunchKernel(k.fill, 1, 1, 1, 32, 1, 1, 0, DEFAULT, null_mut(), extra.as_mut_ptr()));
        ok(cuCtxSynchronize());
        assert!(all_words(ptr, 1024, 77));
    }),
    rule("launch.arguments_twice", "cuLaunchKernel", "Arguments are given in one way, not in both.", || {
        context();
        let k = Kernels::load();
        let mut time = 0u64;
        let mut size = 8usize;
        let mut arguments: [*mut c_void; 1] = [(&raw mut time).cast()];
        let mut extra: [*mut c_void; 5] = [1 as _, (&raw mut time).cast(), 2 as _, (&raw mut size).cast(), null_mut()];
        refused(
            cuLaunchKernel(k.spin, 1, 1, 1, 1, 1, 1, 0, DEFAULT, arguments.as_mut_ptr(), extra.as_mut_ptr()),
            INVALID_VALUE,
        );
    }),
    rule("launch.no_function", "cuLaunchKernel", "NULL is no function.", || {
        context();
        refused_by_any(
            cuLaunchKernel(null_mut(), 1, 1, 1, 1, 1, 1, 0, DEFAULT, null_mut(), null_mut()),
            &[INVALID_HANDLE, INVALID_VALUE],
        );
    }),
    rule(
        "launch.needs_context",
        "cuLaunchKernel",
        "The default stream without a context is an invalid context.",
        || {
            context();
            let k = Kernels::load();
            ok(cuCtxSetCurrent(null_mut()));
            let mut time = 0u64;
            let mut arguments: [*mut c_void; 1] = [(&raw mut time).cast()];
            refused(
                cuLaunchKernel(k.spin, 1, 1, 1, 1, 1, 1, 0, DEFAULT, arguments.as_mut_ptr(), null_mut()),
                INVALID_CONTEXT,
            );
        },
    ),
    rule("launch.asynchronous", "cuLaunchKernel", "A launch returns before the kernel is done.", || {
        context();
        let k = Kernels::load();
        let stream = stream();
        k.spin(stream, 200);
        refused(cuStreamQuery(stream), NOT_READY);
        sync(stream);
    }),
    rule("launch.with_configuration", "cuLaunchKernelEx", "A launch by configuration is a launch.", || {
        context();
        let k = Kernels::load();
        let stream = stream();
        let ptr = alloc(4096);
        let (mut to, mut words, mut value) = (ptr, 1024u64, 12u32);
        let mut arguments: [*mut c_void; 3] = [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
        let config = CUlaunchConfig {
            gridDimX: 2,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 64,
            blockDimY: 1,
            blockDimZ: 1,
            hStream: stream,
            ..CUlaunchConfig::default()
        };
        ok(cuLaunchKernelEx(&raw const config, k.fill, arguments.as_mut_ptr(), null_mut()));
        sync(stream);
        assert!(all_words(ptr, 1024, 12));
    }),
    rule(
        "launch.cooperative",
        "cuLaunchCooperativeKernel",
        "A kernel of few blocks can be launched cooperatively.",
        || {
            context();
            needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
            let k = Kernels::load();
            let ptr = alloc(4096);
            let (mut to, mut words, mut value) = (ptr, 1024u64, 13u32);
            let mut arguments: [*mut c_void; 3] =
                [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
            ok(cuLaunchCooperativeKernel(k.fill, 1, 1, 1, 64, 1, 1, 0, DEFAULT, arguments.as_mut_ptr()));
            ok(cuCtxSynchronize());
            assert!(all_words(ptr, 1024, 13));
        },
    ),
    rule("launch.many_blocks", "cuLaunchKernel", "A kernel does the same work in any shape.", || {
        context();
        let k = Kernels::load();
        let ptr = alloc(MIB);
        let errors = alloc(4);
        put(errors, &[0; 4]);
        let (mut to, mut words, mut value) = (ptr, (MIB / 4) as u64, 0x1357u32);
        let mut arguments: [*mut c_void; 3] = [(&raw mut to).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
        ok(cuLaunchKernel(k.fill, 7, 1, 1, 96, 1, 1, 0, DEFAULT, arguments.as_mut_ptr(), null_mut()));
        k.check(DEFAULT, ptr, words, value, errors);
        ok(cuCtxSynchronize());
        assert_eq!(get_word(errors), 0);
        put(ptr + 400, &[0; 8]);
        k.check(DEFAULT, ptr, words, value, errors);
        ok(cuCtxSynchronize());
        assert_eq!(get_word(errors), 2, "the checking kernel counts wrong words");
    }),
    rule(
        "launch.waits_for_another",
        "cuLaunchKernel",
        "A kernel that waits for one in another stream keeps only its own stream busy.",
        || {
            context();
            let k = Kernels::load();
            let (waiting, later) = (stream(), stream());
            let flag = unmarked();
            k.wait(waiting, flag);
            let after = count_up_later(waiting);
            // Often, so that work of the waiting stream has had its turn if nothing holds it back.
            for _ in 0..64 {
                let beside = count_up_later(later);
                sync(later);
                assert_eq!(beside.load(Relaxed), 1);
                refused(cuStreamQuery(waiting), NOT_READY);
                assert_eq!(after.load(Relaxed), 0);
            }
            k.start(later, flag);
            ok(cuCtxSynchronize());
            assert_eq!(after.load(Relaxed), 1);
        },
    ),
    rule(
        "launch.waits_for_another_device",
        "cuCtxSynchronize",
        "Synchronising one device lets the work of another go on, also when the first waits for it.",
        || {
            let one = context_on(1);
            let on_one = (Kernels::load(), stream());
            let zero = context_on(0);
            let on_zero = (Kernels::load(), stream());
            let flags: Vec<_> = (0..4).map(|_| unmarked()).collect();
            // Each waits for the other in turn, as the ends of a collective do.
            for (at, &flag) in flags.iter().enumerate() {
                let (from, to) = if at % 2 == 0 { (&on_zero, &on_one) } else { (&on_one, &on_zero) };
                ok(cuCtxSetCurrent(if at % 2 == 0 { one } else { zero }));
                to.0.wait(to.1, flag);
                ok(cuCtxSetCurrent(if at % 2 == 0 { zero } else { one }));
                from.0.start(from.1, flag);
            }
            ok(cuCtxSetCurrent(one));
            ok(cuCtxSynchronize());
            ok(cuCtxSetCurrent(zero));
            ok(cuCtxSynchronize());
        },
    )
    .devices(2),
];
