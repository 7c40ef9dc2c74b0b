//! Failover pairs of a guest that migrates.
//!
//! A VF does not migrate. A primary that has the adapter's frames is unplugged at the source, and
//! the guest migrates on the standby. At the target another primary is plugged, if one was named
//! and the daemon there has a VF for it. The order is Hyper-V's (`hyperv-2012`).

use std::path::Path;
use std::time::{Duration, Instant};

use api::Client;
use model::state::{Adapter, LinkState, PathInForce, Problem, Reason, WantedPath};
use serde_json::{Map, Value};

use super::error::MigrateError;
use super::failover::{FoundPair, PairSpec, attach_by, detach_by, find};
use super::migration::Migration;
use super::plan::PlannedAdapter;
use super::qemu::{POLL, Qemu};
use super::spec::MigrationSpec;

/// Those of these adapters whose guest has a standby and no primary, by the source's daemon and
/// QEMU.
pub(super) fn without_primary(
    source: &Client,
    qmp: &Path,
    names: &[String],
    qemu: &mut Qemu,
) -> Vec<String> {
    let is_alone = |name: &&String| {
        find(&pair_of(source, "source", qmp, name, Duration::ZERO), qemu)
            .is_ok_and(|pair| pair.status.primary.is_none())
    };
    names.iter().filter(is_alone).cloned().collect()
}

/// Pair of an adapter, in the plan.
#[derive(Debug, Default)]
pub(super) struct PlannedPair {
    /// The primary to unplug, as QEMU's device.
    primary: Option<Map<String, Value>>,
    /// A primary was named for the target.
    is_wanted: bool,
    /// The adapter names a VF of a card: its frames follow its path.
    by_path: bool,
}

impl PlannedPair {
    /// Finds the pair at the source. Of an adapter without one, that should have a primary at the
    /// target, the problems are `obstacles`.
    ///
    /// # Errors
    /// Daemon or QEMU does not answer.
    pub(super) fn find(
        spec: &MigrationSpec,
        adapter: &Adapter,
        qemu: &mut Qemu,
        obstacles: &mut Vec<Problem>,
    ) -> Result<PlannedPair, MigrateError> {
        let is_wanted = spec.target_primaries.contains_key(&adapter.name);
        match find(&pair_at_source(spec, &adapter.name), qemu) {
            Ok(FoundPair { primary, by_path, .. }) => {
                Ok(PlannedPair { primary, is_wanted, by_path })
            }
            Err(MigrateError::Refused(no_pair)) => {
                obstacles.extend(no_pair.problems.into_iter().filter(|_| is_wanted));
                Ok(PlannedPair::default())
            }
            Err(failed) => Err(failed),
        }
    }

    /// Adapter to ask the target for: if it is to have a primary, its path at the end.
    pub(super) fn asked(&self, adapter: &mut Adapter) {
        match (self.by_path, self.is_wanted) {
            (true, true) => adapter.path = WantedPath::Vf,
            _ => self.created(adapter),
        }
    }

    /// Adapter to create at the target, whose frames go to the standby.
    pub(super) fn created(&self, adapter: &mut Adapter) {
        match (self.by_path, &self.primary) {
            (true, _) if self.primary.is_some() || self.is_wanted => {
                adapter.path = WantedPath::Synthetic;
            }
            (false, Some(_)) => adapter.settings.link_state = LinkState::Auto,
            _ => {}
        }
    }

    /// Completes the plan of an adapter, for which the target has given a path.
    pub(super) fn plan(self, planned: &mut PlannedAdapter) {
        if self.primary.is_some() {
            planned.from = PathInForce::Vf;
        }
        planned.primary = self.primary;
        let has_vf = !self.by_path || planned.to == PathInForce::Vf;
        planned.plugs = self.is_wanted && has_vf;
        match (self.is_wanted, planned.plugs) {
            (true, true) => (planned.to, planned.reason) = (PathInForce::Vf, Reason::Supported),
            (true, false) => planned.to = PathInForce::Synthetic,
            (false, _) => {}
        }
    }
}

