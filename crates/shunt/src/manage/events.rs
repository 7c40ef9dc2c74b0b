//! `shunt events`.

use std::time::Duration;

use anyhow::Result;
use api::{Event, EventList};
use clap::Args;

use super::client::DaemonArgs;
use crate::flat::Fields;
use crate::pages::Title;
use crate::text::print;

/// Poll interval of `--follow`.
const LOOK: Duration = Duration::from_millis(500);

/// Show recent events: applies, path changes with their reason, guests that attached or detached.
#[derive(Debug, Args)]
#[command(add = Title("recent events of the daemon"))]
#[command(after_help = "\
Examples:
  shunt events
  shunt events --follow                   follow new events until interrupted
  shunt events --since 41 --json          events after number 41, as JSON
  shunt events --follow --json            one JSON object a line")]
pub(crate) struct Events {
    #[command(flatten)]
    target: DaemonArgs,
    /// Only events with a greater number.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    since: u64,
    /// Show new events as they occur.
    #[arg(long)]
    follow: bool,
}

impl Events {
    pub(crate) fn run(self) -> Result<()> {
        let mut since = self.since;
        loop {
            let answer = self.target.get(&format!("/v1/events?since={since}"))?;
            let list: EventList = serde_json::from_value(answer)?;
            if list.events.is_empty() && since > list.last {
                since = 0; // another daemon restarted the numbers
            } else {
                since = list.last;
            }
            if !self.follow || !list.events.is_empty() {
                self.print(&list)?;
            }
            if !self.follow {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Prints events as text, or as JSON: an array, or with `--follow` one object a line.
    fn print(&self, list: &EventList) -> Result<()> {
        let events = list.events.iter().map(serde_json::to_value);
        let events = events.collect::<Result<Vec<_>, _>>()?;
        match self.target.json && self.follow {
            true => {
                Ok(print(&events.iter().map(|event| format!("{event}\n")).collect::<String>())?)
            }
            false => self.target.show_list(|| Fields::of("Event"), &events, |_| lines(list)),
        }
    }
}

fn lines(list: &EventList) -> String {
    let mut text = String::new();
    if list.lost > 0 {
        text += &format!("{} older events are no longer kept\n", list.lost);
    }
    for Event { sequence, time_ms, subject, text: what, .. } in &list.events {
        let gap = if subject.is_empty() { "" } else { ": " };
        text += &format!("{sequence:>6}  {}  {subject}{gap}{what}\n", clock(*time_ms));
    }
    text
}

/// Hours, minutes, seconds and milliseconds of a day, in UTC.
fn clock(time_ms: u64) -> String {
    let (seconds, ms) = (time_ms / 1000, time_ms % 1000);
    let (hours, minutes, seconds) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_day() {
        assert_eq!(clock(0), "00:00:00.000Z");
        assert_eq!(clock(86_400_000 * 20_000 + 45_296_007), "12:34:56.007Z");
    }
}
