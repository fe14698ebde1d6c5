//! How descriptors go from one process to another: an abstract socket, packets, a secret in front.
//! One thread answers all importers beside each other: one that connects and sends nothing, or does not
//! read what it is sent, holds up nobody. Touches sockets of its own and starts one thread, nothing else.

use crate::process::calls;
use core::mem::{ManuallyDrop, size_of, zeroed};
use core::ptr::null_mut;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// One piece of physical memory.
pub(crate) struct Part {
    /// Its size.
    pub(crate) size: u64,
    /// Its descriptor.
    pub(crate) fd: OwnedFd,
}

/// How long a process waits for the other side.
const SECONDS: u64 = 10;
static PATIENCE: libc::timeval = libc::timeval { tv_sec: SECONDS as i64, tv_usec: 0 };
/// Importers that are answered beside each other at most; one more takes the place of the one that waits longest.
const PEERS: usize = 64;
/// Room for one descriptor beside a packet.
const CONTROL: usize = 64;

/// Sixteen bytes that nobody can guess.
pub(crate) fn secret() -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    // By number: glibc has a function for it only since 2.25.
    // SAFETY: writes at most as many bytes as there are.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    (got == bytes.len() as i64).then_some(bytes)
}

fn address(pid: u32, name: u64) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let text = format!("weir-ipc-{pid}-{name:016x}");
    // The first byte stays 0: no file, gone with the process.
    for (to, from) in address.sun_path.iter_mut().skip(1).zip(text.bytes()) {
        *to = from as libc::c_char;
    }
    let length = size_of::<libc::sa_family_t>() + 1 + text.len();
    (address, length as libc::socklen_t)
}

fn socket(flags: i32) -> Option<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | flags, 0) };
    // SAFETY: a fresh descriptor of ours; so below.
    let fd = unsafe { calls::apart(fd.into()) };
    // SAFETY: as above.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn patient(fd: &OwnedFd) {
    let length = size_of::<libc::timeval>() as libc::socklen_t;
    for option in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the value is a timeval that lives through the call.
        unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const PATIENCE).cast(), length);
        }
    }
}

/// A socket that importers find by name.
pub(crate) fn listen(pid: u32, name: u64) -> Option<OwnedFd> {
    let fd = socket(libc::SOCK_NONBLOCK)?;
    let (address, length) = address(pid, name);
    // SAFETY: the address is initialised up to its length.
    let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length) };
    // SAFETY: takes no pointers.
    (bound == 0 && unsafe { libc::listen(fd.as_raw_fd(), 64) } == 0).then_some(fd)
}

/// Whether the other side runs as the same user.
fn same_user(fd: &OwnedFd) -> bool {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut peer: libc::ucred = unsafe { zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both places are live and of the right size.
    let result = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length)
    };
    // SAFETY: takes nothing.
    result == 0 && peer.uid == unsafe { libc::geteuid() }
}

/// What an importer is sent: a header and then one part after the other.
pub(crate) trait Offer {
    /// How many parts there are, where the block begins in them, and its size.
    fn header(&self) -> [u64; 3];
    /// A part by its number; `None` if the memory is no more.
    fn part(&self, number: u64) -> Option<Part>;
    /// Where there are no parts: the driver's own handle of what holds the block, sent behind the header.
    fn whole(&self) -> Option<[u64; 8]>;
}

/// A socket that is closed only while it is ours: the job may have closed every descriptor that it found, and have the
/// number itself by now.
struct Socket {
    fd: ManuallyDrop<OwnedFd>,
    inode: u64,
}

impl Socket {
    fn new(fd: OwnedFd) -> Self {
        Self { inode: inode(&fd), fd: ManuallyDrop::new(fd) }
    }

