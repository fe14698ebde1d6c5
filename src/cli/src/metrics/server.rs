//! A page over HTTP, no more: each connection gets one answer. One thread serves all connections and waits for none of
//! them: a client that is slow or says nothing costs a place among a bounded number, for a few seconds at most, and gives
//! way to a newcomer when all places are taken. The figures are read at most once a second.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Bytes of a request that are read.
const MOST_REQUEST: usize = 8 << 10;
/// Bytes that are read and thrown away behind a request.
const MOST_REST: usize = 256 << 10;
/// Time for a request to arrive, and again for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connections at one time. When one more comes, the one that has been silent for longest goes.
const MOST_CONNECTIONS: usize = 128;
/// Connections taken in one turn, so that a flood of them does not keep the others waiting.
const MOST_ACCEPTED: usize = 32;
/// How long figures are good.
const FRESH: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const FIGURES: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The figures, and when they were read.
struct Shelf<F> {
    figures: F,
    page: Option<(Instant, String)>,
}

impl<F: FnMut() -> String> Shelf<F> {
    fn page(&mut self) -> &str {
        if self.page.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
            let page = (self.figures)();
            // The time after reading: figures that take long to read are good for as long as others.
            self.page = Some((Instant::now(), page));
        }
        self.page.as_ref().map_or("", |(_, page)| page)
    }
}

/// Answers until the process ends.
pub(super) fn serve(address: SocketAddr, figures: impl FnMut() -> String) -> Result<(), String> {
    let listener = TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let bound = listener.local_addr().map_err(|error| error.to_string())?;
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    putln!("listening on http://{bound}/metrics");
    let mut shelf = Shelf { figures, page: None };
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let ready = wait(&listener, &clients).map_err(|error| error.to_string())?;
        for (client, ready) in clients.iter_mut().zip(ready.iter().skip(1)) {
            client.go_on(*ready, || shelf.page());
        }
        clients.retain(|client| client.stage != Stage::Over);
        if ready.first() == Some(&true) {
            accept(&listener, &mut clients);
        }
    }
}

/// Takes new connections in. The one that has been silent for longest makes room where there is none.
fn accept(listener: &TcpListener, clients: &mut Vec<Client>) {
    for _ in 0..MOST_ACCEPTED {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() >= MOST_CONNECTIONS {
                    drop_one(clients);
                }
                // A connection that cannot be made so is of no use; its client may try again.
                if stream.set_nonblocking(true).is_ok() {
                    clients.push(Client::new(stream));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                // No descriptor for it: a silent client has one. Without any, others may end in the meantime.
                if !drop_one(clients) {
                    std::thread::sleep(Duration::from_millis(50));
                    return;
                }
            }
            // A client that left before it was taken in.
            Err(_) => {}
        }
    }
}

/// Drops the connection that is needed least: one that has its answer, else the one that has waited longest for nothing.
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

/// Waits until somebody is ready or a client's time is over. Who is ready: the listener first, then the clients.
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
    /// The answer goes out.
    Writing,
    /// The answer is out. Unread bytes would make the kernel reset the connection before the answer is read.
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
    answer: Vec<u8>,
    sent: usize,
    thrown_away: usize,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        let deadline = Instant::now() + PATIENCE;
        Self {
            stream,
            stage: Stage::Reading,
            deadline,
            request: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            thrown_away: 0,
        }
    }

    /// Does what can be done without waiting.
    fn go_on<'page>(&mut self, ready: bool, page: impl FnOnce() -> &'page str) {
        let over = Instant::now() >= self.deadline;
        // Also when its time is over: the request may have come while the figures were read for another one.
        if (ready || over) && self.stage == Stage::Reading {
            self.read(page);
        } else if ready && self.stage == Stage::Draining {
            self.drain();
        }
        if over && Instant::now() >= self.deadline {
            match self.stage {
                Stage::Reading => self.say(reply("408 Request Timeout", TEXT, "too slow\n", true)),
                _ => self.stage = Stage::Over,
            }
        }
        if self.stage == Stage::Writing {
            self.write();
        }
    }

    fn say(&mut self, answer: Vec<u8>) {
        (self.answer, self.stage, self.deadline) = (answer, Stage::Writing, Instant::now() + PATIENCE);
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
                return self.say(reply("431 Request Header Fields Too Large", TEXT, "too long\n", true));
            }
        }
        self.say(match wanted(&self.request) {
            Wanted::Page { body } => reply("200 OK", FIGURES, page(), body),
            Wanted::Index { body } => reply("200 OK", TEXT, "weir metrics: see /metrics\n", body),
            Wanted::Nothing => reply("404 Not Found", TEXT, "there is only /metrics\n", true),
            Wanted::Method => reply("405 Method Not Allowed", TEXT, "only GET and HEAD\n", true),
            Wanted::Nonsense => reply("400 Bad Request", TEXT, "not a request\n", true),
        });
    }

    fn write(&mut self) {
        while let Some(rest) = self.answer.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(0) => return self.stage = Stage::Over,
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.stage = Stage::Over,
            }
        }
        self.answer = Vec::new();
        let closed = self.stream.shutdown(Shutdown::Write);
        self.stage = if closed.is_ok() { Stage::Draining } else { Stage::Over };
    }

    fn drain(&mut self) {
        let mut rest = [0; 4096];
        while self.thrown_away < MOST_REST {
            match self.stream.read(&mut rest) {
                Ok(count) if count > 0 => self.thrown_away += count,
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

/// What the first line asks for.
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
    fn requests_are_told_apart() {
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
