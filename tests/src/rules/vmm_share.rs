//! Rules of sharing created memory as a file descriptor, within a process and between processes.

use crate::prelude::*;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

fn export(handle: CUmemGenericAllocationHandle) -> OwnedFd {
    let mut fd: RawFd = -1;
    ok(cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0));
    assert!(fd >= 0);
    // SAFETY: the driver made the descriptor for the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn import(fd: RawFd) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    ok(cuMemImportFromShareableHandle(&raw mut handle, fd as usize as *mut c_void, FD));
    handle
}

fn needs_fd() {
    context();
    needs(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

/// Exportable memory, mapped.
fn shared_memory() -> Mapped {
    let unit = granularity();
    Mapped::of(create_with(unit, &exportable(0)), unit)
}

/// The other process: takes the descriptor, checks and changes the bytes.
fn change_bytes(wire: &mut Wire) {
    needs_fd();
    let fd = wire.receive_fd();
    let size = wire.receive_u64() as usize;
    let handle = import(std::os::fd::AsRawFd::as_raw_fd(&fd));
    drop(fd);
    let mapped = Mapped::of(handle, size);
    assert_eq!(get(mapped.ptr, 4096), pattern(4096, 1), "the importer reads other bytes");
    put(mapped.ptr, &pattern(4096, 2));
    wire.send_u64(1);
    wire.receive_u64();
    mapped.drop_all();
}

/// The other process: holds the memory until it is asked to end.
fn hold(wire: &mut Wire) {
    needs_fd();
    let fd = wire.receive_fd();
    let size = wire.receive_u64() as usize;
    let mapped = Mapped::of(import(fd.into_raw_fd()), size);
    wire.send_u64(1);
    wire.receive_u64();
    assert_eq!(get(mapped.ptr, 4096), pattern(4096, 5), "the bytes are gone with the exporter");
    wire.send_u64(1);
}

pub(super) const RULES: &[Rule] = &[
    rule("share.not_requested", "cuMemExportToShareableHandle", "Only memory created for it can be exported.", || {
        needs_fd();
        let handle = create(granularity());
        let mut fd: RawFd = -1;
        refused_by_any(
            cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0),
            &[INVALID_VALUE, NOT_SUPPORTED, NOT_PERMITTED],
        );
        ok(cuMemRelease(handle));
    }),
    rule("share.flags", "cuMemExportToShareableHandle", "Flags must be zero.", || {
        needs_fd();
        let handle = create_with(granularity(), &exportable(0));
        let mut fd: RawFd = -1;
        refused(cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 1), INVALID_VALUE);
        refused(cuMemExportToShareableHandle(null_mut(), handle, FD, 0), INVALID_VALUE);
        ok(cuMemRelease(handle));
    }),
    rule(
        "share.import_same_bytes",
        "cuMemImportFromShareableHandle",
        "An imported handle shows the bytes of the exported one.",
        || {
            needs_fd();
            let mapped = shared_memory();
            let fd = export(mapped.handle);
            let twin = Mapped::of(import(std::os::fd::AsRawFd::as_raw_fd(&fd)), mapped.bytes);
            put(mapped.ptr, &pattern(4096, 3));
            assert_eq!(get(twin.ptr, 4096), pattern(4096, 3));
            twin.drop_all();
            mapped.drop_all();
        },
    ),
    rule(
        "share.import_outlives_descriptor",
        "cuMemImportFromShareableHandle",
        "Imported memory lives on when the descriptor is closed and the original released.",
        || {
            needs_fd();
            let mapped = shared_memory();
            put(mapped.ptr, &pattern(4096, 4));
            let size = mapped.bytes;
            let fd = export(mapped.handle);
            let handle = import(std::os::fd::AsRawFd::as_raw_fd(&fd));
            drop(fd);
            mapped.drop_all();
            let twin = Mapped::of(handle, size);
            assert_eq!(get(twin.ptr, 4096), pattern(4096, 4));
            twin.drop_all();
        },
    ),
    rule(
        "share.import_no_memory",
        "cuMemImportFromShareableHandle",
        "A descriptor of something else is refused.",
        || {
            needs_fd();
            granularity();
            let other = std::fs::File::open("/dev/null").expect("/dev/null");
            let mut handle = 0;
            let fd = std::os::fd::AsRawFd::as_raw_fd(&other) as usize as *mut c_void;
            must_fail(cuMemImportFromShareableHandle(&raw mut handle, fd, FD));
            must_fail(cuMemImportFromShareableHandle(&raw mut handle, 9999 as *mut c_void, FD));
        },
    ),
    rule(
        "share.properties_travel",
        "cuMemGetAllocationPropertiesFromHandle",
        "An imported handle reports where its memory is.",
        || {
            needs_fd();
            let original = create_with(granularity(), &exportable(0));
            let fd = export(original);
            let handle = import(std::os::fd::AsRawFd::as_raw_fd(&fd));
            let mut got = CUmemAllocationProp::default();
            ok(cuMemGetAllocationPropertiesFromHandle(&raw mut got, handle));
            assert_eq!(got.location.type_, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE);
            assert_eq!(got.location.id(), 0);
            ok(cuMemRelease(handle));
            ok(cuMemRelease(original));
        },
    ),
    rule(
        "share.between_processes",
        "cuMemImportFromShareableHandle",
        "Another process that gets the descriptor reads and writes the same bytes.",
        || {
            needs_fd();
            let mapped = shared_memory();
            put(mapped.ptr, &pattern(4096, 1));
            let fd = export(mapped.handle);
            let mut peer = Peer::start("share.between_processes", &[]);
            peer.wire.send_fd(std::os::fd::AsRawFd::as_raw_fd(&fd));
            peer.wire.send_u64(mapped.bytes as u64);
            assert_eq!(peer.wire.receive_u64(), 1);
            assert_eq!(get(mapped.ptr, 4096), pattern(4096, 2));
            peer.wire.send_u64(1);
            peer.finish();
            assert_eq!(get(mapped.ptr, 4096), pattern(4096, 2));
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(change_bytes),
    rule(
        "share.outlives_exporter",
        "cuMemRelease",
        "Memory lives while any process holds it, whoever created it.",
        || {
            needs_fd();
            let mapped = shared_memory();
            put(mapped.ptr, &pattern(4096, 5));
            let fd = export(mapped.handle);
            let mut peer = Peer::start("share.outlives_exporter", &[]);
            peer.wire.send_fd(std::os::fd::AsRawFd::as_raw_fd(&fd));
            peer.wire.send_u64(mapped.bytes as u64);
            assert_eq!(peer.wire.receive_u64(), 1);
            drop(fd);
            mapped.drop_all();
            peer.wire.send_u64(1);
            assert_eq!(peer.wire.receive_u64(), 1);
            peer.finish();
        },
    )
    .env(&[("VGPU_SHARED", "@file")])
    .peer(hold),
];
