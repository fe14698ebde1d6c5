//! Serves one page over HTTP: each connection gets one response. One thread serves all connections and blocks on none of
//! them: a slow or silent client uses one of 128 connections for 3 s at most, and the one that has been silent longest is
//! closed when a new one needs its place. The metrics are read at most once a second.
//!
//! tiny_http cannot do this: it has a thread for each connection, no bound on their number and no read timeout, so that
//! silent clients would hold threads for good.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest request, in bytes.
const MOST_REQUEST: usize = 8 << 10;
/// Bytes after a request that are read and discarded.
const MOST_REST: usize = 256 << 10;
/// Time for a request to arrive, and again for its response to be read.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connections at one time.
const MOST_CONNECTIONS: usize = 128;
/// Connections accepted in one turn, so that a flood of them does not delay the others.
const MOST_ACCEPTED: usize = 32;
/// How long the metrics are served from the cache.
const FRESH: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics, and when they were read.
struct Cache<F> {
    read: F,
    page: Option<(Instant, String)>,
}

impl<F: FnMut() -> String> Cache<F> {
    fn page(&mut self) -> &str {
        if self.page.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
            let page = (self.read)();
            // The time after reading: metrics that take long to read are cached for as long as others.
            self.page = Some((Instant::now(), page));
        }
        self.page.as_ref().map_or("", |(_, page)| page)
    }
}

/// Serves until the process ends.
pub(super) fn serve(address: SocketAddr, read: impl FnMut() -> String) -> Result<(), String> {
    let listener = TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let bound = listener.local_addr().map_err(|error| error.to_string())?;
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    putln!("listening on http://{bound}/metrics");
    let mut cache = Cache { read, page: None };
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let ready = wait(&listener, &clients).map_err(|error| error.to_string())?;
        for (client, ready) in clients.iter_mut().zip(ready.iter().skip(1)) {
            client.go_on(*ready, || cache.page());
        }
        clients.retain(|client| client.stage != Stage::Over);
        if ready.first() == Some(&true) {
            accept(&listener, &mut clients);
        }
    }
}

/// Accepts new connections. Where there is no room, the one that has been silent longest is closed.
fn accept(listener: &TcpListener, clients: &mut Vec<Client>) {
    for _ in 0..MOST_ACCEPTED {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() >= MOST_CONNECTIONS {
                    drop_one(clients);
                }
                // A connection that would block is closed; its client may try again.
                if stream.set_nonblocking(true).is_ok() {
                    clients.push(Client::new(stream));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                // No descriptor is left: close a silent client's. Without any, others may end in the meantime.
                if !drop_one(clients) {
                    std::thread::sleep(Duration::from_millis(50));
                    return;
                }
            }
            // A client that left before it was accepted.
            Err(_) => {}
        }
    }
}

/// Closes the connection that is needed least: one that has its response, else the one that has been silent longest.
fn drop_one(clients: &mut Vec<Client>) -> bool {
    let rank = |client: &Client| match client.stage {
        Stage::Over | Stage::Draining => 0,
        Stage::Reading if client.request.is_empty() => 1,
        Stage::Reading => 2,
        Stage::Writing => 3,
    };
    let worst = clients.iter().enumerate().min_by_key(|(_, client)| (rank(client), client.deadline));
    let Some((place, _)) = worst else { return false };
    clients.remove(place);
    true
}

