//! The second process of a rule and the wire to it: bytes and file descriptors over a socket.

use crate::descriptors;
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

    pub(crate) fn send_fd(&mut self, fd: RawFd) {
        descriptors::send(&self.0, 0, Some(fd));
    }

    pub(crate) fn receive_fd(&mut self) -> OwnedFd {
        descriptors::receive(&self.0).and_then(|(_, fd)| fd).expect("a descriptor arrives")
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
