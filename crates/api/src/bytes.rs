//! A connection on the UNIX socket over which bytes go and no descriptors, for the runtime.
//!
//! The thread that serves the API never closes what a peer sent, nor the connection, in which more
//! may wait: see [`vhost_user::foreign`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use vhost_user::Closer;
use vhost_user::foreign::receive_bytes;

/// A connection. It ends with an error when descriptors come.
#[derive(Debug)]
pub(super) struct Bytes {
    /// Present until it is dropped.
    stream: Option<UnixStream>,
    closer: Closer,
}

impl Bytes {
    /// On a connection that `closer` is to close.
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
        // It cannot fail while the runtime lives, and later no connection is left.
        if let Ok(stream) = stream.into_std() {
            // The peer is to know now, not when the closer comes to it.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            self.closer.close(stream);
        }
    }
}