/// Waits until a socket is ready or a client's time is over. Which are ready: the listener first, then the clients.
fn wait(listener: &TcpListener, clients: &[Client]) -> io::Result<Vec<bool>> {
    let mut places = vec![PollFd::new(listener, PollFlags::IN)];
    places.extend(clients.iter().map(|client| {
        let events = if client.stage == Stage::Writing { PollFlags::OUT } else { PollFlags::IN };
        PollFd::new(&client.stream, events)
    }));
    let next = clients.iter().map(|client| client.deadline.saturating_duration_since(Instant::now())).min();
    let next = next.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut places, next.as_ref()) {
        Ok(_) => Ok(places.iter().map(|place| !place.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; places.len()]),
        Err(error) => Err(error.into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request arrives.
    Reading,
    /// The response is being sent.
    Writing,
    /// The response is sent. Unread bytes would make the kernel reset the connection before the client reads it.
    Draining,
    /// Nothing is left to do.
    Over,
}

/// A connection.
struct Client {
    stream: TcpStream,
    stage: Stage,
    deadline: Instant,
    request: Vec<u8>,
    response: Vec<u8>,
    sent: usize,
    discarded: usize,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        let deadline = Instant::now() + PATIENCE;
        Self {
            stream,
            stage: Stage::Reading,
            deadline,
            request: Vec::new(),
            response: Vec::new(),
            sent: 0,
            discarded: 0,
        }
    }

    /// Does what can be done without waiting.
    fn go_on<'page>(&mut self, ready: bool, page: impl FnOnce() -> &'page str) {
        let over = Instant::now() >= self.deadline;
        // Also when its time is over: the request may have arrived while the metrics were read for another client.
        if (ready || over) && self.stage == Stage::Reading {
            self.read(page);
        } else if ready && self.stage == Stage::Draining {
            self.drain();
        }
        if over && Instant::now() >= self.deadline {
            match self.stage {
                Stage::Reading => self.respond(reply("408 Request Timeout", TEXT, "too slow\n", true)),
                _ => self.stage = Stage::Over,
            }
        }
        if self.stage == Stage::Writing {
            self.write();
        }
    }

    fn respond(&mut self, response: Vec<u8>) {
        (self.response, self.stage, self.deadline) = (response, Stage::Writing, Instant::now() + PATIENCE);
    }

    fn read<'page>(&mut self, page: impl FnOnce() -> &'page str) {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return self.stage = Stage::Over,
                Ok(count) => self.request.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = Stage::Over,
            }
            let whole = |end: &[u8]| self.request.windows(end.len()).any(|found| found == end);
            if whole(b"\r\n\r\n") || whole(b"\n\n") {
                break;
            }
            if self.request.len() > MOST_REQUEST {
                return self.respond(reply("431 Request Header Fields Too Large", TEXT, "too long\n", true));
            }
        }
        self.respond(match wanted(&self.request) {
            Wanted::Page { body } => reply("200 OK", METRICS, page(), body),
            Wanted::Index { body } => reply("200 OK", TEXT, "weir metrics: see /metrics\n", body),
            Wanted::Nothing => reply("404 Not Found", TEXT, "there is only /metrics\n", true),
            Wanted::Method => reply("405 Method Not Allowed", TEXT, "only GET and HEAD\n", true),
            Wanted::Nonsense => reply("400 Bad Request", TEXT, "not a request\n", true),
        });
    }

    fn write(&mut self) {
        while let Some(rest) = self.response.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return self.stage = Stage::Over,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = Stage::Over,
            }
        }
        self.response = Vec::new();
        let closed = self.stream.shutdown(Shutdown::Write);
        self.stage = if closed.is_ok() { Stage::Draining } else { Stage::Over };
    }

    fn drain(&mut self) {
        let mut rest = [0; 4096];
        while self.discarded < MOST_REST {
            match self.stream.read(&mut rest) {
                Ok(count) if count > 0 => self.discarded += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => break,
            }
        }
        self.stage = Stage::Over;
    }
}

#[derive(Debug, PartialEq)]
enum Wanted {
    Page { body: bool },
    Index { body: bool },
    Nothing,
    Method,
    Nonsense,
}

/// What the first line requests.
fn wanted(request: &[u8]) -> Wanted {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return Wanted::Nonsense };
    let parts: Vec<&str> = line.trim_end_matches('\r').split(' ').collect();
    let [method, target, version] = parts[..] else { return Wanted::Nonsense };
    if !version.starts_with("HTTP/1.") || method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Wanted::Nonsense;
    }
    let body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return Wanted::Method,
    };
    match target.split('?').next().unwrap_or_default() {
        "/metrics" => Wanted::Page { body },
        "/" => Wanted::Index { body },
        _ => Wanted::Nothing,
    }
}

fn reply(status: &str, kind: &str, text: &str, body: bool) -> Vec<u8> {
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    );
    let mut bytes = head.into_bytes();
    if body {
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_distinguished() {
        assert_eq!(wanted(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Wanted::Page { body: true });
        assert_eq!(wanted(b"HEAD /metrics?a=b HTTP/1.0\r\n\r\n"), Wanted::Page { body: false });
        assert_eq!(wanted(b"GET /../etc/passwd HTTP/1.1\r\n\r\n"), Wanted::Nothing);
        assert_eq!(wanted(b"POST /metrics HTTP/1.1\r\n\r\n"), Wanted::Method);
        for nonsense in [
            &b"\r\n\r\n"[..],
            b"GET /metrics\r\n\r\n",
            b"GET  /metrics HTTP/1.1\n\n",
            b"\xff\xfe HTTP/1.1\n\n",
            b"get / HTTP/1.1\n\n",
        ] {
            assert_eq!(wanted(nonsense), Wanted::Nonsense, "{nonsense:?}");
        }
    }
}
