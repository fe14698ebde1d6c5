//! Rules of legacy sharing between processes: memory handles and event handles.

use crate::prelude::*;

const LAZY: u32 = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;

fn handle_of(ptr: CUdeviceptr) -> CUipcMemHandle {
    let mut handle = CUipcMemHandle::default();
    ok(cuIpcGetMemHandle(&raw mut handle, ptr));
    handle
}

fn send(peer: &mut Peer, handle: &CUipcMemHandle) {
    peer.wire.send(&handle.reserved.map(|c| c as u8));
}

fn receive(wire: &mut Wire) -> CUipcMemHandle {
    let bytes: [u8; 64] = wire.receive();
    CUipcMemHandle { reserved: bytes.map(|b| b as c_char) }
}

fn open(handle: CUipcMemHandle) -> CUdeviceptr {
    let mut ptr = 0;
    ok(cuIpcOpenMemHandle_v2(&raw mut ptr, handle, LAZY));
    ptr
}

/// The other process: opens the memory, checks and changes the bytes, closes it.
fn change_bytes(wire: &mut Wire) {
    context();
    let ptr = open(receive(wire));
    assert_eq!(get(ptr, 4096), pattern(4096, 1), "the other process reads other bytes");
    put(ptr, &pattern(4096, 2));
    ok(cuIpcCloseMemHandle(ptr));
    wire.send_u64(1);
}

/// The other process: opens twice, closes twice.
fn open_twice(wire: &mut Wire) {
    context();
    let handle = receive(wire);
    let (one, two) = (open(handle), open(handle));
    assert_eq!(one, two, "the second opening gave another address");
    ok(cuIpcCloseMemHandle(one));
    assert_eq!(get(two, 64), [6; 64], "gone with the first close");
    ok(cuIpcCloseMemHandle(two));
    must_fail(cuIpcCloseMemHandle(two));
    wire.send_u64(1);
}

/// The other process: must not free what it opened, and must give the right flags.
fn misuse(wire: &mut Wire) {
    context();
    let handle = receive(wire);
    let mut ptr = 0;
    refused(cuIpcOpenMemHandle_v2(&raw mut ptr, handle, 0x80), INVALID_VALUE);
    let ptr = open(handle);
    must_fail(cuMemFree_v2(ptr));
    ok(cuIpcCloseMemHandle(ptr));
    wire.send_u64(1);
}

fn with_peer(id: &str, ptr: CUdeviceptr) {
    let mut peer = Peer::start(id, &[]);
    send(&mut peer, &handle_of(ptr));
    assert_eq!(peer.wire.receive_u64(), 1);
    peer.finish();
}

/// The other process: sees the event pending, then complete.
fn follow_event(wire: &mut Wire) {
    context();
    let bytes: [u8; 64] = wire.receive();
    let handle = CUipcEventHandle { reserved: bytes.map(|b| b as c_char) };
    let mut event = null_mut();
    ok(cuIpcOpenEventHandle(&raw mut event, handle));
    refused(cuEventQuery(event), NOT_READY);
    wire.send_u64(1);
    ok(cuEventSynchronize(event));
    ok(cuEventDestroy_v2(event));
    wire.send_u64(1);
}

