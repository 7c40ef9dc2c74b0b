//! System calls that the sandbox refused: logged, counted, and recorded as events. The end of the
//! launcher is logged too, and requests that it does not answer or refuses.

use std::collections::BTreeSet;
use std::time::Instant;

use api::{EventKind, Events};
use host::launcher::Failed;
use host::sandbox::Refused;

/// Refused calls that are logged already.
#[derive(Debug, Default)]
pub(super) struct ForbiddenCalls {
    logged: u64,
    /// The launcher's end is logged already.
    is_launcher_gone: bool,
    /// Requests of what is not named that are logged already.
    not_named: BTreeSet<String>,
}

/// Most of them that are logged.
const NOT_NAMED_MAX: usize = 1000;

impl ForbiddenCalls {
    /// Reports new calls; returns their number.
    pub(super) fn poll(&mut self, events: &Events, now: Instant) -> u64 {
        if !self.is_launcher_gone && host::launcher::has_ended() {
            self.is_launcher_gone = true;
            tracing::error!(
                "sandbox: the process shunt-launcher has ended: changes that need rights fail, and \
                 so does shunt upgrade; restart the daemon"
            );
        }
        for failed in host::launcher::failed() {
            self.report_failed(failed, events, now);
        }
        host::sandbox::refused().map_or(0, |refused| self.report(&refused, events, now))
    }

    fn report_failed(&mut self, failed: Failed, events: &Events, now: Instant) {
        let (request, fields) = match failed {
            Failed::NotNamed(request, fields) => (request, fields),
            Failed::Unanswered(request) => {
                return tracing::error!(
                    "sandbox: the process shunt-launcher has not answered {request} for {} s, and \
                     may still do it: see the kernel's log; if it stays so, restart the daemon",
                    host::launcher::ANSWER_MAX.as_secs()
                );
            }
        };
        let text = format!(
            "refused {request}, {fields}: the configuration file does not name that \
             (--sandbox=file); add it, and use shunt upgrade"
        );
        // Requests may be repeated for ever.
        if self.not_named.len() < NOT_NAMED_MAX && self.not_named.insert(text.clone()) {
            tracing::warn!("sandbox: {text}");
            events.caused(EventKind::Forbidden, "sandbox".to_owned(), text, now);
        }
    }

    fn report(&mut self, refused: &Refused, events: &Events, now: Instant) -> u64 {
        let new = refused.count - self.logged;
        if new > 0 {
            self.logged = refused.count;
            let Refused { count, call, thread } = refused;
            let text = format!(
                "refused system call {call} of thread {thread}, {count} so far: the daemon has a \
                 bug, or has been attacked"
            );
            tracing::warn!("sandbox: {text}");
            events.caused(EventKind::Forbidden, "sandbox".to_owned(), text, now);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_reported_once() {
        let (mut calls, events, now) =
            (ForbiddenCalls::default(), Events::default(), Instant::now());
        let refused =
            |count| Refused { count, call: "openat".to_owned(), thread: "lane0".to_owned() };
        let mut report = |count| calls.report(&refused(count), &events, now);
        assert_eq!([report(2), report(2), report(3)], [2, 0, 1]);
        let listed = events.since(0).events;
        assert_eq!(listed.len(), 2);
        assert_eq!(listed[1].kind, EventKind::Forbidden);
        assert!(listed[1].text.contains("openat of thread lane0, 3 so far"), "{:?}", listed[1]);
    }
}
