//! Guests' settings on top of the operator's document.

use std::collections::BTreeMap;

use model::state::State;
use serde::{Deserialize, Serialize};

use super::error::GuestError;
use super::grants::Subject;
use super::setting::{GuestVf, SettingsChange};

/// Guests' settings, by virtual PF and VF. Contains only differences from the operator's document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Overlay(BTreeMap<String, BTreeMap<u16, GuestVf>>);

/// Dropped settings of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub vpf: String,
    pub vf: u16,
    pub names: Vec<&'static str>,
}

impl Overlay {
    /// A guest's settings of a VF.
    pub(crate) fn of(&self, vpf: &str, vf: u16) -> Option<&GuestVf> {
        self.0.get(vpf)?.get(&vf)
    }

    /// Adds a guest's change.
    ///
    /// # Errors
    /// The operator does not grant it.
    pub(crate) fn with(
        &self,
        state: &State,
        vpf: &str,
        vf: u16,
        change: &SettingsChange,
    ) -> Result<Overlay, GuestError> {
        let found = state.vpf(vpf).ok_or_else(GuestError::taken)?;
        let subject = Subject::find(state, found, vf)?;
        subject.allows(change)?;
        let all = self.of(vpf, vf).cloned().unwrap_or_default().with(change, subject.adapter);
        Ok(self.replaced(vpf, vf, all))
    }

    /// Removes all guest settings of a VF.
    ///
    /// # Errors
    /// There is no such VF.
    pub(crate) fn without(&self, state: &State, vpf: &str, vf: u16) -> Result<Overlay, GuestError> {
        state
            .vpf(vpf)
            .ok_or_else(GuestError::taken)
            .and_then(|found| Subject::find(state, found, vf))?;
        Ok(self.replaced(vpf, vf, GuestVf::default()))
    }

    fn replaced(&self, vpf: &str, vf: u16, by: GuestVf) -> Overlay {
        let mut overlay = self.clone();
        let vfs = overlay.0.entry(vpf.to_owned()).or_default();
        match by.is_empty() {
            true => drop(vfs.remove(&vf)),
            false => drop(vfs.insert(vf, by)),
        }
        overlay.0.retain(|_, vfs| !vfs.is_empty());
        overlay
    }

    /// Keeps the settings that the operator's document still allows, and lists the dropped ones.
    /// `fits` tests a document as a whole: if settings exclude each other, the later VF loses its
    /// own.
    pub(crate) fn fitting(
        &self,
        state: &State,
        fits: impl Fn(&State) -> bool,
    ) -> (Overlay, Vec<Dropped>) {
        let mut left = Overlay::default();
        for (vpf, vf, guest) in self.all() {
            let subject = state.vpf(vpf).and_then(|found| Subject::find(state, found, vf).ok());
            let Some(subject) = subject else { continue };
            // Each setting separately: the loss of one right does not drop the others.
            let kept =
                each(guest.holding(subject.adapter)).filter(|one| subject.allows(one).is_ok());
            let kept = kept.fold(GuestVf::default(), |all, one| all.with(&one, subject.adapter));
            left = left.replaced(vpf, vf, kept);
        }
        if !left.is_empty() && !fits(&left.upon(state)) {
            let all = std::mem::take(&mut left);
            for (vpf, vf, guest) in all.all() {
                let more = left.replaced(vpf, vf, guest.clone());
                if fits(&more.upon(state)) {
                    left = more;
                }
            }
        }
        let dropped = self.lost(&left);
        (left, dropped)
    }

    /// The document in force: `state` with the overlay.
    pub(crate) fn upon(&self, state: &State) -> State {
        let mut state = state.clone();
        for (vpf, vf, guest) in self.all() {
            let found = state.vpf(vpf).and_then(|vpf| vpf.vfs.get(usize::from(vf)));
            let name = found.and_then(|vf| vf.adapter.clone());
            let adapter = state.adapters.iter_mut().find(|one| Some(&one.name) == name.as_ref());
            adapter.into_iter().for_each(|adapter| guest.put_upon(adapter));
        }
        state
    }

    /// `true` without any guest settings.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (&str, u16, &GuestVf)> {
        self.0
            .iter()
            .flat_map(|(vpf, vfs)| vfs.iter().map(move |(vf, guest)| (vpf.as_str(), *vf, guest)))
    }

    fn lost(&self, left: &Overlay) -> Vec<Dropped> {
        let lost = |(vpf, vf, guest): (&str, u16, &GuestVf)| {
            let kept = left.of(vpf, vf).map(GuestVf::names).unwrap_or_default();
            let names: Vec<_> =
                guest.names().into_iter().filter(|name| !kept.contains(name)).collect();
            (!names.is_empty()).then(|| Dropped { vpf: vpf.to_owned(), vf, names })
        };
        self.all().filter_map(lost).collect()
    }
}

/// Splits a change into changes of one setting each.
fn each(change: SettingsChange) -> impl Iterator<Item = SettingsChange> {
    let SettingsChange { mac, vlan, max_tx_mbps, min_tx_mbps, spoof_check, trust, link_state } =
        change;
    let none = SettingsChange::default;
    [
        SettingsChange { mac, ..none() },
        SettingsChange { vlan, ..none() },
        SettingsChange { max_tx_mbps, ..none() },
        SettingsChange { min_tx_mbps, ..none() },
        SettingsChange { spoof_check, ..none() },
        SettingsChange { trust, ..none() },
        SettingsChange { link_state, ..none() },
    ]
    .into_iter()
    .filter(|one| !one.is_empty())
}
