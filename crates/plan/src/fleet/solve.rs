//! Linear program.
//!
//! Variables: the number of chains of kind `c` on hosts of class `h` in layout `w`, and the number
//! of used hosts of class `h`. Constraints: the number of chains of each kind, and the resources of
//! the used hosts of each class. The objective rewards placed chains, and charges used hosts.

use std::time::Duration;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOutcome, Variable};
use model::state::Problems;

use super::file::wrong;
use super::{ChainKind, Demand, Demands, HostClass, SHARED, Shortage};

/// Time limit of the solver.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Reward for a placed chain, in used hosts.
const PLACED_REWARD: f64 = 1000.0;

/// Result of the linear program.
pub(super) struct LpBound {
    /// Placed chains.
    pub(super) placed: f64,
    /// Used hosts of each class.
    pub(super) used: Vec<f64>,
    /// Chains by kind, host class and layout.
    pub(super) wanted: Vec<Vec<[f64; 3]>>,
}

/// Variables by chain kind, host class and layout; `None` if the layout does not fit.
type Variables = Vec<Vec<[Option<Variable>; 3]>>;

fn variables(
    problem: &mut Problem,
    chains: &[ChainKind],
    demands: &Demands,
    worth: f64,
) -> Variables {
    let variables = |(chain, demands): (&ChainKind, &Vec<[Option<Demand>; 3]>)| {
        let most = f64::from(chain.count);
        let on = |layouts: &[Option<Demand>; 3]| {
            layouts.map(|layout| layout.map(|_| problem.add_var(worth, (0.0, most))))
        };
        demands.iter().map(on).collect()
    };
    chains.iter().zip(demands).map(variables).collect()
}

/// Use of a resource of a host class, as terms of a constraint.
fn taken(
    variables: &Variables,
    demands: &Demands,
    class: usize,
    resource: usize,
) -> Vec<(Variable, f64)> {
    let mut terms = Vec::new();
    for (on, demands) in variables.iter().zip(demands) {
        for (variable, demand) in on[class].iter().zip(&demands[class]) {
            if let (Some(variable), Some(demand)) = (variable, demand)
                && demand[resource] > 0.0
            {
                terms.push((*variable, demand[resource]));
            }
        }
    }
    terms
}

fn solve(mut problem: Problem) -> Result<Solution, Problems> {
    problem.set_time_limit(TIME_LIMIT);
    match problem.solve() {
        Ok(SolveOutcome::Solution(solution)) => Ok(solution),
        Ok(SolveOutcome::Interrupted(_)) => {
            let message = format!("is not solved after {} s", TIME_LIMIT.as_secs());
            Err(wrong("", message, "merge equal kinds with `count`"))
        }
        Err(error) => {
            let message = format!("has a linear program that could not be solved: {error}");
            Err(wrong("", message, "plan parts of the fleet separately"))
        }
    }
}

/// Limits the chains of each kind: at most their number, or exactly it.
fn counts(
    problem: &mut Problem,
    variables: &Variables,
    chains: &[ChainKind],
    relation: ComparisonOp,
) {
    for (on, chain) in variables.iter().zip(chains) {
        let all: Vec<_> = on.iter().flatten().flatten().map(|one| (*one, 1.0)).collect();
        problem.add_constraint(&all[..], relation, f64::from(chain.count));
    }
}

/// Most chains on the fewest hosts, with fractions.
pub(super) fn bound(
    classes: &[HostClass<'_>],
    chains: &[ChainKind],
    demands: &Demands,
) -> Result<LpBound, Problems> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let variables = variables(&mut problem, chains, demands, PLACED_REWARD);
    let each = |class: &HostClass<'_>| problem.add_var(-1.0, (0.0, f64::from(class.count)));
    let used: Vec<_> = classes.iter().map(each).collect();
    counts(&mut problem, &variables, chains, ComparisonOp::Le);
    for (class, used) in used.iter().enumerate() {
        for resource in 0..SHARED.len() {
            let mut terms = taken(&variables, demands, class, resource);
            if !terms.is_empty() {
                terms.push((*used, -1.0));
                problem.add_constraint(&terms[..], ComparisonOp::Le, 0.0);
            }
        }
    }
    let solution = solve(problem)?;
    let value = |variable: Option<Variable>| variable.map_or(0.0, |variable| solution[variable]);
    let on =
        |on: &Vec<[Option<Variable>; 3]>| on.iter().map(|layouts| layouts.map(value)).collect();
    let wanted: Vec<Vec<_>> = variables.iter().map(on).collect();
    Ok(LpBound {
        placed: wanted.iter().flatten().flatten().sum(),
        used: used.iter().map(|used| solution[*used]).collect(),
        wanted,
    })
}

/// Resources too small for all chains: places every chain, and minimizes the sum of the shares by
/// which resources are exceeded.
pub(super) fn missing(
    classes: &[HostClass<'_>],
    chains: &[ChainKind],
    demands: &Demands,
) -> Result<Vec<Shortage>, Problems> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let variables = variables(&mut problem, chains, demands, 0.0);
    let more: Vec<_> = SHARED.iter().map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect();
    counts(&mut problem, &variables, chains, ComparisonOp::Eq);
    for (at, class) in classes.iter().enumerate() {
        let count = f64::from(class.count);
        for (resource, more) in more.iter().enumerate() {
            let mut terms = taken(&variables, demands, at, resource);
            if !terms.is_empty() {
                terms.push((*more, -count));
                problem.add_constraint(&terms[..], ComparisonOp::Le, count);
            }
        }
    }
    let solution = solve(problem)?;
    let missing =
        SHARED.into_iter().zip(more).map(|(limit, more)| Shortage { limit, share: solution[more] });
    Ok(missing.filter(|missing| missing.share > 1e-6).collect())
}
