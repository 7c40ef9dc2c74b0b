//! Moves in a document that a client sends: they are not its to begin, change or end.
//!
//! A document from before a move says nothing of it, and would have a guest's addresses at both
//! daemons, or at none.

use model::state::{Problem, Problems, State};
use serde_json::json;

use super::super::fault::Fault;
use super::super::manager::Manager;

impl Manager {
    /// The document with the moves in force, which it need not know.
    ///
    /// # Errors
    /// It says something else of them, or is without an adapter that is being moved.
    pub(in super::super) fn with_moves(&self, document: &State) -> Result<State, Fault> {
        let mut to = document.clone();
        let mut problems = Problems::default();
        for (at, adapter) in to.adapters.iter_mut().enumerate() {
            let moving = self.state().adapter(&adapter.name).and_then(|now| now.moving.clone());
            if adapter.moving.is_some() && adapter.moving != moving {
                let field = format!("adapter[{at}].move");
                let error = "is written by the steps of a move alone";
                let allowed = match &moving {
                    Some(moving) => format!("leave it out; {}", end(&moving.id, &adapter.name)),
                    None => "leave it out".to_owned(),
                };
                problems.push(Problem::new(field, json!(adapter.moving), error, allowed));
            }
            adapter.moving = moving;
        }
        problems.or(()).map_err(Fault::Wrong)?;
        for adapter in &self.state().adapters {
            let Some(moving) = &adapter.moving else { continue };
            if to.adapter(&adapter.name).is_none() {
                let name = &adapter.name;
                let error = format!("{name} is being moved by {}, and stays until then", moving.id);
                let allowed = end(&moving.id, name);
                let problem = Problem::new("adapter", name.as_str(), error, allowed);
                return Err(Fault::Impossible(problem.into()));
            }
        }
        Ok(to)
    }
}

/// How a move is ended by hand.
fn end(id: &str, name: &str) -> String {
    format!(
        "let its mover end it, or `shunt migrate {id} --abort` or `--finish` (steps of /v1/adapters/{name}/move)"
    )
}
