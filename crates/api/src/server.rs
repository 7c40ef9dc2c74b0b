//! Thread that serves the API.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use vhost_user::{Closer, CloserLoad};

use super::bytes::Bytes;
use super::deadline::{Patience, WriteDeadline};
use super::listen::{Listen, OwnersSocket, Tcp, TcpSocket, owner};
use super::manager::Manager;
use super::router::router;
use super::unauthenticated::{Authenticated, Unauthenticated};
use super::worker::Worker;

/// Most connections of a listener at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// Limit for receiving headers, and for an idle connection.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Time for a client over TCP to show the token, TLS handshake included.
const TOKEN_TIME: Duration = Duration::from_secs(2);
/// Time after which a client that reads nothing of its answer is disconnected.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Silence of a TCP peer after which the kernel asks whether it is there, and the interval and
/// number of such probes. A capture has no other limit for a client that has vanished.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);
/// Time for clients of captures to take the rest, when the server ends.
const CAPTURES_TIME: Duration = Duration::from_millis(500);
/// Interval of the check for abandoned migrations, and of readings of the history.
const TICK: Duration = Duration::from_secs(1);
/// Delay before the next accept after a failure, such as no free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Open sockets of the API; nothing accepts connections yet.
#[derive(Debug)]
pub struct ApiSockets {
    unix: OwnersSocket,
    tcp: Option<TcpSocket>,
}

impl ApiSockets {
    /// Opens the sockets.
    ///
    /// # Errors
    /// A socket cannot be opened, or the certificate is invalid.
    pub fn open(listen: &Listen) -> Result<ApiSockets> {
        let unix = OwnersSocket::bind(&listen.socket)?;
        let tcp = listen.tcp.as_ref().map(TcpSocket::bind).transpose()?;
        Ok(ApiSockets { unix, tcp })
    }

    /// Continues with sockets of the previous process, which keeps their files until
    /// [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// A certificate is invalid, or a socket is missing.
    pub fn inherit(
        listen: &Listen,
        unix: vhost_user::Listener,
        tcp: Option<OwnedFd>,
    ) -> Result<ApiSockets> {
        let unix = OwnersSocket::on(unix)?;
        let tcp = match &listen.tcp {
            Some(spec) => {
                let socket = tcp.context("the API's TCP socket was not handed over")?;
                Some(TcpSocket::inherit(spec, socket)?)
            }
            None => None,
        };
        Ok(ApiSockets { unix, tcp })
    }

    /// Takes over the socket files from the previous process.
    pub fn adopt(&self) {
        self.unix.listener().adopt();
    }
}

/// The running API. Drop ends it after the current request.
#[derive(Debug)]
pub struct Server {
    manager: Arc<Mutex<Manager>>,
    /// TCP, and the address that the system gave.
    tcp: Option<(Tcp, SocketAddr)>,
    sockets: Arc<ApiSockets>,
    /// Free connections on the UNIX socket.
    room: Arc<Semaphore>,
    /// Tasks that accept connections.
    accepting: Arc<Mutex<Vec<AbortHandle>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the sockets and starts the thread.
    ///
    /// # Errors
    /// A socket cannot be opened, or the certificate is invalid.
    pub fn start(manager: impl Into<Arc<Mutex<Manager>>>, listen: &Listen) -> Result<Server> {
        Server::start_on(manager, ApiSockets::open(listen)?, listen)
    }

    /// Starts the thread on open sockets.
    ///
    /// # Errors
    /// The system has no thread or runtime left.
    pub fn start_on(
        manager: impl Into<Arc<Mutex<Manager>>>,
        sockets: ApiSockets,
        listen: &Listen,
    ) -> Result<Server> {
        let manager = manager.into();
        let tcp_address = sockets.tcp.as_ref().map(TcpSocket::address).transpose()?;
        let sockets = Arc::new(sockets);
        let (worker, work) = Worker::start()?;
        let plain = router(manager.clone(), &worker, None);
        let with_token = listen.tcp.as_ref().map(|tcp| router(manager.clone(), &worker, Some(tcp)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the API's runtime cannot be made")?;
        let (stop, stopped) = oneshot::channel();
        let ticked = manager.clone();
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (at, unix_room) = (sockets.clone(), room.clone());
        let accepting = Arc::new(Mutex::new(Vec::new()));
        let accepts = accepting.clone();
        let thread = std::thread::Builder::new().name("api".into()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(tick(ticked, worker));
                let unix = tokio::spawn(told(serve_unix(at.clone(), plain, unix_room)));
                let tcp = with_token.map(|router| tokio::spawn(told(serve_tcp(at, router))));
                let all = std::iter::once(unix).chain(tcp);
                let all = all.map(|task| task.abort_handle());
                accepts.lock().unwrap_or_else(PoisonError::into_inner).extend(all);
                let _ = stopped.await; // an error is a sender that is gone
            });
            drop(runtime); // and with it all who hand in work
            let _ = work.join(); // it catches panics
        });
        let thread = thread.context("the API's thread cannot be started")?;
        let (stop, thread) = (Some(stop), Some(thread));
        let tcp = listen.tcp.clone().zip(tcp_address);
        Ok(Server { manager, tcp, sockets, room, accepting, stop, thread })
    }

    /// The UNIX socket.
    pub fn unix(&self) -> &vhost_user::Listener {
        self.sockets.unix.listener()
    }

    /// The TCP socket, if configured.
    pub fn tcp(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.tcp.as_ref().map(TcpSocket::socket)
    }

    /// Stops accepting, because another process does. Waits up to `most` until all clients on the
    /// UNIX socket have their response and are gone.
    pub fn drain(&self, most: Duration) {
        let until = Instant::now() + most;
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        accepting.iter().for_each(AbortHandle::abort);
        while self.room.available_permits() < MAX_CONNECTIONS && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends all captures; waits up to `most` until their clients have the rest.
    fn end_captures(&self, most: Duration) {
        let until = Instant::now() + most;
        let end = || self.manager.lock().is_ok_and(|mut manager| manager.end_captures());
        while end() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The TCP address.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(_, address)| *address)
    }

    /// Address of the dashboard over TCP, if configured; `with_token` adds the token as its
    /// fragment, which browsers send to no server.
    pub fn dashboard_url(&self, with_token: bool) -> Option<String> {
        let (tcp, address) = self.tcp.as_ref()?;
        let scheme = if tcp.tls.is_some() { "https" } else { "http" };
        let fragment =
            if with_token { format!("#token={}", tcp.token.escaped()) } else { String::new() };
        Some(format!("{scheme}://{address}/{fragment}"))
    }

    /// The state and the data plane, for other parts of this process.
    pub fn manager(&self) -> &Arc<Mutex<Manager>> {
        &self.manager
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end_captures(CAPTURES_TIME);
        self.stop.take(); // wakes the thread
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of it was told already
        }
    }
}

