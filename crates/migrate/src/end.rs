//! A move whose mover is gone, or could not tell how it ended: it is ended by hand, one way or the
//! other.
//!
//! QEMU says where the guest is: a mover that was killed leaves it standing in `pre-switchover`,
//! for QEMU waits for a word without end. Both daemons say which adapters are of the move. A QMP
//! socket serves one client, so a mover that lives keeps everybody else out of its own move.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use api::Client;
use host::qmp::QmpError;
use model::state::{MoveStep, Phase, State};
use serde::{Deserialize, Serialize};

use super::carry::{self, Carried};
use super::roll_back::{resume, settled};
use super::site::{Site, both};
use super::vmm::{self, Vmm, Whereabouts};
use super::{Done, Failed, functions, is_of};

/// Which move is to be ended.
#[derive(Debug)]
pub struct Ending {
    /// The guest, or the move's name.
    pub name: String,
    /// The daemon that the guest was to leave.
    pub source: Client,
    /// The daemon that it was to go to.
    pub target: Client,
    /// QMP of the QEMU that it was to leave.
    pub source_qmp: PathBuf,
    /// QMP of the QEMU that it was to go to, if that is needed.
    pub target_qmp: Option<PathBuf>,
    /// For [`abort`]: also when the guest may have run at the target. It is ended there.
    pub go_back: bool,
    /// The guest's agent where the guest then is, to give it VFs back that it took away for the
    /// move.
    pub guest_agent: Option<PathBuf>,
    /// For [`finish`]: whether the source's QEMU is left, with a guest that stands still.
    pub keep_source: bool,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The move, if a daemon still knew of it.
    pub id: Option<String>,
    /// The steps, in their order.
    pub steps: Vec<Done>,
    /// What could not be done; none if all is well.
    pub error: Option<String>,
    /// Frames that waited at the source and went to the target.
    pub carried: u64,
}

/// A move as it was found.
struct Found {
    id: Option<String>,
    /// Its adapters at the source, and how far each is.
    at_source: Vec<(String, Phase)>,
    /// And at the target; none if that does not answer.
    at_target: Option<Vec<(String, Phase)>>,
    /// The QEMU of the source, unless it has ended, and what the migration is there.
    vmm: Option<(Vmm, String)>,
    guest: Whereabouts,
    /// Whether QEMU has nothing to give up.
    is_over: bool,
}

/// Ends a move with the guest at the source.
///
/// # Errors
/// The guest may be at the target, the mover still lives, or there is more than one such move:
/// nothing was touched.
pub fn abort(ending: &Ending, tell: &mut dyn FnMut(&Done)) -> Result<Ended, Failed> {
    let begun = Instant::now();
    let found = find(ending)?;
    if found.guest != Whereabouts::Source {
        end_the_targets(ending, &found)?;
    }
    let id = found.id.clone().unwrap_or_default();
    let (source, target) = both(&ending.source, &ending.target, &id);
    let names = |all: &[(String, Phase)]| all.iter().map(|(name, _)| name.clone()).collect();
    let leaving: Vec<String> = names(&found.at_source);
    // One that does not answer may have each of them.
    let prepared = found.at_target.as_deref().map_or(leaving.clone(), names);
    let mut troubles = Vec::new();
    carry::back(&source, &target, &prepared, &leaving, &mut troubles);
    let status = found.vmm.map(|(mut vmm, _)| {
        let resumed = match found.is_over && !ending.go_back {
            true => vmm.restore().map_err(|error| Failed::from(error).to_string()),
            false => resume(&mut vmm),
        };
        troubles.extend(resumed.err());
        vmm.status().unwrap_or_else(|_| "silent".to_owned())
    });
    let status =
        status.map_or("there is no QEMU".into(), |status| format!("the guest is {status}"));
    let text = format!("{} at the source; {}", status, of_adapters(&leaving, &prepared));
    Ok(ended(found.id, begun, ("abort", text), troubles, tell))
}

