//! Switchdev mode: there and back, with VFs and without, and what representors are called.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::subject::{Change, End, Home, Setup, WIRE};
use crate::trial::{A, B, Trial, W};

/// A link follows its representor this soon.
const FOLLOWS: Duration = Duration::from_secs(5);

/// The representors in force: of which function, by which name.
fn names(t: &mut Trial<'_>) -> Result<Vec<(String, String)>> {
    let nics = t.subject.in_force()?.actual.nics;
    let all = nics.into_iter().flat_map(|nic| nic.representors);
    Ok(all.map(|it| (it.of.to_string(), it.name)).collect())
}

/// Attaches the host to these representors, and waits until their links are up.
fn bring_up(t: &mut Trial<'_>, representors: &[&str]) -> Result<()> {
    representors.iter().try_for_each(|name| t.subject.attach(name))?;
    let patience = Instant::now() + FOLLOWS;
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
        ensure!(Instant::now() < patience, "of {representors:?} only {up:?} are up");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What guests `a` and `b` send comes out at their representors, and what is sent there at them.
fn pipes(t: &mut Trial<'_>) -> Result<()> {
    for (guest, own, other, representor) in [("a", A, B, "pf0vf0"), ("b", B, A, "pf0vf1")] {
        t.reaches((guest, own), (representor, other))?;
        t.reaches((representor, other), (guest, own))?;
    }
    Ok(())
}

pub(super) fn back_to_legacy(t: &mut Trial<'_>) -> Result<String> {
    t.pair()?;
    for _ in 0..2 {
        t.talk(("a", A), ("b", B))?;
        t.must(&Change::Switchdev(true))?;
        bring_up(t, &["pf0vf0", "pf0vf1"])?;
        pipes(t)?;
        t.must(&Change::Switchdev(false))?;
        ensure!(names(t)?.is_empty(), "in legacy mode there are the representors {:?}", names(t)?);
    }
    t.talk(("a", A), ("b", B))?;
    t.talk(("a", A), (WIRE, W))?;
    Ok("twice there and back, under guests that stayed attached".to_owned())
}

pub(super) fn vfs_present(t: &mut Trial<'_>) -> Result<String> {
    t.pair()?;
    t.must(&Change::Switchdev(true))?; // with VFs, and guests on them
    bring_up(t, &["pf0vf0", "pf0vf1"])?;
    pipes(t)?;
    t.begin(&Setup { num_vfs: 0, ..Setup::vfs(4) })?;
    t.must(&Change::Switchdev(true))?;
    let none = names(t)?;
    ensure!(none.len() == 1, "without VFs there are the representors {none:?}");
    t.must(&Change::NumVfs(4))?;
    let all = names(t)?;
    ensure!(all.len() == 5, "with 4 VFs there are the representors {all:?}");
    t.guest_on("a", Home::Vf(0), A, json!({}))?;
    t.guest_on("b", Home::Vf(1), B, json!({}))?;
    bring_up(t, &["pf0vf0", "pf0vf1"])?;
    pipes(t)?;
    Ok("with 4 VFs and with none, which had representors once they came".to_owned())
}

pub(super) fn names_last(t: &mut Trial<'_>) -> Result<String> {
    t.pair()?;
    t.must(&Change::Switchdev(true))?;
    let before = names(t)?;
    for (of, name) in &before {
        let number = of.strip_prefix("vf");
        let expected = number.map_or("p0".to_owned(), |number| format!("pf0vf{number}"));
        ensure!(*name == expected, "the representor of {of} is called {name}");
    }
    for how in [End::Asked, End::Killed] {
        t.restart(how, &["a", "b"])?;
        let after = names(t)?;
        ensure!(before == after, "representors were {before:?} and are {after:?} ({how:?})");
        bring_up(t, &["pf0vf0", "pf0vf1"])?;
        pipes(t)?;
    }
    Ok(format!("{} representors had their names after each restart", before.len()))
}
