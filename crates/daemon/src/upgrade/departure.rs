//! A daemon that another process takes over from.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Result;
use rustix::event::epoll;
use rustix::net::RecvFlags;
use rustix::process::{Pid, Signal};

use super::super::{Daemon, GUARDIAN};
use super::notify::main_pid;
use super::old::{Belongings, Origin, replace};

/// How long clients may take to read their last answers when another process has taken over.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

impl Daemon {
    /// Lets another process take over when that is ordered; before, such orders are refused.
    pub(in super::super) fn be_replaceable(&mut self, origin: Origin) -> Result<()> {
        if let Some(guardian) = &origin.guardian {
            let data = epoll::EventData::new_u64(GUARDIAN);
            epoll::add(&self.epoll, guardian, data, epoll::EventFlags::IN)?;
        }
        self.origin = Some(origin);
        Ok(())
    }

    /// Carries out an order to be replaced; says which process has taken over, if one has.
    pub(in super::super) fn look_at_desk(&mut self) -> Option<u32> {
        let waiting = self.desk.next()?;
        let Some(origin) = &self.origin else {
            waiting.answer(Err("this daemon was not started by shunt up".to_owned()));
            return None;
        };
        let belongings = Belongings {
            origin,
            run_lock: self.lock.as_fd(),
            server: self.server.as_ref(),
            stop: self.stop.as_fd(),
        };
        let done = replace(&self.data_plane, &belongings, &waiting.order);
        match &done {
            Ok(upgraded) => {
                main_pid(upgraded.pid);
                tracing::info!("process {} has taken over", upgraded.pid);
            }
            Err(error) => tracing::error!("not upgraded: {error:#}"),
        }
        let by = done.as_ref().ok().map(|upgraded| upgraded.pid);
        waiting.answer(done.map_err(|error| format!("{error:#}")));
        by
    }

    /// Ends this process for the one that has taken over, and removes nothing that is its now.
    pub(in super::super) fn leave(self, to: u32) -> ! {
        if let Some(server) = &self.server {
            server.drain(LAST_ANSWERS);
        }
        hand_on(&self.stop, to);
        crate::log::flush();
        std::process::exit(0)
    }
}

/// Hands an order to stop on to the process that has taken over, if one came and nobody looked any
/// more; says whether it did.
fn hand_on(stop: &UnixStream, to: u32) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let came = rustix::net::recv(stop, &mut [0; 1][..], flags).is_ok_and(|(n, _)| n > 0);
    let to = Pid::from_raw(to as i32).filter(|_| came);
    // It cannot be another's number: its parent is this process, which has not asked how it ended.
    to.is_some_and(|to| rustix::process::kill_process(to, Signal::TERM).is_ok())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_order_to_stop_that_came_late_is_handed_on() {
        let mut successor = Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let (stop, mut hand) = UnixStream::pair().unwrap();
        assert!(!hand_on(&stop, successor.id()), "nobody asked");
        assert!(successor.try_wait().unwrap().is_none());
        hand.write_all(&[0]).unwrap();
        assert!(hand_on(&stop, successor.id()));
        assert_eq!(successor.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    }
}
