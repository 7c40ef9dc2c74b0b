//! A stream with a deadline for writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Lifts the deadline of a connection: its client may pause while it reads a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience(Arc<AtomicBool>);

impl Patience {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Fails after `most` without any progress of a write. Reads have no deadline.
#[derive(Debug)]
pub(super) struct WriteDeadline<S> {
    stream: S,
    most: Duration,
    patience: Patience,
    /// Runs while a write makes no progress.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteDeadline<S> {
    pub(super) fn new(stream: S, most: Duration, patience: Patience) -> WriteDeadline<S> {
        WriteDeadline { stream, most, patience, timer: None }
    }

    fn limit<T>(
        &mut self,
        context: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() || self.patience.0.load(Ordering::Relaxed) {
            self.timer = None;
            return done;
        }
        let most = self.most;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(most)));
        timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.limit(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.limit(context, done)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, mut theirs) = tokio::net::UnixStream::pair().unwrap();
            let patience = Patience::default();
            let limit = Duration::from_millis(500);
            let mut ours = WriteDeadline::new(ours, limit, patience.clone());
            let long = vec![0; 1 << 20];
            let reading = tokio::spawn(async move {
                let (mut taken, mut buffer) = (0, vec![0; 1 << 18]);
                while taken < 1 << 20 {
                    sleep(Duration::from_millis(1)).await;
                    taken += theirs.read(&mut buffer).await.unwrap();
                }
                theirs // and takes nothing from now on
            });
            ours.write_all(&long).await.unwrap();
            let theirs = reading.await.unwrap();
            let error = ours.write_all(&long).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);

            patience.set();
            let waits = tokio::time::timeout(2 * limit, ours.write_all(&long)).await;
            assert!(waits.is_err(), "without the deadline it waits on");
            drop(theirs);
        });
    }
}
