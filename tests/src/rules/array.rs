//! Rules of arrays and mipmapped arrays.

use crate::prelude::*;
use CUarray_format as F;

fn flat(width: usize, height: usize) -> CUDA_ARRAY_DESCRIPTOR {
    CUDA_ARRAY_DESCRIPTOR { Width: width, Height: height, Format: F::CU_AD_FORMAT_UNSIGNED_INT8, NumChannels: 1 }
}

fn solid(width: usize, height: usize, depth: usize) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: height,
        Depth: depth,
        Format: F::CU_AD_FORMAT_FLOAT,
        NumChannels: 1,
        Flags: 0,
    }
}

fn create(descriptor: &CUDA_ARRAY_DESCRIPTOR) -> CUarray {
    let mut array = null_mut();
    ok(cuArrayCreate_v2(&raw mut array, descriptor));
    array
}

fn create_refused(descriptor: &CUDA_ARRAY_DESCRIPTOR) {
    let mut array = null_mut();
    refused(cuArrayCreate_v2(&raw mut array, descriptor), INVALID_VALUE);
}

/// A mipmapped array of 64 × 32 with as many levels as requested.
fn mipmapped(levels: u32) -> CUmipmappedArray {
    let mut array = null_mut();
    ok(cuMipmappedArrayCreate(&raw mut array, &raw const *Box::leak(Box::new(solid(64, 32, 0))), levels));
    array
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "array.descriptor_reported",
        "cuArrayGetDescriptor",
        "An array reports the shape it was created with.",
        || {
            context();
            let array = create(&flat(100, 50));
            let mut got = CUDA_ARRAY_DESCRIPTOR::default();
            ok(cuArrayGetDescriptor_v2(&raw mut got, array));
            assert_eq!((got.Width, got.Height, got.NumChannels), (100, 50, 1));
            assert_eq!(got.Format, F::CU_AD_FORMAT_UNSIGNED_INT8);
            ok(cuArrayDestroy(array));
        },
    ),
    rule(
        "array.3d_descriptor_reported",
        "cuArray3DGetDescriptor",
        "A three-dimensional array reports its shape.",
        || {
            context();
            let mut array = null_mut();
            let wanted = solid(8, 6, 4);
            ok(cuArray3DCreate_v2(&raw mut array, &raw const wanted));
            let mut got = CUDA_ARRAY3D_DESCRIPTOR::default();
            ok(cuArray3DGetDescriptor_v2(&raw mut got, array));
            assert_eq!((got.Width, got.Height, got.Depth), (8, 6, 4));
            ok(cuArrayDestroy(array));
        },
    ),
    rule("array.narrow", "cuArrayCreate", "The functions of CUDA 2 make the same arrays from 32-bit sizes.", || {
        context();
        let (mut array, mut got) = (null_mut(), CUDA_ARRAY3D_DESCRIPTOR::default());
        let format = F::CU_AD_FORMAT_FLOAT;
        let wanted = CUDA_ARRAY_DESCRIPTOR_v1 { Width: 100, Height: 50, Format: format, NumChannels: 2 };
        ok(cuArrayCreate(&raw mut array, &raw const wanted));
        ok(cuArray3DGetDescriptor_v2(&raw mut got, array));
        assert_eq!((got.Width, got.Height, got.Depth, got.NumChannels), (100, 50, 0, 2));
        ok(cuArrayDestroy(array));
        let wanted =
            CUDA_ARRAY3D_DESCRIPTOR_v1 { Width: 8, Height: 6, Depth: 4, Format: format, NumChannels: 1, Flags: 0 };
        ok(cuArray3DCreate(&raw mut array, &raw const wanted));
        ok(cuArray3DGetDescriptor_v2(&raw mut got, array));
        assert_eq!((got.Width, got.Height, got.Depth), (8, 6, 4));
        ok(cuArrayDestroy(array));
    }),
    rule("array.needs_width", "cuArrayCreate", "Zero width is an invalid value.", || {
        context();
        create_refused(&flat(0, 10));
    }),
    rule("array.channels", "cuArrayCreate", "An element has 1, 2 or 4 channels.", || {
        context();
        for bad in [0, 3, 5] {
            create_refused(&CUDA_ARRAY_DESCRIPTOR { NumChannels: bad, ..flat(16, 16) });
        }
        for good in [1, 2, 4] {
            ok(cuArrayDestroy(create(&CUDA_ARRAY_DESCRIPTOR { NumChannels: good, ..flat(16, 16) })));
        }
    }),
    rule("array.format_unknown", "cuArrayCreate", "A format that does not exist is an invalid value.", || {
        context();
        create_refused(&CUDA_ARRAY_DESCRIPTOR { Format: CUarray_format_enum(0xFFFF), ..flat(16, 16) });
    }),
    rule("array.needs_result", "cuArrayCreate", "NULL for the array or its description is an invalid value.", || {
        context();
        let mut array = null_mut();
        refused(cuArrayCreate_v2(null_mut(), &raw const *Box::leak(Box::new(flat(4, 4)))), INVALID_VALUE);
        refused(cuArrayCreate_v2(&raw mut array, null()), INVALID_VALUE);
    }),
    rule("array.1d_round_trip", "cuMemcpyHtoA", "Bytes copied to an array come back as they were.", || {
        context();
        let array = create(&flat(1000, 0));
        let host = pattern(1000, 1);
        let mut back = vec![0u8; 600];
        ok(cuMemcpyHtoA_v2(array, 0, host.as_ptr().cast(), 1000));
        ok(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), array, 300, 600));
        assert_eq!(back, host[300..900]);
        ok(cuArrayDestroy(array));
    }),
    rule(
        "array.device_round_trip",
        "cuMemcpyDtoA",
        "Bytes go from device memory to an array, to another array and back.",
        || {
            context();
            let (one, other) = (create(&flat(512, 0)), create(&flat(512, 0)));
            let (from, to) = (alloc(512), alloc(512));
            put(from, &pattern(512, 7));
            ok(cuMemcpyDtoA_v2(one, 0, from, 512));
            ok(cuMemcpyAtoA_v2(other, 0, one, 0, 512));
            ok(cuMemcpyAtoD_v2(to, other, 0, 512));
            assert_eq!(get(to, 512), pattern(512, 7));
            ok(cuArrayDestroy(one));
            ok(cuArrayDestroy(other));
        },
    ),
    rule("array.2d_round_trip", "cuMemcpy2D", "Rectangles go to an array and back.", || {
        context();
        let array = create(&flat(64, 32));
        let host = pattern(64 * 32, 2);
        let mut back = vec![0u8; 16 * 8];
        let there = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: host.as_ptr().cast(),
            srcPitch: 64,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            dstArray: array,
            WidthInBytes: 64,
            Height: 32,
            ..CUDA_MEMCPY2D::default()
        };
        ok(cuMemcpy2D_v2(&raw const there));
        let here = CUDA_MEMCPY2D {
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_ARRAY,
            srcArray: array,
            srcXInBytes: 8,
            srcY: 4,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: back.as_mut_ptr().cast(),
            dstPitch: 16,
            WidthInBytes: 16,
            Height: 8,
            ..CUDA_MEMCPY2D::default()
        };
        ok(cuMemcpy2D_v2(&raw const here));
        for y in 0..8 {
            assert_eq!(back[y * 16..y * 16 + 16], host[(y + 4) * 64 + 8..(y + 4) * 64 + 24]);
        }
        ok(cuArrayDestroy(array));
    }),
    rule("array.beyond_the_end", "cuMemcpyHtoA", "A copy beyond the end of an array is an invalid value.", || {
        context();
        let array = create(&flat(100, 0));
        let host = [0u8; 200];
        refused(cuMemcpyHtoA_v2(array, 0, host.as_ptr().cast(), 101), INVALID_VALUE);
        refused(cuMemcpyHtoA_v2(array, 90, host.as_ptr().cast(), 11), INVALID_VALUE);
        ok(cuArrayDestroy(array));
    }),
    rule("array.is_charged", "cuArrayCreate", "An array takes device memory until it is destroyed.", || {
        context();
        let before = memory_info().0;
        let array = create(&flat(8192, 8192));
        assert!(before - memory_info().0 >= 64 * MIB);
        ok(cuArrayDestroy(array));
        assert!(memory_info().0 >= before);
    })
    .alone(),
    rule("array.destroyed", "cuArrayDestroy", "A destroyed array is an invalid handle.", || {
        context();
        let array = create(&flat(16, 0));
        ok(cuArrayDestroy(array));
        refused_by_any(cuArrayDestroy(array), &[INVALID_HANDLE, INVALID_VALUE]);
    })
    .virtual_only(),
    rule(
        "mipmap.levels_halve",
        "cuMipmappedArrayGetLevel",
        "Each level has half the size of the one before, at least one.",
        || {
            context();
            let array = mipmapped(7);
            for (level, want) in [(0, (64, 32)), (1, (32, 16)), (5, (2, 1)), (6, (1, 1))] {
                let mut part = null_mut();
                ok(cuMipmappedArrayGetLevel(&raw mut part, array, level));
                let mut shape = CUDA_ARRAY3D_DESCRIPTOR::default();
                ok(cuArray3DGetDescriptor_v2(&raw mut shape, part));
                assert_eq!((shape.Width, shape.Height), want, "level {level}");
            }
            ok(cuMipmappedArrayDestroy(array));
        },
    ),
    rule(
        "mipmap.level_out_of_range",
        "cuMipmappedArrayGetLevel",
        "A level that does not exist is an invalid value.",
        || {
            context();
            let array = mipmapped(3);
            let mut part = null_mut();
            refused(cuMipmappedArrayGetLevel(&raw mut part, array, 3), INVALID_VALUE);
            ok(cuMipmappedArrayDestroy(array));
        },
    ),
    rule(
        "mipmap.level_count_is_clamped",
        "cuMipmappedArrayCreate",
        "There are no more levels than halvings down to one element.",
        || {
            context();
            let array = mipmapped(40);
            let mut part = null_mut();
            ok(cuMipmappedArrayGetLevel(&raw mut part, array, 6));
            refused(cuMipmappedArrayGetLevel(&raw mut part, array, 7), INVALID_VALUE);
            ok(cuMipmappedArrayDestroy(array));
        },
    ),
    rule("mipmap.content", "cuMipmappedArrayGetLevel", "Every level keeps content of its own.", || {
        context();
        let array = mipmapped(2);
        for level in 0..2 {
            let mut part = null_mut();
            ok(cuMipmappedArrayGetLevel(&raw mut part, array, level));
            let host = pattern(64, level as u8);
            ok(cuMemcpyHtoA_v2(part, 0, host.as_ptr().cast(), 64));
        }
        for level in 0..2 {
            let mut part = null_mut();
            ok(cuMipmappedArrayGetLevel(&raw mut part, array, level));
            let mut back = vec![0u8; 64];
            ok(cuMemcpyAtoH_v2(back.as_mut_ptr().cast(), part, 0, 64));
            assert_eq!(back, pattern(64, level as u8));
        }
        ok(cuMipmappedArrayDestroy(array));
    }),
];