    fn is_there(&self) -> bool {
        self.inode != 0 && inode(&self.fd) == self.inode
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_there() {
            // SAFETY: here only, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// The number of a socket among all sockets; 0 for what is none.
fn inode(fd: &OwnedFd) -> u64 {
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut meta: libc::stat = unsafe { zeroed() };
    // SAFETY: the place is a live local.
    let done = unsafe { libc::fstat(fd.as_raw_fd(), &raw mut meta) };
    if done == 0 && meta.st_mode & libc::S_IFMT == libc::S_IFSOCK { meta.st_ino } else { 0 }
}

/// An importer that is being answered.
struct Peer<O> {
    fd: Socket,
    until: Instant,
    /// What it is sent, once it has said the secret, and how many packets it was sent.
    offer: Option<(O, u64)>,
}

/// How far a step came.
enum Step {
    /// The other side must do something first.
    Later,
    /// All is done, or nothing can be done.
    Over,
}

impl<O: Offer> Peer<O> {
    fn step(&mut self, find: &impl Fn(&[u8; 16]) -> Option<O>) -> Step {
        if self.offer.is_none() {
            let mut secret = [0; 16];
            if let Err(step) = receive(&self.fd.fd, &mut secret, &mut None, libc::MSG_DONTWAIT) {
                return step;
            }
            self.offer = find(&secret).map(|offer| (offer, 0));
        }
        let Some((offer, sent)) = &mut self.offer else { return Step::Over };
        let header = offer.header();
        while *sent <= header[0].max(1) {
            let step = match sent.checked_sub(1).map(|number| offer.part(number)) {
                None => send_words(&self.fd.fd, &header, None),
                Some(_) if header[0] == 0 => match offer.whole() {
                    Some(words) => send_words(&self.fd.fd, &words, None),
                    None => return Step::Over,
                },
                Some(Some(part)) => send_words(&self.fd.fd, &[part.size], Some(&part.fd)),
                Some(None) => return Step::Over,
            };
            if let Err(step) = step {
                return step;
            }
            *sent += 1;
        }
        Step::Over
    }
}

/// Answers importers of the same user for as long as the socket is there: `find` returns what a secret stands for.
pub(crate) fn serve<O: Offer>(listener: OwnedFd, find: impl Fn(&[u8; 16]) -> Option<O>) {
    let listener = Socket::new(listener);
    let mut peers: Vec<Peer<O>> = Vec::new();
    loop {
        let now = Instant::now();
        peers.retain(|peer| peer.until > now);
        let wait = peers.iter().map(|peer| peer.until.saturating_duration_since(now)).min();
        let event = |fd: &OwnedFd, events| libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
        let mut events: Vec<libc::pollfd> = Vec::with_capacity(PEERS + 1);
        events.push(event(&listener.fd, libc::POLLIN));
        events.extend(
            peers
                .iter()
                .map(|peer| event(&peer.fd.fd, if peer.offer.is_none() { libc::POLLIN } else { libc::POLLOUT })),
        );
        let milliseconds = wait.map_or(-1, |wait| wait.as_millis() as i32 + 1);
        // SAFETY: the list lives through the call and has the length given.
        unsafe { libc::poll(events.as_mut_ptr(), events.len() as libc::nfds_t, milliseconds) };
        // Those first who have been let in: they may make room for the next.
        let mut ready = events.iter().map(|event| event.revents != 0);
        let knocked = ready.next().unwrap_or(false);
        peers.retain_mut(|peer| {
            !ready.next().unwrap_or(false) || (peer.fd.is_there() && matches!(peer.step(&find), Step::Later))
        });
        if !knocked {
            continue;
        }
        if !listener.is_there() {
            return;
        }
        match accept(&listener.fd) {
            Ok(fd) if same_user(&fd) => {
                if peers.len() >= PEERS {
                    let longest = (0..).zip(&peers).min_by_key(|(_, peer)| (peer.offer.is_some(), peer.until));
                    peers.swap_remove(longest.map_or(0, |(at, _)| at));
                }
                peers.push(Peer {
                    fd: Socket::new(fd),
                    until: Instant::now() + Duration::from_secs(SECONDS),
                    offer: None,
                });
            }
            Ok(_) | Err(Step::Later) => {}
            Err(Step::Over) => return,
        }
    }
}

/// The next importer, or whether there will be one.
fn accept(listener: &OwnedFd) -> Result<OwnedFd, Step> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the peer's address is not requested.
    let fd = unsafe { libc::accept4(listener.as_raw_fd(), null_mut(), null_mut(), flags) };
    if fd >= 0 {
        // SAFETY: a fresh descriptor of ours.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EINTR | libc::ECONNABORTED | libc::EAGAIN) => Err(Step::Later),
        // Out of descriptors for the moment: importers wait.
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => {
            std::thread::sleep(Duration::from_millis(50));
            Err(Step::Later)
        }
        _ => Err(Step::Over),
    }
}

/// Connects to an exporter of the same user and sends the secret.
pub(crate) fn connect(pid: u32, name: u64, secret: &[u8; 16]) -> Option<OwnedFd> {
    let fd = socket(0)?;
    patient(&fd);
    let (address, length) = address(pid, name);
    // SAFETY: the address is initialised up to its length.
    let connected = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
    (connected == 0 && same_user(&fd)).then_some(())?;
    send(&fd, secret, None, 0).ok()?;
    Some(fd)
}

/// Whether a call failed only because the other side must do something first.
fn unfinished() -> Step {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Step::Later,
        // Too many descriptors are on their way to others who have not read them.
        Some(libc::ETOOMANYREFS | libc::ENOBUFS | libc::ENOMEM) => {
            std::thread::sleep(Duration::from_millis(10));
            Step::Later
        }
        _ => Step::Over,
    }
}

fn send(to: &OwnedFd, bytes: &[u8], fd: Option<&OwnedFd>, flags: i32) -> Result<(), Step> {
    let mut control = [0u64; CONTROL / 8];
    let mut data = IoSlice::new(bytes);
    // SAFETY: all-zero is a valid value; every pointer set below outlives the call; the control buffer
    // is aligned and large enough for one descriptor, as CMSG_FIRSTHDR checks.
    let sent = unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = (&raw mut data).cast();
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
            libc::CMSG_DATA(header).cast::<i32>().write_unaligned(fd.as_raw_fd());
        }
        libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | flags)
    };
    if sent == bytes.len() as isize { Ok(()) } else { Err(unfinished()) }
}

