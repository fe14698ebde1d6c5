//! Rules of several devices: access of one to the memory of another, copies between them.

use crate::prelude::*;

/// Contexts on both devices, the first one current; leaves the rule where they can't reach each other.
fn both() -> (CUcontext, CUcontext) {
    init();
    let mut can = 0;
    ok(cuDeviceCanAccessPeer(&raw mut can, 0, 1));
    if can == 0 {
        skip("the devices can't reach each other");
    }
    let other = context_on(1);
    (context_on(0), other)
}

fn link(attribute: CUdevice_P2PAttribute, from: i32, to: i32) -> Result<i32, CUresult> {
    let mut value = -1;
    match cuDeviceGetP2PAttribute(&raw mut value, attribute, from, to) {
        CUresult::CUDA_SUCCESS => Ok(value),
        code => Err(code),
    }
}

pub(super) const RULES: &[Rule] = &[
    rule("peer.ask_needs_devices", "cuDeviceCanAccessPeer", "Devices that do not exist are refused.", || {
        init();
        let mut can = 0;
        refused(cuDeviceCanAccessPeer(&raw mut can, 0, 999), INVALID_DEVICE);
        refused(cuDeviceCanAccessPeer(&raw mut can, 999, 0), INVALID_DEVICE);
    }),
    rule("peer.enabled_once", "cuCtxEnablePeerAccess", "Access is enabled once.", || {
        let (_, other) = both();
        ok(cuCtxEnablePeerAccess(other, 0));
        refused(cuCtxEnablePeerAccess(other, 0), PEER_ACCESS_ALREADY_ENABLED);
        ok(cuCtxDisablePeerAccess(other));
    })
    .devices(2),
    rule("peer.disabled_once", "cuCtxDisablePeerAccess", "Access that is not enabled cannot be disabled.", || {
        let (_, other) = both();
        refused(cuCtxDisablePeerAccess(other), PEER_ACCESS_NOT_ENABLED);
        ok(cuCtxEnablePeerAccess(other, 0));
        ok(cuCtxDisablePeerAccess(other));
        refused(cuCtxDisablePeerAccess(other), PEER_ACCESS_NOT_ENABLED);
    })
    .devices(2),
    rule("peer.flags", "cuCtxEnablePeerAccess", "Flags must be zero.", || {
        let (_, other) = both();
        refused(cuCtxEnablePeerAccess(other, 1), INVALID_VALUE);
    })
    .devices(2),
    rule("peer.not_to_itself", "cuCtxEnablePeerAccess", "A context is no peer of itself.", || {
        let ctx = context();
        refused(cuCtxEnablePeerAccess(ctx, 0), INVALID_CONTEXT);
    }),
    rule("peer.one_direction", "cuCtxEnablePeerAccess", "Access is enabled in one direction.", || {
        let (mine, other) = both();
        ok(cuCtxEnablePeerAccess(other, 0));
        ok(cuCtxSetCurrent(other));
        refused(cuCtxDisablePeerAccess(mine), PEER_ACCESS_NOT_ENABLED);
    })
    .devices(2),
    rule(
        "peer.kernel_reaches",
        "cuCtxEnablePeerAccess",
        "With access enabled a kernel reaches the memory of the other device.",
        || {
            let (mine, other) = both();
            ok(cuCtxSetCurrent(other));
            let there = alloc(4096);
            put(there, &[0; 4096]);
            ok(cuCtxSetCurrent(mine));
            ok(cuCtxEnablePeerAccess(other, 0));
            let k = Kernels::load();
            k.fill(DEFAULT, there, 1024, 8);
            ok(cuCtxSynchronize());
            ok(cuCtxSetCurrent(other));
            assert!(all_words(there, 1024, 8));
        },
    )
    .devices(2),
    rule("peer.copy", "cuMemcpyPeer", "Bytes are copied between devices, with access enabled or not.", || {
        init();
        let other = context_on(1);
        let there = alloc(4096);
        let mine = context_on(0);
        let here = alloc(4096);
        put(here, &pattern(4096, 3));
        ok(cuMemcpyPeer(there, other, here, mine, 4096));
        ok(cuCtxSetCurrent(other));
        ok(cuCtxSynchronize());
        assert_eq!(get(there, 4096), pattern(4096, 3));
    })
    .devices(2),
    rule("peer.copy_async", "cuMemcpyPeerAsync", "A copy between devices takes its place in its stream.", || {
        init();
        let other = context_on(1);
        let there = alloc(4096);
        let mine = context_on(0);
        let (here, stream) = (alloc(4096), stream());
        let gate = Gate::close(stream);
        ok(cuMemsetD32Async(here, 5, 1024, stream));
        ok(cuMemcpyPeerAsync(there, other, here, mine, 4096, stream));
        gate.open();
        sync(stream);
        ok(cuCtxSetCurrent(other));
        assert!(all_words(there, 1024, 5));
    })
    .devices(2),
    rule("peer.memory_is_apart", "cuMemGetInfo", "Memory taken on one device is not missing on the other.", || {
        init();
        context_on(1);
        let before = memory_info().0;
        context_on(0);
        alloc(128 * MIB);
        context_on(1);
        assert!(before.abs_diff(memory_info().0) < 64 * MIB);
    })
    .devices(2),
    rule("peer.link_of_one_device", "cuDeviceGetP2PAttribute", "There is no link from a device to itself.", || {
        init();
        let supported = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
        assert_eq!(link(supported, 0, 0), Err(INVALID_DEVICE));
    }),
    rule(
        "peer.link_agrees",
        "cuDeviceGetP2PAttribute",
        "The link reports the same as the query whether access is possible.",
        || {
            init();
            let mut can = -1;
            ok(cuDeviceCanAccessPeer(&raw mut can, 0, 1));
            let supported = CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
            assert_eq!(link(supported, 0, 1), Ok(can));
            assert_eq!(link(CUdevice_P2PAttribute_enum(99), 0, 1), Err(INVALID_VALUE));
        },
    )
    .devices(2),
    rule("peer.needs_context", "cuCtxEnablePeerAccess", "Without a context no access can be enabled.", || {
        let (_, other) = both();
        ok(cuCtxSetCurrent(null_mut()));
        refused(cuCtxEnablePeerAccess(other, 0), INVALID_CONTEXT);
    })
    .devices(2),
];
