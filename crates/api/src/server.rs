//! The thread that serves the API.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
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
use model::config::{Config, socket_path};
use model::state::ApiSettings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use vhost_user::{Closer, Load};

use super::bytes::Bytes;
use super::deadline::WriteDeadline;
use super::listen::{OwnersSocket, TcpSocket, owner};
use super::manager::Manager;
use super::router::router;
use super::token::Token;
use super::visitors::{Known, Visitors};
use super::worker::Worker;

/// Connections of a listener at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long headers may take, and how long a connection may be idle.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Time for a client over TCP to show the token, TLS handshake included.
const TOKEN_TIME: Duration = Duration::from_secs(2);
/// Time after which a client that reads nothing of its answer is disconnected.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How often it is looked whether a migration was abandoned.
const TICK: Duration = Duration::from_secs(1);
/// Before a listener that cannot accept, for lack of descriptors say, tries again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where the API is served.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The UNIX socket; only this process's user and root can use it.
    pub socket: PathBuf,
    /// The same over TCP.
    pub tcp: Option<Tcp>,
}

impl Listen {
    /// Where a configuration wants it; `None` if it is not to be served.
    ///
    /// # Errors
    /// The token cannot be read.
    pub fn of(config: &Config) -> Result<Option<Listen>> {
        let ApiSettings { enabled, socket, tcp, token_file, tls_certificate, tls_key } =
            &config.api;
        if !enabled {
            return Ok(None);
        }
        let tls = tls_certificate.clone().zip(tls_key.clone());
        let tls = tls.map(|(certificate, key)| Tls { certificate, key });
        let tcp = tcp.zip(token_file.as_ref()).map(|(address, token_file)| {
            anyhow::Ok(Tcp { address, token: Token::read(token_file)?, tls })
        });
        let socket = socket.clone().unwrap_or_else(|| socket_path(&config.run_dir));
        Ok(Some(Listen { socket, tcp: tcp.transpose()? }))
    }
}

/// The API over TCP.
#[derive(Debug, Clone)]
pub struct Tcp {
    /// The address and port; port 0 for any that is free.
    pub address: SocketAddr,
    /// What clients must show.
    pub token: Token,
    /// How connections are encrypted; without it only loopback addresses are allowed.
    pub tls: Option<Tls>,
}

/// A server's identity, as PEM files.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The certificate, with those that vouch for it after it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Sockets that are listened on, and on which nobody is answered yet.
#[derive(Debug)]
pub struct Doors {
    unix: OwnersSocket,
    tcp: Option<TcpSocket>,
}

impl Doors {
    /// Opens them.
    ///
    /// # Errors
    /// A socket cannot be opened, or the certificate is no good; each says what and why.
    pub fn open(listen: &Listen) -> Result<Doors> {
        let unix = OwnersSocket::bind(&listen.socket)?;
        let tcp = listen.tcp.as_ref().map(TcpSocket::bind).transpose()?;
        Ok(Doors { unix, tcp })
    }

    /// Goes on with those of another process, which keeps their files until [`adopt`](Self::adopt).
    ///
    /// # Errors
    /// A certificate is no good, or a socket is missing.
    pub fn inherit(
        listen: &Listen,
        unix: vhost_user::Listener,
        tcp: Option<OwnedFd>,
    ) -> Result<Doors> {
        let unix = OwnersSocket::on(unix)?;
        let tcp = match &listen.tcp {
            Some(spec) => {
                let socket = tcp.context("the API's TCP socket was not handed over")?;
                Some(TcpSocket::inherit(spec, socket)?)
            }
            None => None,
        };
        Ok(Doors { unix, tcp })
    }

    /// They are this process's from now on.
    pub fn adopt(&self) {
        self.unix.listener().adopt();
    }
}

/// The API while it is served; dropping it ends that, after the request that is being worked on.
#[derive(Debug)]
pub struct Server {
    manager: Arc<Mutex<Manager>>,
    tcp_address: Option<SocketAddr>,
    doors: Arc<Doors>,
    /// Room for connections on the UNIX socket.
    room: Arc<Semaphore>,
    /// What accepts them.
    accepting: Arc<Mutex<Vec<AbortHandle>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the sockets and starts the thread.
    ///
    /// # Errors
    /// A socket cannot be opened, or the certificate is no good; each says what and why.
    pub fn start(manager: impl Into<Arc<Mutex<Manager>>>, listen: &Listen) -> Result<Server> {
        Server::behind(manager, Doors::open(listen)?, listen)
    }

