//! Schedule of a recording: the time at which each frame is due. Time is a parameter: nanoseconds
//! since the first frame.

use std::time::Duration;

use super::Pace;
use super::recording::{RecordedFrame, Recording};
use crate::handover::{StateReader, StateWriter};

/// Maximum delay of a frame; longer delays are not made up for.
pub const LATE_MAX: Duration = Duration::from_millis(100);

const NS_PER_S: u128 = 1_000_000_000;

/// Playback of a recording.
#[derive(Debug)]
pub(super) struct Player {
    frames: Vec<RecordedFrame>,
    pace: Pace,
    /// Passes left, including the current one; `None`: forever.
    left: Option<u32>,
    /// Index of the next frame.
    next: usize,
    /// Start of this pass.
    begin_ns: u64,
    /// Bytes sent in this pass.
    bytes: u64,
}

impl Player {
    pub(super) fn new(recording: Recording, pace: Pace, repeat: u32) -> Player {
        let left = (repeat > 0).then_some(repeat);
        Player { frames: recording.frames, pace, left, next: 0, begin_ns: 0, bytes: 0 }
    }

    /// Saves the position, for another process.
    pub(super) fn save(&self, state: &mut StateWriter) {
        let Player { frames: _, pace: _, left, next, begin_ns, bytes } = self;
        state.flag(left.is_some());
        state.number(left.unwrap_or_default().into());
        state.number(*next as u64);
        state.number(*begin_ns);
        state.number(*bytes);
    }

    /// Restores the position, if it is valid.
    pub(super) fn restore(&mut self, state: &mut StateReader<'_>) -> Option<()> {
        let (counted, left) = (state.flag()?, state.number()? as u32);
        let (next, begin_ns, bytes) = (state.number()?, state.number()?, state.number()?);
        let next = usize::try_from(next).ok().filter(|next| *next < self.frames.len())?;
        *self = Player {
            frames: std::mem::take(&mut self.frames),
            pace: self.pace,
            left: counted.then_some(left),
            next,
            begin_ns,
            bytes,
        };
        Some(())
    }

    /// Returns `true` after the last pass.
    pub(super) fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// Time at which the frame at `index` is due after the start of its pass, with `bytes` sent
    /// before it. The index behind the last frame is that of the next pass's first.
    fn offset_ns(&self, index: usize, bytes: u64) -> u64 {
        let offset = match self.pace {
            Pace::Pps(pps) => index as u128 * NS_PER_S / u128::from(pps.max(1)),
            Pace::Mbps(mbps) => u128::from(bytes) * 8_000 / u128::from(mbps.max(1)),
            Pace::Recorded => match self.frames.get(index) {
                Some(frame) => frame.time_ns.into(),
                None => self.length_ns().into(),
            },
        };
        u64::try_from(offset).unwrap_or(u64::MAX / 2)
    }

    /// Length of a pass at the recorded pace: an average gap follows the last frame.
    fn length_ns(&self) -> u64 {
        let last_ns = self.frames.last().map_or(0, |frame| frame.time_ns);
        last_ns + last_ns / (self.frames.len() as u64 - 1).max(1)
    }

    /// Time at which the next frame is due; `None` after the last one.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let offset_ns = self.offset_ns(self.next, self.bytes);
        (!self.is_over()).then(|| self.begin_ns.saturating_add(offset_ns))
    }

    /// Skips a delay that is too long to be made up for.
    pub(super) fn catch_up(&mut self, now_ns: u64) {
        if let Some(due_ns) = self.due_ns() {
            let late_ns = now_ns.saturating_sub(due_ns);
            if late_ns > LATE_MAX.as_nanos() as u64 {
                self.begin_ns += late_ns;
            }
        }
    }

    /// Takes the next frame, if it is due.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<RecordedFrame> {
        if self.due_ns()? > now_ns {
            return None;
        }
        let frame = self.frames[self.next];
        self.next += 1;
        self.bytes += u64::from(frame.len);
        if self.next == self.frames.len() {
            self.begin_ns = self.begin_ns.saturating_add(self.offset_ns(self.next, self.bytes));
            (self.next, self.bytes) = (0, 0);
            self.left = self.left.map(|left| left - 1);
        }
        Some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn player(pace: Pace, repeat: u32) -> Player {
        let frames = [(100, 0), (200, 10 * MS), (300, 10 * MS), (400, 40 * MS)];
        let frames =
            frames.map(|(len, time_ns)| RecordedFrame { at: u64::from(len), len, time_ns });
        Player::new(Recording { frames: frames.to_vec(), cut: 0 }, pace, repeat)
    }

    /// Lengths of the frames that are due, in hundreds of bytes.
    fn due(player: &mut Player, now_ns: u64) -> Vec<u32> {
        std::iter::from_fn(|| player.next(now_ns)).map(|frame| frame.len / 100).collect()
    }

    #[test]
    fn frames_come_as_they_were_recorded() {
        let mut player = player(Pace::Recorded, 2);
        assert_eq!(due(&mut player, 0), [1]);
        assert_eq!(due(&mut player, 10 * MS - 1), [0u32; 0]);
        assert_eq!(player.due_ns(), Some(10 * MS));
        assert_eq!(due(&mut player, 10 * MS), [2, 3]);
        assert_eq!(due(&mut player, 40 * MS), [4]);
        // The next pass comes after a gap like the others, on average.
        let again = 40 * MS + 40 * MS / 3;
        assert_eq!(player.due_ns(), Some(again));
        assert_eq!(due(&mut player, again + 10 * MS), [1, 2, 3]);
        assert_eq!(due(&mut player, again + 50 * MS), [4]);
        assert!(player.is_over());
        assert_eq!((player.due_ns(), player.next(u64::MAX)), (None, None));
    }

    #[test]
    fn frames_come_at_the_rate_asked_for() {
        let mut by_count = player(Pace::Pps(1000), 0);
        let mut by_bits = player(Pace::Mbps(8), 0);
        let (mut count, mut bytes) = (0, 0);
        for ms in 0..100 {
            count += due(&mut by_count, ms * MS).len() as u64;
            bytes += due(&mut by_bits, ms * MS).iter().map(|len| u64::from(len * 100)).sum::<u64>();
            assert_eq!(count, ms + 1);
            // A frame is sent when the previous ones are through.
            assert!((ms * 1000..=ms * 1000 + 400).contains(&bytes), "{bytes} bytes after {ms} ms");
        }
        assert!(!by_count.is_over());
    }

    #[test]
    fn one_frame_is_played_as_often_as_asked() {
        for (pace, repeat) in [(Pace::Recorded, 3), (Pace::Pps(1), 3)] {
            let frame = RecordedFrame { at: 0, len: 100, time_ns: 0 };
            let recording = Recording { frames: vec![frame], cut: 0 };
            let mut player = Player::new(recording, pace, repeat);
            let played: usize = (0..5).map(|s| due(&mut player, s * 1000 * MS).len()).sum();
            assert_eq!(played, 3, "{pace:?}");
            assert!(player.is_over());
        }
    }

    #[test]
    fn what_is_too_late_is_not_made_up_for() {
        let mut player = player(Pace::Pps(1000), 0);
        assert_eq!(due(&mut player, 0).len(), 1);
        player.catch_up(90 * MS);
        assert_eq!(due(&mut player, 90 * MS).len(), 90, "it is not that late");
        player.catch_up(1090 * MS);
        assert_eq!(due(&mut player, 1090 * MS).len(), 1);
        player.catch_up(1092 * MS);
        assert_eq!(due(&mut player, 1092 * MS).len(), 2);
    }
}
