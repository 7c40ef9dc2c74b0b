//! Switchdev mode: entering and leaving, with VFs and without, and names of representors.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::context::{A, B, TestContext, W};
use crate::subject::{AdapterLocation, ManagerRequest, ManagerStop, NicSetup, WIRE};

/// Time limit for a link to follow its representor.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);

/// Representors in force, as (function, name).
fn names(t: &mut TestContext<'_>) -> Result<Vec<(String, String)>> {
    let nics = t.subject.in_force()?.actual.nics;
    let all = nics.into_iter().flat_map(|nic| nic.representors);
    Ok(all.map(|it| (it.of.to_string(), it.name)).collect())
}

/// Attaches the host to these representors, and waits until their links are up.
fn bring_up(t: &mut TestContext<'_>, representors: &[&str]) -> Result<()> {
    representors.iter().try_for_each(|name| t.subject.attach(name))?;
    let patience = Instant::now() + LINK_TIMEOUT;
    loop {
        let nics = t.subject.in_force()?.actual.nics;
        let up: Vec<String> = nics
            .into_iter()
            .flat_map(|nic| nic.representors)
            .filter(|it| it.up)
            .map(|it| it.name)
            .collect();
        if representors.iter().all(|name| up.iter().any(|up| up == name)) {
            return Ok(());
        }
        ensure!(Instant::now() < patience, "only {up:?} of {representors:?} are up");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that frames of guests `a` and `b` reach their representors, and frames sent there reach
/// the guests.
fn pipes(t: &mut TestContext<'_>) -> Result<()> {
    for (guest, own, other, representor) in [("a", A, B, "pf0vf0"), ("b", B, A, "pf0vf1")] {
        t.reaches((guest, own), (representor, other))?;
        t.reaches((representor, other), (guest, own))?;
    }
    Ok(())
}

pub(super) fn back_to_legacy(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    for _ in 0..2 {
        t.talk(("a", A), ("b", B))?;
        t.must(&ManagerRequest::Switchdev(true))?;
        bring_up(t, &["pf0vf0", "pf0vf1"])?;
        pipes(t)?;
        t.must(&ManagerRequest::Switchdev(false))?;
        ensure!(names(t)?.is_empty(), "representors in legacy mode: {:?}", names(t)?);
    }
    t.talk(("a", A), ("b", B))?;
    t.talk(("a", A), (WIRE, W))?;
    Ok("switchdev and back twice, while guests stayed attached".to_owned())
}

pub(super) fn vfs_present(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.must(&ManagerRequest::Switchdev(true))?; // with VFs, and guests on them
    bring_up(t, &["pf0vf0", "pf0vf1"])?;
    pipes(t)?;
    t.begin(&NicSetup { num_vfs: 0, ..NicSetup::vfs(4) })?;
    t.must(&ManagerRequest::Switchdev(true))?;
    let none = names(t)?;
    ensure!(none.len() == 1, "representors without VFs: {none:?}");
    t.must(&ManagerRequest::NumVfs(4))?;
    let all = names(t)?;
    ensure!(all.len() == 5, "representors with 4 VFs: {all:?}");
    t.guest_on("a", AdapterLocation::Vf(0), A, json!({}))?;
    t.guest_on("b", AdapterLocation::Vf(1), B, json!({}))?;
    bring_up(t, &["pf0vf0", "pf0vf1"])?;
    pipes(t)?;
    Ok("with 4 VFs, and with VFs added later".to_owned())
}

pub(super) fn names_last(t: &mut TestContext<'_>) -> Result<String> {
    t.pair()?;
    t.must(&ManagerRequest::Switchdev(true))?;
    let before = names(t)?;
    for (of, name) in &before {
        let number = of.strip_prefix("vf");
        let expected = number.map_or("p0".to_owned(), |number| format!("pf0vf{number}"));
        ensure!(*name == expected, "the representor of {of} has the name {name}");
    }
    for how in [ManagerStop::Graceful, ManagerStop::Killed] {
        t.restart(how, &["a", "b"])?;
        let after = names(t)?;
        ensure!(before == after, "representors changed from {before:?} to {after:?} ({how:?})");
        bring_up(t, &["pf0vf0", "pf0vf1"])?;
        pipes(t)?;
    }
    Ok(format!("{} representors kept their names after each restart", before.len()))
}
