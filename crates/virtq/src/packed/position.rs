//! Position in a packed ring: descriptor index and wrap counter (section 2.8.1).

use crate::start::Position;

/// The index in bits 0 to 14, the wrap counter in bit 15, as in the event areas and in vhost-user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedPosition(pub(crate) u16);

impl PackedPosition {
    const WRAP: u16 = 1 << 15;
    /// "Each of the driver and the device maintains ... a single-bit ring wrap counter initialized
    /// to 1" (section 2.8.1).
    pub(crate) const FIRST: PackedPosition = PackedPosition(PackedPosition::WRAP);

    #[inline(always)]
    pub(crate) fn index(self) -> u16 {
        self.0 & !PackedPosition::WRAP
    }

    #[inline(always)]
    pub(crate) fn wrap(self) -> bool {
        self.0 & PackedPosition::WRAP != 0
    }

    /// `n` descriptors further, at most `size`; its own index is below `size`.
    #[inline(always)]
    pub(crate) fn advance(self, n: u16, size: u16) -> PackedPosition {
        let next = u32::from(self.index()) + u32::from(n);
        match next < u32::from(size) {
            true => PackedPosition(self.0 + n),
            false => {
                PackedPosition((next - u32::from(size)) as u16 | !self.0 & PackedPosition::WRAP)
            }
        }
    }

    /// Descriptors from `self` to `to`, which is at most a ring ahead.
    #[inline(always)]
    pub(crate) fn distance(self, to: PackedPosition, size: u16) -> u16 {
        match self.wrap() == to.wrap() {
            true => to.index().wrapping_sub(self.index()),
            false => (size - self.index()).wrapping_add(to.index()),
        }
    }

    /// Start of a ring of `size` for the front-end's `base`: the next descriptor to use, since
    /// those taken and not used are taken again. DPDK's front-end and back-end give the lower half
    /// only. `None` if it is outside the ring.
    pub(crate) fn of(base: Position, size: u16) -> Option<PackedPosition> {
        let (avail, used) = (PackedPosition(base as u16), PackedPosition((base >> 16) as u16));
        let place = if used.0 == 0 { avail } else { used };
        (place.index() < size).then_some(place)
    }

    /// Both halves of a position.
    pub(crate) fn position(self) -> Position {
        Position::from(self.0) | Position::from(self.0) << 16
    }
}
