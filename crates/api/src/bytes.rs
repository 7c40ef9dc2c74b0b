//! A connection on the UNIX socket for the runtime: it carries bytes, and rejects file descriptors.
//!
//! The API thread never closes descriptors that a peer sent, nor the connection, which may hold
//! more of them: see [`vhost_user::foreign`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use vhost_user::Closer;
use vhost_user::foreign::receive_bytes;

/// A connection. Received descriptors end it with an error.
#[derive(Debug)]
pub(super) struct Bytes {
    /// Present until drop.
    stream: Option<UnixStream>,
    closer: Closer,
}

impl Bytes {
    /// Takes a connection that `closer` closes.
    pub(super) fn new(stream: UnixStream, closer: &Closer) -> Bytes {
        Bytes { stream: Some(stream), closer: closer.clone() }
    }

    /// The connection.
    pub(super) fn stream(&self) -> &UnixStream {
        self.stream.as_ref().expect("present until it is dropped")
    }

    fn writer(&mut self) -> Pin<&mut UnixStream> {
        Pin::new(self.stream.as_mut().expect("present until it is dropped"))
    }
}

impl AsyncRead for Bytes {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.stream();
        loop {
            ready!(stream.poll_read_ready(context))?;
            let receive = || receive_bytes(stream, room.initialize_unfilled(), &self.closer);
            match stream.try_io(Interest::READABLE, receive) {
                Ok(read) => {
                    room.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Poll::Ready(Err(error)),
                },
            }
        }
    }
}

impl AsyncWrite for Bytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(context)
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        // Fails only without a runtime, when no connection is left either.
        if let Ok(stream) = stream.into_std() {
            // Tells the peer now; the closer may run later.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.closer.close(stream);
        }
    }
}