/// Ends a move with the guest at the target.
///
/// # Errors
/// The guest is not known to be at the target, the mover still lives, or there is no such move:
/// nothing was touched.
pub fn finish(ending: &Ending, tell: &mut dyn FnMut(&Done)) -> Result<Ended, Failed> {
    let begun = Instant::now();
    let found = find(ending)?;
    let Some(id) = found.id.clone() else {
        let text =
            format!("neither daemon knows of a move {}; there is nothing to finish", ending.name);
        return Err(Failed::mistake(text));
    };
    let Some(at_target) = &found.at_target else {
        return Err(Failed::new("the target daemon does not answer; start it first"));
    };
    let (source, target) = both(&ending.source, &ending.target, &id);
    must_be_there(&found, &target)?;
    let mut carried = Carried::default();
    let mut troubles = Vec::new();
    for (name, phase) in at_target {
        let mut take = || {
            if *phase == Phase::Arriving {
                target.step(name, MoveStep::TakeOver)?;
            }
            if found.at_source.iter().any(|(one, _)| one == name) {
                carried.over(&source, &target, name)?;
            }
            target.step(name, MoveStep::Finish).map(drop)
        };
        troubles.extend(take().err().map(|failed| failed.to_string()));
    }
    if let Some((mut vmm, _)) = found.vmm
        && !ending.keep_source
        && vmm.quit().is_err()
    {
        troubles.push("the source's QEMU is still there; end it".to_owned());
    }
    for (name, phase) in &found.at_source {
        let leave = || {
            // One that is not there would be nowhere.
            target.status(name)?;
            if *phase == Phase::Leaving {
                source.step(name, MoveStep::HandOver)?;
            }
            source.step(name, MoveStep::Finish).map(drop)
        };
        troubles.extend(leave().err().map(|failed| failed.to_string()));
    }
    troubles.extend(with_vfs(ending));
    let names: Vec<String> = found.at_source.iter().map(|(name, _)| name.clone()).collect();
    let text = format!(
        "the guest is at the target, {} frames carried over; gone from the source: {}",
        carried.frames,
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    );
    let done = ended(found.id, begun, ("finish", text), troubles, tell);
    Ok(Ended { carried: carried.frames, ..done })
}

fn ended(
    id: Option<String>,
    begun: Instant,
    (step, text): (&str, String),
    troubles: Vec<String>,
    tell: &mut dyn FnMut(&Done),
) -> Ended {
    let done = Done { step: step.to_owned(), text, ms: begun.elapsed().as_millis() as u64 };
    tell(&done);
    let error = (!troubles.is_empty()).then(|| troubles.join("; "));
    Ended { id, steps: vec![done], error, carried: 0 }
}

/// Gives the guest its VFs back, if it is known how to ask it.
fn with_vfs(ending: &Ending) -> Option<String> {
    let agent = ending.guest_agent.as_deref()?;
    functions::give(agent).err().map(|failed| failed.to_string())
}

fn of_adapters(leaving: &[String], prepared: &[String]) -> String {
    let all: BTreeSet<&str> = leaving.iter().chain(prepared).map(String::as_str).collect();
    match all.is_empty() {
        true => "no daemon had an adapter of the move any more".to_owned(),
        false => format!("taken back: {}", Vec::from_iter(all).join(", ")),
    }
}

