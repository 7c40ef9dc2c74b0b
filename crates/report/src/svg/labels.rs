//! Labels at the ends of lines, as near to their lines as possible without overlap.

/// Moves the `wanted` heights apart to at least `gap`, within `low..=high` if there is room. The
/// result has the order of `wanted`.
pub(super) fn spread(wanted: &[f64], gap: f64, (low, high): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut placed = wanted.to_vec();
    let mut floor = low;
    for &label in &order {
        placed[label] = placed[label].max(floor);
        floor = placed[label] + gap;
    }
    // Labels pushed past the end move back; `low` gives way if there is no room at all.
    let mut ceiling = high;
    for &label in order.iter().rev() {
        placed[label] = placed[label].min(ceiling);
        ceiling = placed[label] - gap;
    }
    placed
}
