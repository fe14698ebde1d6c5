//! Rules of copying and filling memory, with the content looked at.

use crate::prelude::*;
use CUmemorytype as T;

fn sizes() -> [usize; 6] {
    [1, 3, 64, 4097, 65_536, MIB + 13]
}

/// A copy of rectangles between host and device memory.
fn rows(width: usize, height: usize) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D { WidthInBytes: width, Height: height, ..CUDA_MEMCPY2D::default() }
}

fn from_host(copy: &mut CUDA_MEMCPY2D, bytes: &[u8], pitch: usize) {
    copy.srcMemoryType = T::CU_MEMORYTYPE_HOST;
    copy.srcHost = bytes.as_ptr().cast();
    copy.srcPitch = pitch;
}

fn to_device(copy: &mut CUDA_MEMCPY2D, ptr: CUdeviceptr, pitch: usize) {
    copy.dstMemoryType = T::CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = ptr;
    copy.dstPitch = pitch;
}

pub(super) const RULES: &[Rule] = &[
    rule("copy.round_trip", "cuMemcpyHtoD", "Bytes copied to the device come back as they were.", || {
        context();
        let ptr = alloc(2 * MIB);
        for size in sizes() {
            put(ptr + 5, &pattern(size, 8));
            assert_eq!(get(ptr + 5, size), pattern(size, 8));
        }
        free(ptr);
    }),
    rule("copy.device_to_device", "cuMemcpyDtoD", "Bytes copied on the device arrive, and only those.", || {
        context();
        let (from, to) = (alloc(8192), alloc(8192));
        put(from, &pattern(8192, 1));
        put(to, &[0; 8192]);
        ok(cuMemcpyDtoD_v2(to + 100, from + 7, 5000));
        let got = get(to, 8192);
        assert!(got[..100].iter().chain(&got[5100..]).all(|b| *b == 0), "written outside");
        assert_eq!(got[100..5100], pattern(8192, 1)[7..5007]);
    }),
    rule("copy.nothing", "cuMemcpyHtoD", "Copying zero bytes succeeds and changes nothing.", || {
        context();
        let ptr = alloc(16);
        put(ptr, &[6; 16]);
        ok(cuMemcpyHtoD_v2(ptr, [1u8; 1].as_ptr().cast(), 0));
        assert_eq!(get(ptr, 16), [6; 16]);
        free(ptr);
    }),
    rule("copy.null_device", "cuMemcpyHtoD", "NULL is no device memory.", || {
        context();
        let mut bytes = [0u8; 16];
        refused(cuMemcpyHtoD_v2(0, bytes.as_ptr().cast(), 16), INVALID_VALUE);
        refused(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), 0, 16), INVALID_VALUE);
    }),
    rule("copy.null_host", "cuMemcpyDtoH", "NULL is no host memory.", || {
        context();
        let ptr = alloc(16);
        refused(cuMemcpyHtoD_v2(ptr, null(), 16), INVALID_VALUE);
        refused(cuMemcpyDtoH_v2(null_mut(), ptr, 16), INVALID_VALUE);
        free(ptr);
    }),
    rule("copy.beyond_the_end", "cuMemcpyHtoD", "A copy beyond the end of its allocation is refused.", || {
        context();
        let ptr = alloc(4096);
        let bytes = vec![0u8; 8192];
        refused(cuMemcpyHtoD_v2(ptr, bytes.as_ptr().cast(), 4097), INVALID_VALUE);
        refused(cuMemcpyHtoD_v2(ptr + 4000, bytes.as_ptr().cast(), 97), INVALID_VALUE);
        ok(cuMemcpyHtoD_v2(ptr + 4000, bytes.as_ptr().cast(), 96));
        free(ptr);
    })
    .virtual_only(),
    rule("copy.needs_context", "cuMemcpyHtoD", "Copies need a context.", || {
        init();
        let bytes = [0u8; 16];
        refused(cuMemcpyHtoD_v2(4096, bytes.as_ptr().cast(), 16), INVALID_CONTEXT);
    }),
    rule(
        "copy.unified_infers",
        "cuMemcpy",
        "The unified copy finds out by itself on which side each address is.",
        || {
            context();
            let (one, other) = (alloc(4096), alloc(4096));
            let host = pattern(4096, 9);
            let mut back = vec![0u8; 4096];
            ok(cuMemcpy(one, host.as_ptr() as CUdeviceptr, 4096));
            ok(cuMemcpy(other, one, 4096));
            ok(cuMemcpy(back.as_mut_ptr() as CUdeviceptr, other, 4096));
            assert_eq!(back, host);
        },
    ),
    rule("copy.unified_async", "cuMemcpyAsync", "The unified copy in a stream is done when the stream is.", || {
        context();
        let stream = stream();
        let (host, back) = (pinned(4096), pinned(4096));
        let ptr = alloc(4096);
        // SAFETY: 4096 bytes of page-locked memory that no copy uses yet.
        unsafe { std::slice::from_raw_parts_mut(host, 4096) }.copy_from_slice(&pattern(4096, 2));
        ok(cuMemcpyAsync(ptr, host as CUdeviceptr, 4096, stream));
        ok(cuMemcpyAsync(back as CUdeviceptr, ptr, 4096, stream));
        sync(stream);
        // SAFETY: the stream is idle.
        assert_eq!(unsafe { std::slice::from_raw_parts(back, 4096) }, pattern(4096, 2));
    }),
    rule(
        "copy.async_returns_at_once",
        "cuMemcpyDtoHAsync",
        "A copy from or to page-locked memory returns before it is done.",
        || {
            context();
            let stream = stream();
            let host = pinned(64);
            let ptr = alloc(64);
            put(ptr, &[7; 64]);
            // SAFETY: 64 bytes of page-locked memory that no copy uses yet.
            unsafe { host.write_bytes(1, 64) };
            let gate = Gate::close(stream);
            ok(cuMemcpyDtoHAsync_v2(host.cast(), ptr, 64, stream));
            // SAFETY: the gate keeps the copy from running.
            assert_eq!(unsafe { *host }, 1, "copied before its turn");
            gate.open();
            sync(stream);
            // SAFETY: the stream is idle.
            assert_eq!(unsafe { *host }, 7);
        },
    ),
    rule("copy.async_in_order", "cuMemcpyDtoDAsync", "Copies of one stream are done in their order.", || {
        context();
        let stream = stream();
        let ptrs: Vec<_> = (0..6).map(|_| alloc(4096)).collect();
        put(ptrs[0], &pattern(4096, 5));
        let gate = Gate::close(stream);
        for pair in ptrs.windows(2) {
            ok(cuMemcpyDtoDAsync_v2(pair[1], pair[0], 4096, stream));
        }
        gate.open();
        sync(stream);
        assert_eq!(get(ptrs[5], 4096), pattern(4096, 5));
    }),
    rule("copy.2d_rectangles", "cuMemcpy2D", "Rectangles are cut out and placed by pitch and offset.", || {
        context();
        let ptr = alloc(64 * 256);
        put(ptr, &[0; 64 * 256]);
        let host = pattern(100 * 50, 3);
        let mut copy = rows(40, 20);
        from_host(&mut copy, &host, 100);
        copy.srcXInBytes = 11;
        copy.srcY = 7;
        to_device(&mut copy, ptr, 256);
        copy.dstXInBytes = 60;
        copy.dstY = 30;
        ok(cuMemcpy2D_v2(&raw const copy));
        let got = get(ptr, 64 * 256);
        for (i, byte) in got.iter().enumerate() {
            let (x, y) = (i % 256, i / 256);
            let inside = (60..100).contains(&x) && (30..50).contains(&y);
            let want = if inside { host[(y - 30 + 7) * 100 + x - 60 + 11] } else { 0 };
            assert_eq!(*byte, want, "column {x}, row {y}");
        }
    }),
    rule("copy.2d_async", "cuMemcpy2DAsync", "Rectangles are copied in stream order.", || {
        context();
        let stream = stream();
        let (from, to) = (alloc(4096), alloc(4096));
        put(from, &pattern(4096, 1));
        put(to, &[0; 4096]);
        let mut copy = rows(32, 16);
        copy.srcMemoryType = T::CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = from;
        copy.srcPitch = 64;
        to_device(&mut copy, to, 128);
        ok(cuMemcpy2DAsync_v2(&raw const copy, stream));
        sync(stream);
        let (source, got) = (pattern(4096, 1), get(to, 4096));
        for row in 0..16 {
            assert_eq!(got[row * 128..row * 128 + 32], source[row * 64..row * 64 + 32]);
        }
    }),
    rule("copy.2d_pitch_too_small", "cuMemcpy2D", "A row wider than the pitch is an invalid value.", || {
        context();
        let ptr = alloc(4096);
        let host = [0u8; 4096];
        let mut copy = rows(64, 4);
        from_host(&mut copy, &host, 32);
        to_device(&mut copy, ptr, 64);
        refused(cuMemcpy2D_v2(&raw const copy), INVALID_VALUE);
        free(ptr);
    }),
    rule("copy.2d_type_unknown", "cuMemcpy2D", "A kind of memory that does not exist is an invalid value.", || {
        context();
        let ptr = alloc(4096);
        let mut copy = rows(16, 4);
        to_device(&mut copy, ptr, 64);
        copy.srcMemoryType = CUmemorytype_enum(77);
        refused(cuMemcpy2D_v2(&raw const copy), INVALID_VALUE);
        refused(cuMemcpy2D_v2(null()), INVALID_VALUE);
        free(ptr);
    }),
    rule("copy.2d_unaligned", "cuMemcpy2DUnaligned", "The unaligned form takes any pitch.", || {
        context();
        let ptr = alloc(4096);
        let host = pattern(33 * 10, 1);
        let mut copy = rows(33, 10);
        from_host(&mut copy, &host, 33);
        to_device(&mut copy, ptr, 77);
        ok(cuMemcpy2DUnaligned_v2(&raw const copy));
        let got = get(ptr, 770);
        for row in 0..10 {
            assert_eq!(got[row * 77..row * 77 + 33], host[row * 33..row * 33 + 33]);
        }
        free(ptr);
    }),
    rule("copy.3d_volumes", "cuMemcpy3D", "Volumes are placed by pitch and height.", || {
        context();
        let (width, height, depth) = (16, 5, 4);
        let host = pattern(width * height * depth, 6);
        let ptr = alloc(64 * 8 * 4);
        put(ptr, &[0; 64 * 8 * 4]);
        let copy = CUDA_MEMCPY3D {
            srcMemoryType: T::CU_MEMORYTYPE_HOST,
            srcHost: host.as_ptr().cast(),
            srcPitch: width,
            srcHeight: height,
            dstMemoryType: T::CU_MEMORYTYPE_DEVICE,
            dstDevice: ptr,
            dstPitch: 64,
            dstHeight: 8,
            WidthInBytes: width,
            Height: height,
            Depth: depth,
            ..CUDA_MEMCPY3D::default()
        };
        ok(cuMemcpy3D_v2(&raw const copy));
        let got = get(ptr, 64 * 8 * 4);
        for z in 0..depth {
            for y in 0..height {
                let (to, from) = ((z * 8 + y) * 64, (z * height + y) * width);
                assert_eq!(got[to..to + width], host[from..from + width]);
            }
        }
        assert_eq!(got[16], 0, "written outside");
    }),
    rule("copy.peer_same_context", "cuMemcpyPeer", "The copy between contexts works within one context too.", || {
        let ctx = context();
        let (from, to) = (alloc(4096), alloc(4096));
        put(from, &pattern(4096, 8));
        ok(cuMemcpyPeer(to, ctx, from, ctx, 4096));
        ok(cuCtxSynchronize());
        assert_eq!(get(to, 4096), pattern(4096, 8));
    }),
    rule("set.bytes", "cuMemsetD8", "Exactly the given number of bytes is set.", || {
        context();
        let ptr = alloc(100);
        put(ptr, &[0; 100]);
        ok(cuMemsetD8_v2(ptr + 10, 0xA5, 33));
        let got = get(ptr, 100);
        assert!((0..100).all(|i| got[i] == if (10..43).contains(&i) { 0xA5 } else { 0 }));
    }),
    rule("set.halves", "cuMemsetD16", "16-bit values are set by number.", || {
        context();
        let ptr = alloc(64);
        put(ptr, &[0; 64]);
        ok(cuMemsetD16_v2(ptr + 2, 0xBEEF, 10));
        let got = get(ptr, 64);
        assert!(got[2..22].chunks(2).all(|c| c == 0xBEEF_u16.to_le_bytes()) && got[22] == 0 && got[1] == 0);
    }),
    rule("set.words", "cuMemsetD32", "32-bit values are set by number.", || {
        context();
        let ptr = alloc(4096);
        put(ptr, &[0; 4096]);
        ok(cuMemsetD32_v2(ptr + 4, 0xDEAD_BEEF, 100));
        assert_eq!(get_word(ptr), 0);
        assert!(all_words(ptr + 4, 100, 0xDEAD_BEEF));
        assert_eq!(get_word(ptr + 404), 0);
    }),
    rule("set.misaligned", "cuMemsetD32", "Values of 16 and 32 bits need aligned addresses.", || {
        context();
        let ptr = alloc(64);
        refused(cuMemsetD16_v2(ptr + 1, 0, 4), INVALID_VALUE);
        refused(cuMemsetD32_v2(ptr + 2, 0, 4), INVALID_VALUE);
        free(ptr);
    }),
    rule("set.beyond_the_end", "cuMemsetD8", "Setting beyond the end of an allocation is refused.", || {
        context();
        let ptr = alloc(4096);
        refused(cuMemsetD8_v2(ptr, 1, 4097), INVALID_VALUE);
        refused(cuMemsetD32_v2(ptr + 4092, 1, 2), INVALID_VALUE);
        free(ptr);
    })
    .virtual_only(),
    rule("set.rectangle_bytes", "cuMemsetD2D8", "Rows of bytes are set by pitch.", || {
        context();
        let ptr = alloc(1024);
        put(ptr, &[0; 1024]);
        ok(cuMemsetD2D8_v2(ptr, 64, 9, 10, 5));
        let got = get(ptr, 1024);
        assert!((0..1024).all(|i| got[i] == if i % 64 < 10 && i / 64 < 5 { 9 } else { 0 }));
    }),
    rule("set.rectangle_words", "cuMemsetD2D32", "Rows of 16-bit and 32-bit values are set by pitch.", || {
        context();
        let ptr = alloc(1024);
        put(ptr, &[0; 1024]);
        ok(cuMemsetD2D32_v2(ptr, 64, 0x0102_0304, 3, 4));
        ok(cuMemsetD2D16_v2(ptr + 32, 64, 0x0506, 3, 4));
        for row in 0..4 {
            assert!(all_words(ptr + row * 64, 3, 0x0102_0304));
            assert_eq!(get(ptr + row * 64 + 32, 8), [6, 5, 6, 5, 6, 5, 0, 0]);
        }
    }),
    rule("set.async_in_order", "cuMemsetD32Async", "Setting in a stream takes its place in the order.", || {
        context();
        let stream = stream();
        let ptr = alloc(4096);
        let gate = Gate::close(stream);
        for value in 1..=5 {
            ok(cuMemsetD32Async(ptr, value, 1024, stream));
        }
        gate.open();
        sync(stream);
        assert!(all_words(ptr, 1024, 5));
    }),
    rule("set.async_rectangle", "cuMemsetD2D8Async", "Rectangles are set in stream order.", || {
        context();
        let stream = stream();
        let ptr = alloc(1024);
        ok(cuMemsetD8Async(ptr, 1, 1024, stream));
        ok(cuMemsetD2D8Async(ptr, 64, 2, 8, 2, stream));
        ok(cuMemsetD16Async(ptr, 0x0303, 2, stream));
        sync(stream);
        let got = get(ptr, 80);
        assert_eq!(got[..9], [3, 3, 3, 3, 2, 2, 2, 2, 1]);
        assert_eq!(got[64..73], [2, 2, 2, 2, 2, 2, 2, 2, 1]);
    }),
];