pub(super) const RULES: &[Rule] = &[
    rule(
        "ipc.shares_bytes",
        "cuIpcOpenMemHandle",
        "Another process reads and writes the bytes of an exported allocation.",
        || {
            context();
            let ptr = alloc(2 * MIB);
            put(ptr, &pattern(4096, 1));
            with_peer("ipc.shares_bytes", ptr);
            assert_eq!(get(ptr, 4096), pattern(4096, 2));
            free(ptr);
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(change_bytes),
    rule(
        "ipc.opening_counts",
        "cuIpcOpenMemHandle",
        "Opening a handle again gives the same address, which needs as many closes.",
        || {
            context();
            let ptr = alloc(2 * MIB);
            put(ptr, &[6; 64]);
            with_peer("ipc.opening_counts", ptr);
            free(ptr);
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(open_twice),
    rule(
        "ipc.opened_is_not_owned",
        "cuIpcCloseMemHandle",
        "Opened memory is closed, not freed, and opened with the documented flag only.",
        || {
            context();
            let ptr = alloc(2 * MIB);
            with_peer("ipc.opened_is_not_owned", ptr);
            put(ptr, &[1; 16]);
            free(ptr);
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(misuse),
    rule(
        "ipc.handle_repeatable",
        "cuIpcGetMemHandle",
        "The handle of an allocation may be requested again and again.",
        || {
            context();
            let ptr = alloc(2 * MIB);
            let (one, two) = (handle_of(ptr), handle_of(ptr));
            assert_eq!(one.reserved, two.reserved);
            free(ptr);
        },
    ),
    rule("ipc.handle_unique", "cuIpcGetMemHandle", "New memory gets a new handle, even at an old address.", || {
        context();
        let ptr = alloc(2 * MIB);
        let old = handle_of(ptr);
        free(ptr);
        let ptr = alloc(2 * MIB);
        assert_ne!(handle_of(ptr).reserved, old.reserved);
        free(ptr);
    }),
    rule("ipc.not_for_host_memory", "cuIpcGetMemHandle", "Host memory has no handle.", || {
        context();
        let host = pinned(4096);
        let mut handle = CUipcMemHandle::default();
        must_fail(cuIpcGetMemHandle(&raw mut handle, host as CUdeviceptr));
        must_fail(cuIpcGetMemHandle(&raw mut handle, 0));
        ok(cuMemFreeHost(host.cast()));
    }),
    rule(
        "ipc.not_for_mapped_memory",
        "cuIpcGetMemHandle",
        "Memory of virtual memory management has no legacy handle.",
        || {
            context();
            let mapped = Mapped::units(1);
            let mut handle = CUipcMemHandle::default();
            must_fail(cuIpcGetMemHandle(&raw mut handle, mapped.ptr));
            mapped.drop_all();
        },
    ),
    rule("ipc.needs_result", "cuIpcGetMemHandle", "A NULL place for the handle is an invalid value.", || {
        context();
        let ptr = alloc(4096);
        refused(cuIpcGetMemHandle(null_mut(), ptr), INVALID_VALUE);
        free(ptr);
    }),
    rule("ipc.close_of_own_memory", "cuIpcCloseMemHandle", "Memory that was not opened cannot be closed.", || {
        context();
        let ptr = alloc(4096);
        must_fail(cuIpcCloseMemHandle(ptr));
        put(ptr, &[1; 16]);
        free(ptr);
    }),
    rule("ipc.garbage_handle", "cuIpcOpenMemHandle", "A handle of nothing cannot be opened.", || {
        context();
        let mut ptr = 0;
        must_fail(cuIpcOpenMemHandle_v2(&raw mut ptr, CUipcMemHandle { reserved: [0x55; 64] }, LAZY));
    }),
    rule("ipc.event", "cuIpcOpenEventHandle", "Another process waits for an event of this one.", || {
        context();
        needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
        let flags = CUevent_flags::CU_EVENT_INTERPROCESS.0 | CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        let (stream, event) = (stream(), event_with(flags));
        let mut handle = CUipcEventHandle::default();
        ok(cuIpcGetEventHandle(&raw mut handle, event));
        let gate = Gate::close(stream);
        ok(cuEventRecord(event, stream));
        let mut peer = Peer::start("ipc.event", &[]);
        peer.wire.send(&handle.reserved.map(|c| c as u8));
        assert_eq!(peer.wire.receive_u64(), 1);
        gate.open();
        sync(stream);
        assert_eq!(peer.wire.receive_u64(), 1);
        peer.finish();
    })
    .env(&[("VGPU_SHARED", "@file")])
    .peer(follow_event),
    rule("ipc.event_needs_flag", "cuIpcGetEventHandle", "Only an event created for it has a handle.", || {
        context();
        needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
        let mut handle = CUipcEventHandle::default();
        must_fail(cuIpcGetEventHandle(&raw mut handle, event()));
    }),
];
