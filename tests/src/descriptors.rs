//! A byte over a socket, and a file descriptor along with it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Sends a byte, and a descriptor along with it.
pub fn send(wire: &UnixStream, mut byte: u8, fd: Option<RawFd>) {
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0_u64; 8];
    // SAFETY: all-zero is a valid header; every pointer set below lives through the call, and the control buffer is
    // larger and better aligned than one descriptor needs.
    let sent = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
        libc::sendmsg(wire.as_raw_fd(), &raw const message, 0)
    };
    assert_eq!(sent, 1, "the other process listens");
}

/// The next byte and the descriptor that came with it; nothing once the other end is closed.
pub fn receive(wire: &UnixStream) -> Option<(u8, Option<OwnedFd>)> {
    let mut byte = 0_u8;
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = [0_u64; 8];
    // SAFETY: as in `send`; a descriptor that arrives is new and belongs to this process.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        if libc::recvmsg(wire.as_raw_fd(), &raw mut message, 0) != 1 {
            return None;
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let came = |header| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned());
        Some((byte, (!header.is_null()).then(|| came(header))))
    }
}