fn pair_of(
    daemon: &Client,
    site: &'static str,
    qmp: &Path,
    adapter: &str,
    timeout: Duration,
) -> PairSpec {
    PairSpec {
        adapter: adapter.to_owned(),
        daemon: daemon.clone(),
        site,
        qmp: qmp.to_owned(),
        timeout,
        dry_run: false,
        interrupted: Default::default(),
    }
}

fn pair_at_source(spec: &MigrationSpec, adapter: &str) -> PairSpec {
    pair_of(&spec.source, "source", &spec.source_qmp, adapter, spec.primary_timeout)
}

impl Migration<'_> {
    /// Unplugs the primaries at the source, one adapter after the other.
    ///
    /// # Errors
    /// The guest does not release one.
    pub(super) fn detach_primaries(&mut self) -> Result<(), MigrateError> {
        for (name, primary) in self.primaries() {
            let spec = pair_at_source(self.spec, &name);
            let Migration { report, on_step, qemu, .. } = self;
            // Undone even if it fails halfway.
            self.state.detached.push((name.clone(), primary));
            detach_by(&spec, qemu, &mut report.recording(*on_step))?;
            self.note_path(&name, "source", PathInForce::Synthetic);
            self.renew()?;
        }
        Ok(())
    }

    fn primaries(&self) -> Vec<(String, Map<String, Value>)> {
        let adapters = self.report.plan.adapters.iter();
        adapters.filter_map(|one| Some((one.name.clone(), one.primary.clone()?))).collect()
    }

    /// Plugs the primaries at the source again; returns the failures.
    pub(super) fn restore_primaries(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for (name, primary) in std::mem::take(&mut self.state.detached) {
            let spec = pair_at_source(self.spec, &name);
            let found = find(&spec, &mut self.qemu);
            if found.is_ok_and(|pair| pair.primary.is_some() && pair.status.in_use) {
                continue; // the guest has not released it
            }
            self.wait_until_connected(&name);
            match attach_by(&spec, &mut self.qemu, &primary, &mut |_| ()) {
                Ok(_) => self.note_path(&name, "source", PathInForce::Vf),
                Err(failed) => failures.push(format!("{name} has no primary: {failed}")),
            }
        }
        failures
    }

    /// Waits until the rings of a guest that was resumed run.
    fn wait_until_connected(&self, name: &str) {
        let begun = Instant::now();
        while begun.elapsed() < self.spec.primary_timeout
            && self.source.status(name).is_ok_and(|status| !status.connected)
        {
            std::thread::sleep(POLL);
        }
    }

    /// Plugs the primaries at the target; returns the failures. Without one the guest has the
    /// standby.
    pub(super) fn attach_primaries(&mut self) -> Vec<MigrateError> {
        let adapters = self.report.plan.adapters.iter();
        let names: Vec<String> =
            adapters.filter(|one| one.plugs).map(|one| one.name.clone()).collect();
        let mut failures = Vec::new();
        for name in names {
            let MigrationSpec { target, target_qmp, primary_timeout, .. } = self.spec;
            let spec = pair_of(target, "target", target_qmp, &name, *primary_timeout);
            let Migration { report, on_step, target_qemu, .. } = self;
            let attached = match target_qemu {
                Some(qemu) => attach_by(
                    &spec,
                    qemu,
                    &self.spec.target_primaries[&name],
                    &mut report.recording(*on_step),
                )
                .map(drop),
                None => Err(MigrateError::new("the target's QEMU does not answer")),
            };
            match attached {
                Ok(()) => self.note_path(&name, "target", PathInForce::Vf),
                Err(failed) => {
                    let has = format!("{name} has no primary at the target: {failed}");
                    failures.push(MigrateError::new(has));
                    let planned = self.report.plan.adapters.iter_mut();
                    planned
                        .filter(|one| one.name == name)
                        .for_each(|one| one.to = PathInForce::Synthetic);
                }
            }
        }
        failures
    }
}