/// Looks at both daemons and at the source's QEMU.
fn find(ending: &Ending) -> Result<Found, Failed> {
    let (source, target) = both(&ending.source, &ending.target, "");
    let (here, there) = (source.state()?, target.state().ok());
    let states = [Some(&here), there.as_ref()];
    let moving = states.into_iter().flatten().flat_map(|state| &state.adapters);
    let ids = moving.filter_map(|adapter| Some(adapter.moving.as_ref()?.id.clone()));
    let ids: BTreeSet<String> =
        ids.filter(|id| *id == ending.name || is_of(id, &ending.name)).collect();
    if ids.len() > 1 {
        let ids = Vec::from_iter(ids).join(", ");
        let text = format!("there are several moves of {}: {ids}; name one of them", ending.name);
        return Err(Failed::mistake(text));
    }
    let id = ids.into_iter().next();
    let of = |state: &State| -> Vec<(String, Phase)> {
        let mine = |one: &model::state::Adapter| {
            let moving = one.moving.as_ref().filter(|moving| Some(&moving.id) == id.as_ref())?;
            Some((one.name.clone(), moving.phase))
        };
        state.adapters.iter().filter_map(mine).collect()
    };
    let mut found = Found {
        at_source: of(&here),
        at_target: there.as_ref().map(of),
        vmm: None,
        guest: Whereabouts::Open,
        is_over: true,
        id,
    };
    match Vmm::connect(&ending.source_qmp) {
        Ok(vmm) => look(ending, &mut found, vmm)?,
        Err(error) if error.is_absence() => {}
        Err(error @ QmpError::Late { .. }) => {
            let error = Failed::from(error);
            return Err(Failed::new(format!(
                "{error}; if that is the mover, interrupt it instead"
            )));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(found)
}

/// Where the guest is, as the QEMU says that it was to leave.
fn look(ending: &Ending, found: &mut Found, mut vmm: Vmm) -> Result<(), Failed> {
    let name = vmm.name()?;
    let is_its = name == ending.name || is_of(&ending.name, &name);
    if found.id.as_ref() != Some(&ending.name) && !name.is_empty() && !is_its {
        return Err(Failed::mistake(format!(
            "the guest behind the source's QMP socket is called {name}, not {}; name the right one",
            ending.name
        )));
    }
    let progress = settled(&mut vmm)?;
    let status = vmm.status()?;
    found.guest = match (status.as_str(), progress.guest()) {
        ("running", _) => Whereabouts::Source,
        // It may be its own arrival here that has completed.
        (status, Whereabouts::Target) if status != "postmigrate" => Whereabouts::Open,
        (_, guest) => guest,
    };
    found.is_over = progress.is_over();
    found.vmm = Some((vmm, progress.status));
    Ok(())
}

/// What QEMU at the source says, for a refusal.
fn said(found: &Found) -> String {
    match &found.vmm {
        Some((_, migration)) => format!("the migration is {migration} at the source's QEMU"),
        None => "the source's QEMU has ended".to_owned(),
    }
}

/// The guest may be at the target: it is ended there if that is wanted, and then it certainly is
/// not.
fn end_the_targets(ending: &Ending, found: &Found) -> Result<(), Failed> {
    let said = said(found);
    if !ending.go_back {
        return Err(Failed::mistake(format!(
            "{said}, and the guest may be at the target: end the move with --finish. Only if it is to be given up there, \
             --go-back with --to-qmp ends it there, and runs it again from where it stopped at the source: what it wrote \
             to its disks since damages them then"
        )));
    }
    let Some(path) = &ending.target_qmp else {
        return Err(Failed::mistake("--go-back needs --to-qmp, to end the guest at the target"));
    };
    vmm::end(path)
}

/// The guest is certainly at the target: QEMU says so, or it has ended and the guest's rings run
/// there.
fn must_be_there(found: &Found, target: &Site<'_>) -> Result<(), Failed> {
    let said = said(found);
    match (found.guest, &found.vmm) {
        (Whereabouts::Target, _) => Ok(()),
        (Whereabouts::Source, _) => Err(Failed::mistake(format!(
            "{said}: the guest is at the source; end the move with --abort"
        ))),
        (Whereabouts::Open, Some(_)) => Err(Failed::mistake(format!(
            "{said}, so it is not known where the guest is; see whether it runs at the target, and end the source's QEMU then"
        ))),
        (Whereabouts::Open, None) => {
            // All that a daemon still knows of; those that are ordinary ones by now are so because
            // they run.
            let waiting = found.at_target.iter().flatten();
            let mut silent = waiting
                .filter(|(name, _)| target.status(name).map_or(true, |status| !status.connected));
            match silent.next() {
                None => Ok(()),
                Some((name, _)) => Err(Failed::mistake(format!(
                    "{said}, and the rings of {name} do not run at the target either; start the guest there first, or give \
                     the move up with --abort --go-back"
                ))),
            }
        }
    }
}
