//! The second process of a rule and the wire to it: bytes and file descriptors over a socket.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

/// The descriptor on which a peer finds its end of the wire.
const PEER_FD: RawFd = 3;

/// One end of the wire.
pub struct Wire(UnixStream);

impl Wire {
    /// The end of a process that was started as a peer.
    pub(crate) fn inherited() -> Self {
        // SAFETY: whoever started a peer has put the socket there, and nobody else owns it.
        Self(unsafe { UnixStream::from_raw_fd(PEER_FD) })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the other process listens");
    }

    pub(crate) fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("the other process answers");
        bytes
    }

    pub(crate) fn send_u64(&mut self, value: u64) {
        self.send(&value.to_le_bytes());
    }

    pub(crate) fn receive_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.receive())
    }

    /// Sends a descriptor along with one byte.
    pub(crate) fn send_fd(&mut self, fd: RawFd) {
        let mut byte = [0u8; 1];
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = [0u64; 8];
        // SAFETY: all-zero is a valid header; every pointer set below lives through the call, and the
        // control buffer is larger and better aligned than one descriptor needs.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut iov;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
            libc::sendmsg(self.0.as_raw_fd(), &raw const message, 0)
        };
        assert_eq!(sent, 1, "a descriptor can be sent");
    }

    /// Receives a descriptor.
    pub(crate) fn receive_fd(&mut self) -> OwnedFd {
        let mut byte = [0u8; 1];
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut control = [0u64; 8];
        // SAFETY: as in `send_fd`; the descriptor that arrives is new and belongs to this process.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut iov;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let got = libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0);
            assert_eq!(got, 1, "a descriptor arrives");
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null(), "a descriptor arrives");
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned())
        }
    }
}

/// A running second process.
pub(crate) struct Peer {
    pub(crate) wire: Wire,
    child: Child,
}

impl Peer {
    /// Starts the peer of the rule `id`, with these variables on top of this process's own.
    pub(crate) fn start(id: &str, env: &[(&str, Option<&str>)]) -> Self {
        let (here, there) = UnixStream::pair().expect("a socket pair");
        here.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
        let there_fd = there.as_raw_fd();
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args(["--peer", id]);
        for (name, value) in env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                if there_fd == PEER_FD {
                    libc::fcntl(PEER_FD, libc::F_SETFD, 0);
                } else {
                    libc::dup2(there_fd, PEER_FD);
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("the second process starts");
        Self { wire: Wire(here), child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process the hard way and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the second process can be killed");
        self.child.wait().expect("the second process is gone");
    }

    /// The process must end by itself, and well.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        let status = self.child.wait().expect("the second process ends");
        assert!(status.success(), "the second process ended with {status}");
    }
}
