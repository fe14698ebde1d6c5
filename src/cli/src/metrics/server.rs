//! A page over HTTP, no more: each connection gets one answer. Whatever clients send, at most a few threads, a few KiB and a
//! few seconds are spent on each, and the figures are read at most once a second.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a request that are read.
const MOST_REQUEST: usize = 8 << 10;
/// Time for a request to arrive, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(3);
/// Connections at one time; more are told to come again.
const MOST_CONNECTIONS: usize = 16;
/// How long figures are good.
const FRESH: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const FIGURES: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The figures, and when they were read.
struct Shelf<F> {
    figures: F,
    page: Option<(Instant, Arc<str>)>,
}

impl<F: FnMut() -> String> Shelf<F> {
    fn page(&mut self) -> Arc<str> {
        if let Some((at, page)) = &self.page
            && at.elapsed() < FRESH
        {
            return Arc::clone(page);
        }
        let page: Arc<str> = (self.figures)().into();
        self.page = Some((Instant::now(), Arc::clone(&page)));
        page
    }
}

/// Answers until the process ends.
pub(super) fn serve(address: SocketAddr, figures: impl FnMut() -> String + Send + 'static) -> Result<(), String> {
    let listener = TcpListener::bind(address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let bound = listener.local_addr().map_err(|error| error.to_string())?;
    putln!("listening on http://{bound}/metrics");
    let _ = io::stdout().flush();
    let shelf = Arc::new(Mutex::new(Shelf { figures, page: None }));
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, or a client that left: the next one may do better.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        if busy.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
            busy.fetch_sub(1, Ordering::AcqRel);
            refuse(stream);
            continue;
        }
        let (shelf, slot) = (Arc::clone(&shelf), Slot(Arc::clone(&busy)));
        let work = move || {
            let _slot = slot;
            let _ = converse(stream, || shelf.lock().unwrap_or_else(PoisonError::into_inner).page());
        };
        // When there is no thread the connection is dropped with the closure.
        let _ = std::thread::Builder::new().name("weir-metrics".into()).stack_size(256 << 10).spawn(work);
    }
}

/// A connection's place among the few; given back however the connection ends.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn refuse(mut stream: TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(&reply("503 Service Unavailable", TEXT, "too many connections\n", true));
}

/// One request, one answer.
fn converse(mut stream: TcpStream, page: impl FnOnce() -> Arc<str>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let request = read_request(&mut stream, deadline);
    let answer = match request.as_deref().map(wanted) {
        Ok(Wanted::Page { body }) => reply("200 OK", FIGURES, &page(), body),
        Ok(Wanted::Index { body }) => reply("200 OK", TEXT, "weir metrics: see /metrics\n", body),
        Ok(Wanted::Nothing) => reply("404 Not Found", TEXT, "there is only /metrics\n", true),
        Ok(Wanted::Method) => reply("405 Method Not Allowed", TEXT, "only GET and HEAD\n", true),
        Ok(Wanted::Nonsense) => reply("400 Bad Request", TEXT, "not a request\n", true),
        Err(Trouble::TooLong) => reply("431 Request Header Fields Too Large", TEXT, "too long\n", true),
        Err(Trouble::TooSlow) => reply("408 Request Timeout", TEXT, "too slow\n", true),
        Err(Trouble::Gone) => return Ok(()),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&answer)?;
    stream.shutdown(Shutdown::Write)?;
    // Unread bytes would make the kernel reset the connection before the answer is read.
    let mut rest = [0; 1024];
    for _ in 0..64 {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() || stream.read(&mut rest).unwrap_or(0) == 0 {
            break;
        }
    }
    Ok(())
}

enum Trouble {
    TooLong,
    TooSlow,
    Gone,
}

fn read_request(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, Trouble> {
    let mut request = Vec::with_capacity(1024);
    let mut piece = [0; 1024];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(Trouble::TooSlow);
        }
        match stream.read(&mut piece) {
            Ok(0) => return Err(Trouble::Gone),
            Ok(count) => request.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(Trouble::TooSlow);
            }
            Err(_) => return Err(Trouble::Gone),
        }
        if request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n") {
            return Ok(request);
        }
        if request.len() > MOST_REQUEST {
            return Err(Trouble::TooLong);
        }
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
