//! Rules of texture and surface objects.

use crate::prelude::*;
use CUarray_format as F;
use CUresourcetype as Kind;

fn array() -> CUarray {
    let shape = CUDA_ARRAY_DESCRIPTOR { Width: 64, Height: 32, Format: F::CU_AD_FORMAT_UNSIGNED_INT8, NumChannels: 1 };
    let mut array = null_mut();
    ok(cuArrayCreate_v2(&raw mut array, &raw const shape));
    array
}

fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC { resType: Kind::CU_RESOURCE_TYPE_ARRAY, ..Default::default() };
    resource.res.array.hArray = array;
    resource
}

fn linear(ptr: CUdeviceptr, bytes: usize) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC { resType: Kind::CU_RESOURCE_TYPE_LINEAR, ..Default::default() };
    resource.res.linear.devPtr = ptr;
    resource.res.linear.format = F::CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = bytes;
    resource
}

fn texture(resource: &CUDA_RESOURCE_DESC, view: Option<&CUDA_RESOURCE_VIEW_DESC>) -> Result<CUtexObject, CUresult> {
    let described = CUDA_TEXTURE_DESC { maxAnisotropy: 7, ..Default::default() };
    let mut object = 0;
    match cuTexObjectCreate(&raw mut object, resource, &raw const described, view.map_or(null(), std::ptr::from_ref)) {
        CUresult::CUDA_SUCCESS => Ok(object),
        code => Err(code),
    }
}

pub(super) const RULES: &[Rule] = &[
    rule("texture.described", "cuTexObjectGetResourceDesc", "A texture reports what it was created from.", || {
        context();
        let array = array();
        let object = texture(&of_array(array), None).expect("a texture");
        let mut resource = CUDA_RESOURCE_DESC::default();
        ok(cuTexObjectGetResourceDesc(&raw mut resource, object));
        // SAFETY: the type determines which part is set.
        assert_eq!((resource.resType, unsafe { resource.res.array.hArray }), (Kind::CU_RESOURCE_TYPE_ARRAY, array));
        let mut described = CUDA_TEXTURE_DESC::default();
        ok(cuTexObjectGetTextureDesc(&raw mut described, object));
        assert_eq!(described.maxAnisotropy, 7);
        ok(cuTexObjectDestroy(object));
        must_fail(cuTexObjectDestroy(object));
        ok(cuArrayDestroy(array));
    }),
    rule(
        "texture.view",
        "cuTexObjectGetResourceViewDesc",
        "A view is reported where there is one, and else refused.",
        || {
            context();
            let array = array();
            let view = CUDA_RESOURCE_VIEW_DESC { width: 64, height: 32, ..Default::default() };
            let (with, without) = (texture(&of_array(array), Some(&view)), texture(&of_array(array), None));
            let mut got = CUDA_RESOURCE_VIEW_DESC::default();
            ok(cuTexObjectGetResourceViewDesc(&raw mut got, with.expect("a texture")));
            assert_eq!((got.width, got.height), (64, 32));
            refused(cuTexObjectGetResourceViewDesc(&raw mut got, without.expect("a texture")), INVALID_VALUE);
        },
    ),
    rule("texture.of_linear", "cuTexObjectCreate", "Linear memory makes a texture without a view, if aligned.", || {
        context();
        let ptr = alloc(4096);
        let object = texture(&linear(ptr, 4096), None).expect("a texture");
        ok(cuTexObjectDestroy(object));
        assert_eq!(texture(&linear(ptr + 4, 1024), None), Err(INVALID_VALUE));
        let view = CUDA_RESOURCE_VIEW_DESC::default();
        assert_eq!(texture(&linear(ptr, 4096), Some(&view)), Err(INVALID_VALUE));
        free(ptr);
    }),
    rule("texture.refuses_flags", "cuTexObjectCreate", "Flags of a resource must be zero.", || {
        context();
        let array = array();
        let resource = CUDA_RESOURCE_DESC { flags: 1, ..of_array(array) };
        assert_eq!(texture(&resource, None), Err(INVALID_VALUE));
    }),
    rule(
        "surface.described",
        "cuSurfObjectGetResourceDesc",
        "A surface is made from an array, and reports it.",
        || {
            context();
            let (mut object, mut got) = (0, CUDA_RESOURCE_DESC::default());
            let array = array();
            ok(cuSurfObjectCreate(&raw mut object, &raw const *Box::leak(Box::new(of_array(array)))));
            ok(cuSurfObjectGetResourceDesc(&raw mut got, object));
            // SAFETY: the type determines which part is set.
            assert_eq!(unsafe { got.res.array.hArray }, array);
            ok(cuSurfObjectDestroy(object));
            let ptr = alloc(4096);
            let wrong = linear(ptr, 4096);
            refused(cuSurfObjectCreate(&raw mut object, &raw const wrong), INVALID_VALUE);
        },
    ),
];
