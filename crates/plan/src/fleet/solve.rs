//! The linear program.
//!
//! Variables: how many chains of kind `c` are on hosts of kind `h` on way `w`, and how many hosts of kind `h` are used. Of each chain
//! there are no more than there are; of each resource of a kind of hosts no more is taken than the used ones have. Placed chains count
//! most, used hosts against it.

use std::time::Duration;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOutcome, Variable};

use super::place::Wanted;
use super::{Fleet, FleetError, Missing, Need, SHARED};

/// How long the solver may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a chain that is placed is worth, in hosts that are not used.
const WORTH: f64 = 1000.0;

/// What the program says.
pub(super) struct Bound {
    pub(super) placed: f64,
    pub(super) hosts: f64,
    pub(super) wanted: Wanted,
}

type Needs = [Vec<[Option<Need>; 3]>];

/// Chains on hosts on ways, as variables; none where they cannot go.
type Variables = Vec<Vec<[Option<Variable>; 3]>>;

fn chains(problem: &mut Problem, fleet: &Fleet, needs: &Needs, worth: f64) -> Variables {
    let variables = |chain: usize| {
        let most = f64::from(fleet.chains[chain].count);
        let on = |ways: &[Option<Need>; 3]| {
            ways.map(|way| way.map(|_| problem.add_var(worth, (0.0, most))))
        };
        needs[chain].iter().map(on).collect()
    };
    (0..fleet.chains.len()).map(variables).collect()
}

/// What is taken of a resource of a kind of hosts, as terms.
fn taken(
    variables: &Variables,
    needs: &Needs,
    host: usize,
    resource: usize,
) -> Vec<(Variable, f64)> {
    let mut terms = Vec::new();
    for (on, needs) in variables.iter().zip(needs) {
        for (variable, need) in on[host].iter().zip(&needs[host]) {
            if let (Some(variable), Some(need)) = (variable, need)
                && need[resource] > 0.0
            {
                terms.push((*variable, need[resource]));
            }
        }
    }
    terms
}

fn solve(mut problem: Problem) -> Result<Solution, FleetError> {
    problem.set_time_limit(PATIENCE);
    match problem.solve() {
        Ok(SolveOutcome::Solution(solution)) => Ok(solution),
        Ok(SolveOutcome::Interrupted(_)) => {
            let text = format!(
                "it took more than {} s; give kinds that are alike a count",
                PATIENCE.as_secs()
            );
            Err(FleetError::Solver(text))
        }
        Err(error) => Err(FleetError::Solver(error.to_string())),
    }
}

/// The most that can be placed, on the fewest hosts, with fractions.
pub(super) fn bound(fleet: &Fleet, needs: &Needs) -> Result<Bound, FleetError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let variables = chains(&mut problem, fleet, needs, WORTH);
    let used: Vec<_> = fleet
        .hosts
        .iter()
        .map(|host| problem.add_var(-1.0, (0.0, f64::from(host.count))))
        .collect();
    for (on, chain) in variables.iter().zip(&fleet.chains) {
        let all: Vec<_> = on.iter().flatten().flatten().map(|one| (*one, 1.0)).collect();
        problem.add_constraint(&all[..], ComparisonOp::Le, f64::from(chain.count));
    }
    for (host, used) in used.iter().enumerate() {
        for resource in 0..SHARED.len() {
            let mut terms = taken(&variables, needs, host, resource);
            if !terms.is_empty() {
                terms.push((*used, -1.0));
                problem.add_constraint(&terms[..], ComparisonOp::Le, 0.0);
            }
        }
    }
    let solution = solve(problem)?;
    let value = |variable: &Option<Variable>| variable.map_or(0.0, |variable| solution[variable]);
    let wanted: Wanted = variables
        .iter()
        .map(|on| {
            on.iter().map(|ways| [value(&ways[0]), value(&ways[1]), value(&ways[2])]).collect()
        })
        .collect();
    Ok(Bound {
        placed: wanted.iter().flatten().flatten().sum(),
        hosts: used.iter().map(|used| solution[*used]).sum(),
        wanted,
    })
}

/// Which resources are too few for all chains, and by how much at least: every chain is placed, and what is taken beyond what there
/// is, as a share of it, is the least in sum.
pub(super) fn missing(fleet: &Fleet, needs: &Needs) -> Result<Vec<Missing>, FleetError> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let variables = chains(&mut problem, fleet, needs, 0.0);
    let more: Vec<_> = SHARED.iter().map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect();
    for (on, chain) in variables.iter().zip(&fleet.chains) {
        let all: Vec<_> = on.iter().flatten().flatten().map(|one| (*one, 1.0)).collect();
        problem.add_constraint(&all[..], ComparisonOp::Eq, f64::from(chain.count));
    }
    for (at, host) in fleet.hosts.iter().enumerate() {
        let count = f64::from(host.count);
        for (resource, more) in more.iter().enumerate() {
            let mut terms = taken(&variables, needs, at, resource);
            if !terms.is_empty() {
                terms.push((*more, -count));
                problem.add_constraint(&terms[..], ComparisonOp::Le, count);
            }
        }
    }
    let solution = solve(problem)?;
    let missing =
        SHARED.into_iter().zip(more).map(|(limit, more)| Missing { limit, share: solution[more] });
    Ok(missing.filter(|missing| missing.share > 1e-6).collect())
}