/// Ends abandoned migrations and keeps the history while the runtime lives.
async fn tick(manager: Arc<Mutex<Manager>>, worker: Worker) {
    loop {
        tokio::time::sleep(TICK).await;
        let manager = manager.clone();
        let work = move || {
            if let Ok(mut manager) = manager.lock() {
                manager.tick(Instant::now());
                manager.add_to_history();
            }
        };
        let _ = worker.run(work).await; // a panic of it is met by the next request
    }
}

/// Logs the end of a listener; the data plane continues without it.
async fn told(served: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = served.await {
        tracing::error!("the API is not served: {error}; restart the daemon");
    }
}

async fn serve_unix(
    sockets: Arc<ApiSockets>,
    router: Router,
    room: Arc<Semaphore>,
) -> std::io::Result<()> {
    let listener = sockets.unix.listen()?;
    let closer = Closer::default();
    loop {
        let permit = permit(&room).await;
        while closer.load() != CloserLoad::Light {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let stream = Bytes::new(stream, &closer);
                // Closes connections of other users without a response.
                let Some(peer) = owner(stream.stream()) else { continue };
                let router = router.clone();
                tokio::spawn(async move {
                    let mark = |request: &mut Request<Incoming>| {
                        request.extensions_mut().insert(peer);
                    };
                    serve_connection(stream, router, mark).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_tcp(sockets: Arc<ApiSockets>, router: Router) -> std::io::Result<()> {
    let Some(socket) = &sockets.tcp else { return Ok(()) };
    let listener = socket.listen()?;
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut unauthenticated = Unauthenticated::default();
    loop {
        let permit = permit(&room).await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        keep_alive(&stream);
        if room.available_permits() == 0 {
            unauthenticated.close_oldest();
        }
        let known = Authenticated::default();
        let served_connection =
            serve_tcp_connection(stream, socket.tls.clone(), router.clone(), known.clone());
        let served = tokio::spawn(async move {
            served_connection.await;
            drop(permit);
        });
        unauthenticated.add(known, served.abort_handle());
        // Handles an arrived token before the next connection can displace this one.
        tokio::task::yield_now().await;
    }
}

/// Has the kernel close the connection if its peer vanishes. Without that it is a connection still.
fn keep_alive(stream: impl AsFd) {
    use rustix::net::sockopt;
    let (idle, interval, probes) = KEEP_ALIVE;
    let _ = sockopt::set_tcp_keepidle(&stream, idle);
    let _ = sockopt::set_tcp_keepintvl(&stream, interval);
    let _ = sockopt::set_tcp_keepcnt(&stream, probes);
    let _ = sockopt::set_socket_keepalive(&stream, true);
}

async fn permit(room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    room.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Serves a TCP connection, for [`TOKEN_TIME`] unless the client has authenticated by then.
async fn serve_tcp_connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    known: Authenticated,
) {
    let is_known = known.clone();
    let serving = async {
        let mark = move |request: &mut Request<Incoming>| {
            request.extensions_mut().insert(known.clone());
        };
        match tls {
            None => serve_connection(stream, router, mark).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    serve_connection(stream, router, mark).await;
                }
            }
        }
    };
    let mut serving = std::pin::pin!(serving);
    let late = tokio::time::timeout(TOKEN_TIME, &mut serving).await.is_err();
    if late && is_known.get() {
        serving.await;
    }
}

/// Serves requests until the client ends or is idle for too long. `mark` attaches the client's
/// identity to each request; a request cannot forge it.
pub(super) async fn serve_connection<S>(
    stream: S,
    router: Router,
    mark: impl Fn(&mut Request<Incoming>),
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = TowerToHyperService::new(router);
    let patience = Patience::default();
    let stream = WriteDeadline::new(stream, ANSWER_TIME, patience.clone());
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |mut request: Request<Incoming>| {
                mark(&mut request);
                request.extensions_mut().insert(patience.clone());
                service.call(request)
            }),
        );
    if let Err(error) = served.await {
        tracing::debug!("a connection of the API ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_keepalive, tcp_keepcnt, tcp_keepidle, tcp_keepintvl};

    use super::*;

    #[test]
    fn peers_that_vanish_are_noticed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(!socket_keepalive(&stream).unwrap());
        keep_alive(&stream);
        assert!(socket_keepalive(&stream).unwrap());
        assert_eq!(tcp_keepidle(&stream).unwrap(), KEEP_ALIVE.0);
        assert_eq!(tcp_keepintvl(&stream).unwrap(), KEEP_ALIVE.1);
        assert_eq!(tcp_keepcnt(&stream).unwrap(), KEEP_ALIVE.2);
    }
}
