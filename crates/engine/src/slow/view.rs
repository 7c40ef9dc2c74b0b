//! Views of a burst: its frames as one stage of the pipeline sees them.

use port::{BURST, Burst, HeaderBytes, VlanEdit};
use wire::HeaderSnapshot;

use crate::slow::edit;

/// Indices of all frames of a burst.
pub(crate) const ALL_INDICES: [u8; BURST] = {
    let mut all = [0; BURST];
    let mut i = 0;
    while i < BURST {
        all[i] = i as u8;
        i += 1;
    }
    all
};

/// Indices of the bits that are set in a mask.
pub(crate) fn indices_of(mask: u64, indices: &mut [u8; BURST]) -> &[u8] {
    let (mut left, mut len) = (mask, 0);
    while left != 0 {
        indices[len] = left.trailing_zeros() as u8;
        left &= left - 1;
        len += 1;
    }
    &indices[..len]
}

/// Frames of a burst as a stage sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BurstView<'a> {
    pub(crate) headers: &'a [HeaderBytes],
    /// Longer header snapshots, or empty.
    pub(crate) snapshots: &'a [HeaderSnapshot],
    /// Indices in the burst; `None` for the whole burst.
    pub(crate) frames: Option<&'a [u8]>,
    /// Edit of the tags of all of them so far.
    pub(crate) edit: VlanEdit,
    /// Bit i: frame i must not be forwarded.
    pub(crate) skip: u64,
    /// The stage before sent them to other receivers too: a missing receiver here is no drop.
    pub(crate) flooded: bool,
}

impl<'a> BurstView<'a> {
    /// A whole burst, unedited.
    pub(crate) fn of(burst: &Burst<'a>) -> BurstView<'a> {
        let Burst { headers, snapshots, malformed, .. } = *burst;
        BurstView {
            headers,
            snapshots,
            frames: None,
            edit: VlanEdit::None,
            skip: malformed,
            flooded: false,
        }
    }

    /// Index of a frame in the burst.
    #[inline]
    pub(crate) fn frame(&self, index: u8) -> u8 {
        self.frames.map_or(index, |frames| frames[usize::from(index)])
    }
}

/// Memory for a view between NIC and switch, with the tags that are right there.
#[derive(Debug)]
pub(crate) struct ViewBuffer {
    headers: Box<[HeaderBytes; BURST]>,
    snapshots: Box<[HeaderSnapshot; BURST]>,
    frames: Box<[u8; BURST]>,
}

impl ViewBuffer {
    pub(crate) fn new() -> ViewBuffer {
        ViewBuffer {
            headers: Box::new([[0; 16]; BURST]),
            snapshots: Box::new([HeaderSnapshot::EMPTY; BURST]),
            frames: Box::new([0; BURST]),
        }
    }

    /// First frame of the last view, of a buffer that was used once.
    pub(crate) fn first(&self) -> HeaderSnapshot {
        match self.snapshots[0].len {
            0 => HeaderSnapshot::of_frame(&self.headers[0]),
            _ => self.snapshots[0],
        }
    }

    /// View of the frames `indices` after an edit. `None` if their headers are not known then: a
    /// tag is removed, and only 16 bytes were taken.
    pub(crate) fn view(
        &mut self,
        burst: &Burst<'_>,
        before: &BurstView<'_>,
        indices: &[u8],
        edit: VlanEdit,
    ) -> Option<BurstView<'_>> {
        let has_snapshots = !before.snapshots.is_empty();
        if edit == VlanEdit::Pop && !has_snapshots {
            return None;
        }
        for (place, index) in indices.iter().enumerate() {
            let at = usize::from(*index);
            let frame = before.frame(*index);
            self.frames[place] = frame;
            if has_snapshots {
                self.snapshots[place] = edited_snapshot(edit, &before.snapshots[at]);
                self.headers[place] = self.snapshots[place].header();
            } else {
                self.headers[place] = edited_header(edit, &before.headers[at]);
            }
        }
        debug_assert!(indices.iter().all(|index| before.frame(*index) < burst.frames.len() as u8));
        let len = indices.len();
        Some(BurstView {
            headers: &self.headers[..len],
            snapshots: if has_snapshots { &self.snapshots[..len] } else { &[] },
            frames: Some(&self.frames[..len]),
            edit: edit::combine(before.edit, edit)?,
            skip: 0,
            flooded: before.flooded,
        })
    }
}

/// First 16 bytes after an edit that removes no tag.
fn edited_header(edit: VlanEdit, header: &HeaderBytes) -> HeaderBytes {
    let mut after = *header;
    if let VlanEdit::Push(tag) | VlanEdit::Retag(tag) = edit {
        after[12..].copy_from_slice(&tag);
    }
    after
}

/// Header snapshot after an edit. A pushed tag cuts off the last bytes; a removed tag shortens the
/// snapshot.
fn edited_snapshot(edit: VlanEdit, snapshot: &HeaderSnapshot) -> HeaderSnapshot {
    let mut after = *snapshot;
    match edit {
        VlanEdit::None => {}
        VlanEdit::Retag(tag) => after.bytes[12..16].copy_from_slice(&tag),
        VlanEdit::Push(tag) => {
            after.bytes.copy_within(12..HeaderSnapshot::LEN - 4, 16);
            after.bytes[12..16].copy_from_slice(&tag);
            after.len = (snapshot.len + 4).min(HeaderSnapshot::LEN as u8);
        }
        VlanEdit::Pop => {
            after.bytes.copy_within(16.., 12);
            after.len = snapshot.len.saturating_sub(4);
        }
    }
    after
}
