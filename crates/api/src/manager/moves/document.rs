//! Migrations in a client's document: a document cannot begin, change or end one.
//!
//! A document from before a migration does not contain it. Applied as it is, it would put a guest's
//! addresses at both daemons, or at none.

use model::state::{Problem, Problems, State};
use serde_json::json;

use super::super::Manager;
use crate::error::ApiError;

impl Manager {
    /// The document with the current migrations, which it need not contain.
    ///
    /// # Errors
    /// It contradicts them, or lacks an adapter that is migrating.
    pub(in crate::manager) fn with_moves(&self, document: &State) -> Result<State, ApiError> {
        let mut to = document.clone();
        let mut problems = Problems::default();
        for (at, adapter) in to.adapters.iter_mut().enumerate() {
            let moving = self.state().adapter(&adapter.name).and_then(|now| now.moving.clone());
            if adapter.moving.is_some() && adapter.moving != moving {
                let field = format!("adapter[{at}].move");
                let error = "is written only by the steps of a migration";
                let allowed = match &moving {
                    Some(moving) => format!("leave it out; {}", end(&moving.id, &adapter.name)),
                    None => "leave it out".to_owned(),
                };
                problems.push(Problem::new(field, json!(adapter.moving), error, allowed));
            }
            adapter.moving = moving;
        }
        let named = |problems: Problems| ApiError::Wrong(problems.named(&document.to_document()));
        problems.or(()).map_err(named)?;
        for adapter in &self.state().adapters {
            let Some(moving) = &adapter.moving else { continue };
            if to.adapter(&adapter.name).is_none() {
                let name = &adapter.name;
                let error = format!("{name} is migrating ({}), and stays until then", moving.id);
                let allowed = end(&moving.id, name);
                let problem = Problem::new("adapter", name.as_str(), error, allowed);
                return Err(ApiError::Impossible(problem.into()));
            }
        }
        Ok(to)
    }
}

/// Remedy: how to end a migration by hand.
fn end(id: &str, name: &str) -> String {
    format!(
        "end the migration, or use `shunt migrate {id} --abort` or `--finish` (steps of /v1/adapters/{name}/move)"
    )
}
