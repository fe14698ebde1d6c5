//! HTTPS for the API server: `POST /mutate` with a review, `GET /healthz`. Connections, their number, their size and their time
//! are bounded. The certificate is read again when its files change, as they do when a Secret is renewed.

use std::convert::Infallible;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Config;
use crate::review;

/// The API server sends an object and what it was before, each of at most 3 MiB.
const LARGEST: usize = 8 << 20;
/// For a request and its answer; Kubernetes waits at most 30 s.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(120);
/// Connections at a time.
const MOST: usize = 256;

/// Serves until SIGTERM or SIGINT.
pub(crate) async fn serve(listen: &str, folder: &Path, config: Config) -> Result<(), String> {
    let mut certificate = Certificate::read(folder)?;
    let listener = TcpListener::bind(listen).await.map_err(|error| format!("--listen {listen}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    log(&format!("listening on https://{address}/mutate"));
    let (config, places) = (Arc::new(config), Arc::new(Semaphore::new(MOST)));
    let mut ends = [SignalKind::terminate(), SignalKind::interrupt()].map(signal).map(Result::ok);
    let [terminate, interrupt] = &mut ends;
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = received(terminate) => return Ok(()),
            () = received(interrupt) => return Ok(()),
        };
        let Ok((stream, _)) = accepted else {
            // No descriptor is left, for one.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (tls, config) = (certificate.current(), Arc::clone(&config));
        tokio::spawn(async move {
            let _place = place;
            let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await else { return };
            let service = service_fn(move |request| respond(request, Arc::clone(&config)));
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(IDLE);
            // What ends a connection early is the other side's business.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn received(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

async fn respond(request: Request<Incoming>, config: Arc<Config>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/healthz") => plain(StatusCode::OK, "ok"),
        (&Method::POST, "/mutate") => mutate(request, &config).await,
        (_, "/healthz" | "/mutate") => plain(StatusCode::METHOD_NOT_ALLOWED, "expected POST /mutate or GET /healthz"),
        _ => plain(StatusCode::NOT_FOUND, "expected /mutate or /healthz"),
    })
}

async fn mutate(request: Request<Incoming>, config: &Config) -> Response<Full<Bytes>> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected application/json");
    }
    let body = match tokio::time::timeout(PATIENCE, Limited::new(request.into_body(), LARGEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "more than 8 MiB");
        }
        Ok(Err(_)) => return plain(StatusCode::BAD_REQUEST, "the body ended early"),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body did not end"),
    };
    match review::answer(&body, config) {
        Ok((answer, line)) => {
            if let Some(line) = line {
                log(&line);
            }
            let mut response = Response::new(Full::new(answer.to_string().into()));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(why) => plain(StatusCode::BAD_REQUEST, &why),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("weir: {text}\n"))));
    *response.status_mut() = status;
    response
}

/// A line of the container's log.
fn log(line: &str) {
    eprintln!("weir-webhook: {line}");
}

/// The certificate of a folder, as Kubernetes mounts a Secret of type kubernetes.io/tls.
struct Certificate {
    folder: PathBuf,
    state: State,
    tls: TlsAcceptor,
}

impl Certificate {
    fn read(folder: &Path) -> Result<Self, String> {
        Ok(Self { folder: folder.to_owned(), state: state(folder), tls: acceptor(folder)? })
    }

    /// What new connections are to use: a newer certificate, if it can be used.
    fn current(&mut self) -> TlsAcceptor {
        let state = state(&self.folder);
        if state != self.state {
            self.state = state;
            match acceptor(&self.folder) {
                Ok(tls) => {
                    log("a new certificate is in use");
                    self.tls = tls;
                }
                Err(why) => log(&format!("the earlier certificate stays in use: {why}")),
            }
        }
        self.tls.clone()
    }
}

/// What tells that a file is another one: its inode and the time of its last change, of both files.
type State = [Option<(u64, i64, i64)>; 2];

fn state(folder: &Path) -> State {
    ["tls.crt", "tls.key"].map(|name| {
        let meta = std::fs::metadata(folder.join(name)).ok()?;
        Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
    })
}

fn acceptor(folder: &Path) -> Result<TlsAcceptor, String> {
    let (chain, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let bad = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(&chain)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| bad(&chain, &error))?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|error| bad(&key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|error| bad(&chain, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
