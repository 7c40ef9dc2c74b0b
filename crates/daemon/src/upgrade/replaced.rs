//! Being replaced by another process.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Result;
use model::state::Problem;
use rustix::event::epoll;
use rustix::net::RecvFlags;

use super::super::{Daemon, GUARDIAN};
use super::notify::main_pid;
use super::old_process::{HandoverResources, LaunchContext, replace};
use super::program;

/// Time for clients to read their last replies after a takeover.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

impl Daemon {
    /// Accepts upgrade requests from now on; earlier ones are rejected.
    pub(in super::super) fn accept_upgrades(&mut self, launch: LaunchContext) -> Result<()> {
        if let Some(guardian) = &launch.guardian {
            let data = epoll::EventData::new_u64(GUARDIAN);
            epoll::add(&self.epoll, guardian, data, epoll::EventFlags::IN)?;
        }
        self.launch = Some(launch);
        Ok(())
    }

    /// Handles an upgrade request; returns the pid of the process that has taken over, if one has.
    pub(in super::super) fn handle_upgrade(&mut self) -> Option<u32> {
        let waiting = self.upgrades.next()?;
        let Some(launch) = &self.launch else {
            let message = "was not started by `shunt up`";
            let problem = Problem::new("", (), message, "stop it, and start another");
            waiting.answer(Err(problem.of("daemon").into()));
            return None;
        };
        let resources = HandoverResources {
            launch,
            run_lock: self.lock.as_fd(),
            server: self.server.as_ref(),
            stop: self.stop.as_fd(),
        };
        let done = replace(&self.data_plane, &resources, &waiting.order);
        match &done {
            Ok(upgraded) => {
                main_pid(upgraded.pid);
                tracing::info!("process {} has taken over", upgraded.pid);
            }
            Err(error) => tracing::error!("not upgraded: {error:#}"),
        }
        let by = done.as_ref().ok().map(|upgraded| upgraded.pid);
        waiting.answer(done.map_err(|error| match error.downcast() {
            Ok(problems) => problems,
            Err(error) => Problem::of_error(error.as_ref()).into(),
        }));
        by
    }

    /// Ends this process after a takeover, without removing files that the new process uses.
    pub(in super::super) fn exit_replaced(self, to: u32) -> ! {
        if let Some(server) = &self.server {
            server.drain(LAST_ANSWERS);
        }
        hand_on(&self.stop, to);
        crate::log::flush();
        std::process::exit(0)
    }
}

/// Forwards an unread order to stop to the new process; returns `true` if there was one.
fn hand_on(stop: &UnixStream, to: u32) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    let came = rustix::net::recv(stop, &mut [0; 1][..], flags).is_ok_and(|(n, _)| n > 0);
    came && program::stop(to)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn an_order_to_stop_that_came_late_is_handed_on() {
        let new_process = Command::new("/bin/sleep").arg("600").spawn().unwrap();
        let to = program::adopt(new_process);
        let (stop, mut hand) = UnixStream::pair().unwrap();
        assert!(!hand_on(&stop, to), "no order came");
        hand.write_all(&[0]).unwrap();
        assert!(hand_on(&stop, to));
    }
}
