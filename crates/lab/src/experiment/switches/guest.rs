//! Kinds of guests: one file each, and a line in [`GuestType::ALL`].

mod lab;
mod qemu;
mod testpmd;

use super::launch::GuestKind;
use super::switch::SwitchType;

/// A guest, by its kind.
#[derive(Clone, Copy)]
pub struct GuestType(&'static GuestKind);

impl GuestType {
    /// All guests.
    pub const ALL: [GuestType; 3] =
        [GuestType(&testpmd::KIND), GuestType(&lab::KIND), GuestType(&qemu::KIND)];

    /// Returns `true` if it has ports for a switch.
    pub fn fits(self, switch: SwitchType) -> bool {
        switch.is_vhost_user() || self.0.on_interfaces.is_some()
    }

    pub(super) fn kind(self) -> &'static GuestKind {
        self.0
    }
}

super::kind::named!(GuestType, "guest");