fn send_words(to: &OwnedFd, words: &[u64], fd: Option<&OwnedFd>) -> Result<(), Step> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    send(to, &bytes, fd, libc::MSG_DONTWAIT)
}

/// Fills `bytes` with one packet; a descriptor that came with it goes to `with`.
fn receive(from: &OwnedFd, bytes: &mut [u8], with: &mut Option<OwnedFd>, flags: i32) -> Result<(), Step> {
    let mut control = [0u64; CONTROL / 8];
    let wanted = bytes.len();
    let mut data = IoSliceMut::new(bytes);
    // SAFETY: as in `send`; a descriptor that arrives is ours alone.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = (&raw mut data).cast();
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        let got = libc::recvmsg(from.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC | flags);
        if got < 0 {
            return Err(unfinished());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let rights =
            !header.is_null() && (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS;
        *with = rights.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<i32>().read_unaligned()));
        if got == wanted as isize { Ok(()) } else { Err(Step::Over) }
    }
}

/// The header of an offer.
pub(crate) fn receive_header(from: &OwnedFd) -> Option<[u64; 3]> {
    receive_words(from)
}

/// What comes behind the header of an offer without parts.
pub(crate) fn receive_whole(from: &OwnedFd) -> Option<[u64; 8]> {
    receive_words(from)
}

fn receive_words<const N: usize>(from: &OwnedFd) -> Option<[u64; N]> {
    let mut bytes = vec![0; 8 * N];
    receive(from, &mut bytes, &mut None, 0).ok()?;
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(*chunk.first_chunk()?);
    }
    Some(words)
}

/// One part of an offer.
pub(crate) fn receive_part(from: &OwnedFd) -> Option<Part> {
    let mut bytes = [0; 8];
    let mut fd = None;
    receive(from, &mut bytes, &mut fd, 0).ok()?;
    Some(Part { size: u64::from_le_bytes(bytes), fd: fd? })
}

/// Starts a thread that takes no signal of the job's.
pub(crate) fn spawn(work: impl FnOnce() + Send + 'static) -> Option<()> {
    // SAFETY: both sets are filled before use; the mask is put back below.
    let mut before: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: as above.
    unsafe {
        let mut all: libc::sigset_t = zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let started = std::thread::Builder::new().name("weir-ipc".into()).stack_size(256 << 10).spawn(work);
    // SAFETY: the thread's own mask from above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, null_mut()) };
    started.ok().map(drop)
}