    /// Starts the thread on sockets that are there.
    ///
    /// # Errors
    /// There is no thread or no runtime to be had.
    pub fn behind(
        manager: impl Into<Arc<Mutex<Manager>>>,
        doors: Doors,
        listen: &Listen,
    ) -> Result<Server> {
        let manager = manager.into();
        let tcp_address = doors.tcp.as_ref().map(TcpSocket::address).transpose()?;
        let doors = Arc::new(doors);
        let (worker, work) = Worker::start()?;
        let plain = router(manager.clone(), &worker, None);
        let token = listen.tcp.as_ref().map(|tcp| tcp.token.clone());
        let with_token = token.map(|token| router(manager.clone(), &worker, Some(token)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the API's runtime cannot be made")?;
        let (stop, stopped) = oneshot::channel();
        let ticked = manager.clone();
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let (at, unix_room) = (doors.clone(), room.clone());
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
        Ok(Server { manager, tcp_address, doors, room, accepting, stop, thread })
    }

    /// The UNIX socket.
    pub fn unix(&self) -> &vhost_user::Listener {
        self.doors.unix.listener()
    }

    /// The TCP socket, if there is one.
    pub fn tcp(&self) -> Option<BorrowedFd<'_>> {
        self.doors.tcp.as_ref().map(TcpSocket::socket)
    }

    /// Accepts nobody any more, for another process does, and waits until everybody at the UNIX
    /// socket has had an answer and left, or so long.
    pub fn see_out(&self, most: Duration) {
        let until = Instant::now() + most;
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
        accepting.iter().for_each(AbortHandle::abort);
        while self.room.available_permits() < MAX_CONNECTIONS && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Where it is served over TCP.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// The state and the data plane, for whoever else in this process must see or change them.
    pub fn manager(&self) -> &Arc<Mutex<Manager>> {
        &self.manager
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take(); // wakes the thread
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of it was told already
        }
    }
}

/// Lets moves of guests that were given up end, for as long as the runtime lives.
async fn tick(manager: Arc<Mutex<Manager>>, worker: Worker) {
    loop {
        tokio::time::sleep(TICK).await;
        let manager = manager.clone();
        let work = move || {
            if let Ok(mut manager) = manager.lock() {
                manager.tick(Instant::now());
            }
        };
        let _ = worker.run(work).await; // a panic of it is met by the next request
    }
}

/// Without a listener there is no API, and the data plane goes on all the same.
async fn told(served: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = served.await {
        tracing::error!("the API is not served: {error}; restart the daemon");
    }
}

async fn serve_unix(
    doors: Arc<Doors>,
    router: Router,
    room: Arc<Semaphore>,
) -> std::io::Result<()> {
    let listener = doors.unix.listen()?;
    let closer = Closer::default();
    loop {
        let permit = permit(&room).await;
        while closer.load() != Load::Light {
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let stream = Bytes::new(stream, &closer);
                // Anybody else is closed: it may know nothing.
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

async fn serve_tcp(doors: Arc<Doors>, router: Router) -> std::io::Result<()> {
    let Some(socket) = &doors.tcp else { return Ok(()) };
    let listener = socket.listen()?;
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut visitors = Visitors::default();
    loop {
        let permit = permit(&room).await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if room.available_permits() == 0 {
            visitors.close_oldest();
        }
        let known = Known::default();
        let visit = serve_visitor(stream, socket.tls.clone(), router.clone(), known.clone());
        let served = tokio::spawn(async move {
            visit.await;
            drop(permit);
        });
        visitors.add(known, served.abort_handle());
        // A token that has arrived is seen before the next connection can displace this one.
        tokio::task::yield_now().await;
    }
}

async fn permit(room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    room.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Serves a connection over TCP, for [`TOKEN_TIME`] unless the client has shown the token by then.
async fn serve_visitor(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, known: Known) {
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

/// Serves requests until the client has no more, or is silent for too long. `mark` attaches to each
/// request what is known of the client; nothing in a request can imitate that.
async fn serve_connection<S>(stream: S, router: Router, mark: impl Fn(&mut Request<Incoming>))
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = TowerToHyperService::new(router);
    let stream = WriteDeadline::new(stream, ANSWER_TIME);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(
            TokioIo::new(stream),
            service_fn(move |mut request: Request<Incoming>| {
                mark(&mut request);
                service.call(request)
            }),
        );
    if let Err(error) = served.await {
        tracing::debug!("a connection of the API ended: {error}");
    }
}
