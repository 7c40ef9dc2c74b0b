//! When a side must be notified, in the words of the specification (sections 2.7.7 and 2.7.10).

/// What one side asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    Always,
    Never,
    /// When this index is passed.
    At(u16),
}

impl Wish {
    pub(super) fn armed(event_idx: bool, at: u16) -> Wish {
        if event_idx { Wish::At(at) } else { Wish::Always }
    }

    pub(super) fn disarmed(event_idx: bool, at: u16) -> Wish {
        if event_idx { Wish::At(at.wrapping_add(0x8000)) } else { Wish::Never }
    }

    /// Whether the entries of `old..new` oblige to notify.
    pub(super) fn wants(self, old: u16, new: u16) -> bool {
        match self {
            Wish::Always => old != new,
            Wish::Never => false,
            Wish::At(event) => (0..new.wrapping_sub(old)).any(|i| old.wrapping_add(i) == event),
        }
    }
}
