//! The linear program.
//!
//! Variables: how many chains of kind `c` are on hosts of class `h` on way `w`, and how many hosts
//! of class `h` are used. Of each chain there are no more than there are; of each resource of a
//! class of hosts no more is taken than the used ones have. Placed chains count most, used hosts
//! against it.

use std::time::Duration;

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOutcome, Variable};

use super::{ChainKind, Class, FleetError, Missing, Need, Needs, SHARED};

/// How long the solver may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a chain that is placed is worth, in hosts that are not used.
const WORTH: f64 = 1000.0;

/// What the program says.
pub(super) struct Bound {
    /// Chains that have a place.
    pub(super) placed: f64,
    /// Hosts of each class that have any.
    pub(super) used: Vec<f64>,
    /// How many chains of a kind are on hosts of a class, and on which way.
    pub(super) wanted: Vec<Vec<[f64; 3]>>,
}

/// Chains on hosts on ways, as variables; none where they cannot go.
type Variables = Vec<Vec<[Option<Variable>; 3]>>;

fn variables(problem: &mut Problem, chains: &[ChainKind], needs: &Needs, worth: f64) -> Variables {
    let variables = |(chain, needs): (&ChainKind, &Vec<[Option<Need>; 3]>)| {
        let most = f64::from(chain.count);
        let on = |ways: &[Option<Need>; 3]| {
            ways.map(|way| way.map(|_| problem.add_var(worth, (0.0, most))))
        };
        needs.iter().map(on).collect()
    };
    chains.iter().zip(needs).map(variables).collect()
}

/// What is taken of a resource of a class of hosts, as terms.
fn taken(
    variables: &Variables,
    needs: &Needs,
    class: usize,
    resource: usize,
) -> Vec<(Variable, f64)> {
    let mut terms = Vec::new();
    for (on, needs) in variables.iter().zip(needs) {
        for (variable, need) in on[class].iter().zip(&needs[class]) {
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

/// Of each kind of chains there are no more than there are, or just as many.
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

/// The most that can be placed, on the fewest hosts, with fractions.
pub(super) fn bound(
    classes: &[Class<'_>],
    chains: &[ChainKind],
    needs: &Needs,
) -> Result<Bound, FleetError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let variables = variables(&mut problem, chains, needs, WORTH);
    let each = |class: &Class<'_>| problem.add_var(-1.0, (0.0, f64::from(class.count)));
    let used: Vec<_> = classes.iter().map(each).collect();
    counts(&mut problem, &variables, chains, ComparisonOp::Le);
    for (class, used) in used.iter().enumerate() {
        for resource in 0..SHARED.len() {
            let mut terms = taken(&variables, needs, class, resource);
            if !terms.is_empty() {
                terms.push((*used, -1.0));
                problem.add_constraint(&terms[..], ComparisonOp::Le, 0.0);
            }
        }
    }
    let solution = solve(problem)?;
    let value = |variable: Option<Variable>| variable.map_or(0.0, |variable| solution[variable]);
    let on = |on: &Vec<[Option<Variable>; 3]>| on.iter().map(|ways| ways.map(value)).collect();
    let wanted: Vec<Vec<_>> = variables.iter().map(on).collect();
    Ok(Bound {
        placed: wanted.iter().flatten().flatten().sum(),
        used: used.iter().map(|used| solution[*used]).collect(),
        wanted,
    })
}

/// Which resources are too few for all chains, and by how much at least: every chain is placed, and
/// what is taken beyond what there is, as a share of it, is the least in sum.
pub(super) fn missing(
    classes: &[Class<'_>],
    chains: &[ChainKind],
    needs: &Needs,
) -> Result<Vec<Missing>, FleetError> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let variables = variables(&mut problem, chains, needs, 0.0);
    let more: Vec<_> = SHARED.iter().map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect();
    counts(&mut problem, &variables, chains, ComparisonOp::Eq);
    for (at, class) in classes.iter().enumerate() {
        let count = f64::from(class.count);
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
