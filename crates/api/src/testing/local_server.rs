//! Connections on the UNIX socket whose bytes arrive in given pieces.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream as Client;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use vhost_user::Closer;

use crate::Manager;
use crate::bytes::Bytes;
use crate::router::router;
use crate::server::serve_connection;
use crate::worker::Worker;

/// Serves one connection at a time, in the caller's thread.
#[derive(Debug)]
pub struct LocalServer {
    router: Router,
    worker: Worker,
    runtime: Runtime,
}

impl LocalServer {
    pub(super) fn new(manager: Arc<Mutex<Manager>>) -> LocalServer {
        let (worker, _) = Worker::start().unwrap();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalServer { router: router(manager, &worker, None), worker, runtime }
    }

    /// Responses to a client that writes each piece when the server has read the last one, and ends
    /// when it has all responses.
    pub fn serve(&self, pieces: &[&[u8]]) -> Vec<u8> {
        self.runtime.block_on(async {
            let (client, stream) = FedStream::pair(pieces, self.worker.clone()).unwrap();
            let responses = tokio::spawn(read_all(client));
            serve_connection(stream, self.router.clone(), |_| ()).await;
            responses.await.unwrap()
        })
    }
}

/// Everything until the end, or the error of a server that left bytes unread.
async fn read_all(client: UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    while client.readable().await.is_ok() {
        let mut bytes = [0; 4096];
        match client.try_read(&mut bytes) {
            Ok(n) if n > 0 => all.extend_from_slice(&bytes[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => break,
        }
    }
    all
}

/// Turns of worker and connection without a response after which none is to come.
const QUIET_TURNS: u8 = 3;

/// The server's end of a connection, which also writes what the client sends.
struct FedStream<'a> {
    stream: Bytes,
    client: Client,
    pieces: std::slice::Iter<'a, &'a [u8]>,
    /// Set between a write of the client and the server's next read.
    is_fed: bool,
    worker: Worker,
    /// Work behind all that the server has handed in.
    turn: Option<Pin<Box<dyn Future<Output = Option<()>> + Send>>>,
    quiet_turns: u8,
}

impl<'a> FedStream<'a> {
    /// The client's end, for reading, and the server's.
    fn pair(pieces: &'a [&'a [u8]], worker: Worker) -> io::Result<(UnixStream, FedStream<'a>)> {
        let (client, server) = Client::pair()?;
        client.set_nonblocking(true)?;
        server.set_nonblocking(true)?;
        let stream = Bytes::new(UnixStream::from_std(server)?, &Closer::default());
        let reader = UnixStream::from_std(client.try_clone()?)?;
        let pieces = pieces.iter();
        let (turn, quiet_turns) = (None, 0);
        let is_fed = false;
        Ok((reader, FedStream { stream, client, pieces, is_fed, worker, turn, quiet_turns }))
    }

    /// Waits for responses: hyper drops those to a client that has ended.
    fn poll_quiet(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.quiet_turns == QUIET_TURNS {
            return Poll::Ready(());
        }
        let worker = self.worker.clone();
        let turn =
            self.turn.get_or_insert_with(|| Box::pin(async move { worker.run(|| ()).await }));
        ready!(turn.as_mut().poll(context));
        self.turn = None;
        self.quiet_turns += 1;
        context.waker().wake_by_ref(); // the rest of the connection takes its turn
        Poll::Pending
    }
}

impl AsyncRead for FedStream<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_fed {
            match self.pieces.next() {
                Some(piece) => self.client.write_all(piece)?,
                None => {
                    ready!(self.poll_quiet(context));
                    self.client.shutdown(Shutdown::Write)?;
                }
            }
            self.is_fed = true;
        }
        ready!(Pin::new(&mut self.stream).poll_read(context, room))?;
        self.is_fed = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FedStream<'_> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.quiet_turns = 0;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
