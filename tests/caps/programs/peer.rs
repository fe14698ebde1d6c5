//! The second process of a program: it imports and opens what it is sent, and holds it until it is told to drop it.

use crate::actor::{FD, grant};
use crate::driver::cu::*;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use weir_cuda::*;
use weir_tests::descriptors::{receive, send};

/// The end of the wire that the program holds.
pub(crate) struct Peer(UnixStream);

const IMPORT: u8 = b'I';
const OPEN: u8 = b'O';
const DROP: u8 = b'D';

impl Peer {
    /// Forks the second process; nobody may have used CUDA in this one yet.
    pub(crate) fn start() -> Self {
        let (here, there) = UnixStream::pair().expect("a socket pair");
        // SAFETY: this process has one thread; the child only serves the wire and ends without returning.
        if unsafe { libc::fork() } == 0 {
            drop(here);
            serve(there);
            // SAFETY: the child's work is done.
            unsafe { libc::_exit(0) };
        }
        Self(here)
    }

    fn request(&mut self, command: u8, body: &[u8], fd: Option<RawFd>) -> bool {
        send(&self.0, command, fd);
        self.0.write_all(body).expect("the second process listens");
        let mut answer = [0];
        self.0.read_exact(&mut answer).expect("the second process answers");
        answer[0] == 0
    }

    /// Imports and maps; whether it did.
    pub(crate) fn import(&mut self, fd: RawFd, bytes: u64) -> bool {
        self.request(IMPORT, &bytes.to_le_bytes(), Some(fd))
    }

    /// Opens an IPC handle; whether it did.
    pub(crate) fn open(&mut self, handle: &CUipcMemHandle) -> bool {
        let bytes = handle.reserved.map(|byte| byte as u8);
        self.request(OPEN, &bytes, None)
    }

    /// Gives everything back.
    pub(crate) fn drop_all(&mut self) {
        self.request(DROP, &[], None);
    }
}

fn serve(mut wire: UnixStream) {
    let (mut ctx, mut mapped, mut opened) = (std::ptr::null_mut(), Vec::new(), Vec::new());
    let good = |code: CUresult| code == CUresult::CUDA_SUCCESS;
    let mut started = false;
    while let Some((command, fd)) = receive(&wire) {
        if !started {
            started = good(cuInit(0)) && good(cuDevicePrimaryCtxRetain(&raw mut ctx, 0)) && good(cuCtxSetCurrent(ctx));
        }
        let mut done = true;
        match command {
            IMPORT => {
                let mut bytes = [0; 8];
                if wire.read_exact(&mut bytes).is_err() {
                    return;
                }
                let size = u64::from_le_bytes(bytes) as usize;
                let (mut handle, mut at) = (0, 0);
                let place = fd.as_ref().map_or(-1, AsRawFd::as_raw_fd) as usize as *mut c_void;
                done = good(cuMemImportFromShareableHandle(&raw mut handle, place, FD))
                    && good(cuMemAddressReserve(&raw mut at, size, 0, 0, 0))
                    && good(cuMemMap(at, size, 0, handle, 0))
                    && good(grant(at, size));
                mapped.push((at, size, handle));
            }
            OPEN => {
                let mut bytes = [0; 64];
                if wire.read_exact(&mut bytes).is_err() {
                    return;
                }
                let handle = CUipcMemHandle { reserved: bytes.map(|byte: u8| byte as c_char) };
                let mut at = 0;
                done = good(cuIpcOpenMemHandle_v2(&raw mut at, handle, 1));
                if done {
                    opened.push(at);
                }
            }
            _ => {
                for (at, size, handle) in mapped.drain(..) {
                    cuMemUnmap(at, size);
                    cuMemAddressFree(at, size);
                    cuMemRelease(handle);
                }
                for at in opened.drain(..) {
                    cuIpcCloseMemHandle(at);
                }
            }
        }
        if wire.write_all(&[u8::from(!done)]).is_err() {
            return;
        }
    }
}
