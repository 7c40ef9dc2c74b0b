//! Time-stamp cycles of a burst by stage, sampled on 1 burst in [`SAMPLED_ONE_IN`].
//!
//! # Model
//! Of every [`SAMPLED_ONE_IN`] bursts in a row a lane samples one, at a random place among them:
//! periodic traffic cannot beat with a fixed stride. On that burst the lane reads the counter at
//! each border between two stages. The cycles since the border before belong to the stage that
//! ends. On other bursts a border is one branch on a flag, and the counter is not read. A poll that
//! finds nothing is not sampled; the next burst is sampled in its place.
//!
//! The stages and the readings of a burst add up to the time from its first reading to its last.
//! Each reading is charged to `sampling_cycles` by its usual cost, measured when the lane starts.
//! The rest of a lane's busy cycles is work between bursts: rounds, polls that find nothing, time
//! that other processes or the hypervisor take.
//!
//! # Contents of the stages
//! - [`Poll`](Stage::Poll): the scheduler, the lock of the sender's ring, its budget; after the
//!   burst, its counters.
//! - [`Descriptors`](Stage::Descriptors): reads and checks of descriptors. Of the sender's ring,
//!   with the snapshot of each frame's first bytes. Of each receiver's ring, with the wait for its
//!   lock.
//! - [`Classify`](Stage::Classify): table look-ups, longer snapshots, VLAN edits, sorting by
//!   receiver, counters and budgets of receivers.
//! - [`Copy`](Stage::Copy): headers and bytes of frames. On split rings also the used entries of
//!   the receiver, which packed rings write when they publish. Further buffers of a frame that
//!   takes several are read here.
//! - [`Publish`](Stage::Publish): used entries are shown to receivers and to the sender, it is read
//!   whether they want a notification, and the ring's lock is released.
//! - [`Notify`](Stage::Notify): interrupts (writes to eventfds).
//!
//! Ports other than virtio-net rings have fewer borders: all of a delivery is `copy`, all of a
//! publication with its system calls is `publish`. Frames that a device placed in a guest's
//! buffers, and frames of a port in quarantine up to their copy to our memory, are `descriptors`.
//!
//! # Limits
//! - The reading is not ordered against other instructions: a cache miss that is still open at a
//!   border is charged to the stage that waits for it. So `classify` holds what is left of the wait
//!   for the first bytes of frames, which `descriptors` began to read.
//! - A burst that takes longer than 100 us and a cycle a byte is left out, and counted as
//!   `sampled_interrupted`: one such burst would outweigh hundreds of others.

/// A lane samples one burst in so many.
pub const SAMPLED_ONE_IN: u32 = 64;
const _: () = assert!(SAMPLED_ONE_IN.is_power_of_two());

/// A part of the work on a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Choice of the ring, and the counters of the burst.
    Poll,
    /// Reads of the sender's and of the receivers' descriptors.
    Descriptors,
    /// Look-ups, edits, sorting by receiver.
    Classify,
    /// The one copy.
    Copy,
    /// Used entries published to guests.
    Publish,
    /// Interrupts.
    Notify,
}

impl Stage {
    /// All stages, in the order of a burst.
    pub const ALL: [Stage; 6] = [
        Stage::Poll,
        Stage::Descriptors,
        Stage::Classify,
        Stage::Copy,
        Stage::Publish,
        Stage::Notify,
    ];

    /// Name as in reports and counters.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Poll => "poll",
            Stage::Descriptors => "descriptors",
            Stage::Classify => "classify",
            Stage::Copy => "copy",
            Stage::Publish => "publish",
            Stage::Notify => "notify",
        }
    }

    /// Name of the lane counter with the cycles of sampled bursts.
    pub fn counter(self) -> String {
        format!("stage_{}_cycles", self.as_str())
    }
}
