//! The thread that serves the API.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::listen::{OwnersSocket, TcpSocket, is_owner};
use super::manager::Manager;
use super::moves::now_ms;
use super::router::router;
use super::token::Token;

/// Connections of a listener at a time; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// How long headers, or a TLS handshake, may take, and how long a connection may be idle.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Threads for work that waits; it is done one at a time anyway.
const WORKERS: usize = 4;
/// How often it is looked whether a move of a guest was given up.
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

/// The API while it is served; dropping it ends that, after the request that is being worked on.
#[derive(Debug)]
pub struct Server {
    manager: Arc<Mutex<Manager>>,
    tcp_address: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the sockets and starts the thread.
    ///
    /// # Errors
    /// A socket cannot be opened, or the certificate is no good; each says what and why.
    pub fn start(manager: Manager, listen: &Listen) -> Result<Server> {
        let unix = OwnersSocket::bind(&listen.socket)?;
        let tcp = listen.tcp.as_ref().map(TcpSocket::bind).transpose()?;
        let tcp_address = tcp.as_ref().map(TcpSocket::address).transpose()?;
        let manager = Arc::new(Mutex::new(manager));
        let plain = router(manager.clone(), None);
        let with_token =
            listen.tcp.as_ref().map(|tcp| router(manager.clone(), Some(tcp.token.clone())));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(WORKERS)
            .thread_name("api-work")
            .build()
            .context("the API's runtime cannot be made")?;
        let (stop, stopped) = oneshot::channel();
        let ticked = manager.clone();
        let thread = std::thread::Builder::new().name("api".into()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(told(serve_unix(unix, plain)));
                tokio::spawn(tick(ticked));
                if let Some((tcp, router)) = tcp.zip(with_token) {
                    tokio::spawn(told(serve_tcp(tcp, router)));
                }
                let _ = stopped.await; // an error is a sender that is gone
            });
        });
        let thread = thread.context("the API's thread cannot be started")?;
        Ok(Server { manager, tcp_address, stop: Some(stop), thread: Some(thread) })
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
async fn tick(manager: Arc<Mutex<Manager>>) {
    loop {
        tokio::time::sleep(TICK).await;
        let manager = manager.clone();
        let work = move || {
            if let Ok(mut manager) = manager.lock() {
                manager.tick(now_ms());
            }
        };
        let _ = tokio::task::spawn_blocking(work).await; // a panic of it is met by the next request
    }
}

/// Without a listener there is no API, and the data plane goes on all the same.
async fn told(served: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = served.await {
        tracing::error!("the API is not served: {error}; restart the daemon");
    }
}

async fn serve_unix(socket: OwnersSocket, router: Router) -> std::io::Result<()> {
    let listener = socket.listen()?;
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = permit(&room).await;
        match listener.accept().await {
            Ok((stream, _)) if is_owner(&stream) => {
                tokio::spawn(serve_connection(stream, router.clone(), permit));
            }
            Ok(_) => {} // closed: it may know nothing
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_tcp(socket: TcpSocket, router: Router) -> std::io::Result<()> {
    let listener = socket.listen()?;
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = permit(&room).await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let router = router.clone();
        match socket.tls.clone() {
            None => drop(tokio::spawn(serve_connection(stream, router, permit))),
            Some(tls) => drop(tokio::spawn(async move {
                let handshake = tokio::time::timeout(HEADER_TIME, tls.accept(stream)).await;
                if let Ok(Ok(stream)) = handshake {
                    serve_connection(stream, router, permit).await;
                }
            })),
        }
    }
}

async fn permit(room: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    room.clone().acquire_owned().await.expect("the semaphore is never closed")
}

/// Until the client has no more requests, or is silent for too long.
async fn serve_connection<S>(stream: S, router: Router, permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!("a connection of the API ended: {error}");
    }
    drop(permit);
}
