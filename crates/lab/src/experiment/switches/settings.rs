//! Settings of a comparison of switches.

use std::path::Path;

use anyhow::{Result, bail};
use model::state::{Problem, Problems, Remedy};
use serde::Serialize;

use super::guest::GuestType;
use super::launch::Rings;
use super::switch::SwitchType;

/// Settings of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchesSettings {
    /// Switches; the others are compared with the first.
    pub switches: Vec<SwitchType>,
    /// Guest of each switch.
    pub guest: GuestType,
    /// Rings, measured one after the other.
    pub rings: Vec<Rings>,
    /// Frame sizes with FCS, bytes.
    pub sizes: Vec<u32>,
    /// Pairs of each size, over all rounds.
    pub pairs: usize,
    /// Rounds with fresh processes.
    pub rounds: usize,
    /// Seconds of a slot.
    pub slot_s: f64,
    /// Seconds from a switch's resumption to its slot.
    pub settle_s: f64,
    /// Bursts of 32 frames in flight from each port.
    pub bursts: u64,
    /// CPU of the switches' polling threads.
    pub switch_cpu: usize,
    /// CPU of the guests.
    pub guest_cpu: usize,
    /// Time-stamp cycles that the bare loop spins for each frame.
    pub delay_cycles: u64,
    /// Guests, Open vSwitch and testpmd use pages of 2 MiB.
    pub hugepages: bool,
}

impl SwitchesSettings {
    /// Bursts in flight from each port of a switch: the setting, at most the switch's limit.
    pub fn bursts_of(&self, switch: SwitchType) -> u64 {
        self.bursts.min(switch.kind().bursts_max)
    }

    pub(super) fn hugepages_needed(&self) -> u64 {
        let pages = |switch: &SwitchType| self.guest.kind().hugepages + switch.kind().hugepages;
        if self.hugepages { self.switches.iter().map(pages).sum() } else { 0 }
    }

    /// Fails if a switch does not support the settings.
    ///
    /// # Errors
    /// The guest, and the supported values.
    pub fn check(&self) -> Result<(), Problems> {
        let guest = self.guest;
        if let Some(switch) = self.switches.iter().find(|switch| !guest.fits(**switch)) {
            let message = format!("has no ports for switch {switch}");
            let allowed = GuestType::names(|guest| guest.fits(*switch));
            let remedy = format!(
                "write one of {allowed}, or leave {guest} and choose from --switch {}",
                SwitchType::names(|switch| guest.fits(switch)),
            );
            let remedy = Remedy::choose(remedy, allowed);
            return Err(Problem::new("--guest", guest.to_string(), message, remedy).into());
        }
        Ok(())
    }

    /// Fails if a program is not installed.
    pub(super) fn check_installed(&self, program: &Path) -> Result<()> {
        if let Some(missing) = (self.guest.kind().missing)(program) {
            bail!(missing);
        }
        if let Some(missing) = self.switches.iter().find(|switch| !switch.is_installed()) {
            bail!("switch {missing} is not installed; run tests/e2e/setup --peers");
        }
        Ok(())
    }

    /// Passes of a size in a round; forward and backward count as one each.
    pub(super) fn passes(&self) -> usize {
        self.pairs.div_ceil(self.rounds).next_multiple_of(2)
    }
}
