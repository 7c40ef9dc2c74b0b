//! SVG drawing of a frame's bytes and cycles along a chain.
//!
//! There is one panel for each path. It shows the wire, the NIC, the host and the guests of the
//! chain from left to right, the frame's route as a line, and each PCIe crossing with its number.
//! Bars below show the cost of the whole route, on one scale for all panels: bytes on PCIe (frame
//! and overhead), cycles of the switch (copies and the rest), cycles of guests.

use model::state::Problems;
use std::fmt::Write;

use crate::dma::FCS;
use crate::frames::FrameMix;
use crate::load::{self, Guests, MachineLoad};
use crate::machine::{Host, Machine};
use crate::predict::{Pattern, PlannedPath, Scenario, predict};
use crate::units::{Bytes, FrameRate};

const WIDTH: f64 = 900.0;
const PANEL: f64 = 390.0;
const LEFT: f64 = 130.0;
/// Heights of the layers, from the top of a panel.
const WIRE: f64 = 60.0;
const NIC: f64 = 100.0;
const PCIE: f64 = 140.0;
const SWITCH: f64 = 180.0;
const GUEST: f64 = 230.0;
/// Top of the first bar, distance between bars, height of a bar, and length of the longest bar.
const BARS: f64 = 275.0;
const NEXT_BAR: f64 = 22.0;
const BAR: f64 = 14.0;
const LONGEST: f64 = 400.0;

const STYLE: &str = "\
text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.small{font-size:11px;fill:#555}\
.layer{stroke:#ccc;stroke-width:1}.pcie{stroke:#b45309;stroke-width:1.5;stroke-dasharray:6 4}\
.guest{fill:#e5e7eb;stroke:#6b7280}.cost{fill:none;stroke:#1d4ed8;stroke-width:2;stroke-linejoin:round}\
.a{fill:#1d4ed8}.b{fill:#93c5fd}.c{fill:#0f766e}.d{fill:#5eead4}.e{fill:#9ca3af}.cross{fill:#b45309}.number{fill:#fff;font-size:10px;text-anchor:middle}.mid{text-anchor:middle}\
@media(prefers-color-scheme:dark){svg{background:#111}text{fill:#eee}.small{fill:#aaa}.layer{stroke:#444}\
.guest{fill:#333;stroke:#999}.cost{stroke:#93c5fd}}";

/// Cost of a frame on its route through a whole chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathCost {
    /// Number of PCIe crossings.
    pub crossings: u32,
    /// Bytes on PCIe from the NIC to the host.
    pub up: f64,
    /// Bytes on PCIe from the host to the NIC.
    pub down: f64,
    /// Bytes of the frame itself among them, in each direction.
    pub frame: f64,
    /// Cycles of the switch's threads.
    pub switch_cycles: f64,
    /// Cycles for copies, part of `switch_cycles`.
    pub copy_cycles: f64,
    /// Cycles of guests.
    pub guest_cycles: f64,
}

/// Cost of a frame of `frames` through a chain of `guests` guests, from the wire to the wire.
///
/// # Errors
/// The scenario is impossible.
pub fn path_cost(
    machine: &Machine,
    path: PlannedPath,
    guests: u32,
    frames: &FrameMix,
) -> Result<PathCost, Problems> {
    let pattern = Pattern::NorthSouth;
    // Applies the checks of a scenario.
    predict(machine, &Scenario { pattern, path, frames: frames.clone(), guests, cores_each: 1.0 })?;
    let each = Guests { count: 1, cores_each: 1.0, cycles: None };
    let paths = (0..guests).map(|_| [path; 2]);
    let (guest_set, hops) = load::chain(each, paths, FrameRate(1.0), frames);
    let load = MachineLoad::of(machine, &guest_set, &hops);
    let without_copies = MachineLoad::of(&without_copies(machine), &guest_set, &hops);
    let clock = machine.host.clock().0;
    let crossings = crossings(machine, path, guests);
    Ok(PathCost {
        crossings,
        up: load.up.0 / 8.0,
        down: load.down.0 / 8.0,
        frame: f64::from(crossings / 2) * (frames.size() + Bytes(-FCS)).0,
        switch_cycles: load.switch_cores * clock,
        copy_cycles: (load.switch_cores - without_copies.switch_cores) * clock,
        guest_cycles: load.guest_cores * clock,
    })
}

/// The same machine with copies at no cost.
fn without_copies(machine: &Machine) -> Machine {
    let mut machine = machine.clone();
    let Host { switch, soft_nic, kernel, .. } = &mut machine.host;
    for costs in [switch, kernel].into_iter().chain(soft_nic) {
        costs.byte.value = 0.0;
    }
    machine
}

fn crossings(machine: &Machine, path: PlannedPath, guests: u32) -> u32 {
    match (path, machine.host.soft_nic.is_some()) {
        (_, true) => 0,
        (PlannedPath::Vf, false) => 2 * guests,
        (PlannedPath::Synthetic | PlannedPath::Kernel, false) => 2,
    }
}

/// Draws a chain of `guests` guests on paths `vf` and `synthetic`.
///
/// # Errors
/// The scenario is impossible.
pub fn draw(machine: &Machine, guests: u32, frames: &FrameMix) -> Result<String, Problems> {
    // A card with too few VFs gets no panel.
    let paths = [PlannedPath::Vf, PlannedPath::Synthetic].into_iter();
    let paths = paths.filter(|path| *path != PlannedPath::Vf || guests <= machine.vfs());
    let costs = paths.map(|path| path_cost(machine, path, guests, frames).map(|cost| (path, cost)));
    let costs = costs.collect::<Result<Vec<_>, _>>()?;
    let height = PANEL * costs.len() as f64;
    let most =
        |of: fn(&PathCost) -> f64| costs.iter().map(|(_, cost)| of(cost)).fold(0.0, f64::max);
    let scale = BarScale {
        bytes: most(|cost| cost.up.max(cost.down)),
        cycles: most(|cost| cost.switch_cycles.max(cost.guest_cycles)),
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>A chain of {guests} guests, {frames}: where bytes and cycles go</title>\n<style>{STYLE}</style>\n"
    );
    for (number, (path, cost)) in costs.into_iter().enumerate() {
        let top = PANEL * number as f64;
        // Writing to a string does not fail.
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">");
        panel(&mut svg, path, guests, &cost);
        bars(&mut svg, &cost, &scale);
        svg += "</g>\n";
    }
    svg += "</svg>\n";
    Ok(svg)
}

fn panel(svg: &mut String, path: PlannedPath, guests: u32, cost: &PathCost) {
    let name = match path {
        PlannedPath::Vf if cost.crossings == 0 => "the software NIC",
        PlannedPath::Vf => "virtual functions",
        PlannedPath::Synthetic | PlannedPath::Kernel => "the switch",
    };
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"20\" y=\"30\">path {path}: {name}, {} crossings of PCIe</text>",
        cost.crossings
    );
    for (y, name) in [(WIRE, "wire"), (NIC, "NIC"), (SWITCH, "switch"), (GUEST, "guests")] {
        let _ = writeln!(
            svg,
            "<text x=\"20\" y=\"{}\">{name}</text><line class=\"layer\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
            y + 4.0,
            WIDTH - 20.0
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"small\" x=\"20\" y=\"{}\">PCIe</text><line class=\"pcie\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{PCIE}\" y2=\"{PCIE}\"/>",
        PCIE + 4.0,
        WIDTH - 20.0
    );
    let is_card = path == PlannedPath::Vf && cost.crossings > 0;
    let points = route_points(is_card, guests);
    let text: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(svg, "<polyline class=\"way\" points=\"{}\"/>", text.join(" "));
    for guest in 0..guests {
        let x = guest_x(guest, guests);
        let _ = writeln!(
            svg,
            "<rect class=\"guest\" x=\"{:.1}\" y=\"{GUEST}\" width=\"36\" height=\"26\" rx=\"4\"/>\
             <text class=\"mid\" x=\"{x:.1}\" y=\"{}\">{}</text>",
            x - 18.0,
            GUEST + 18.0,
            guest + 1
        );
    }
    let mut number = 0;
    for pair in points.windows(2).filter(|_| cost.crossings > 0) {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        if (y1 - PCIE) * (y2 - PCIE) < 0.0 {
            number += 1;
            let x = x1 + (x2 - x1) * (PCIE - y1) / (y2 - y1);
            let _ = writeln!(
                svg,
                "<circle class=\"cross\" cx=\"{x:.1}\" cy=\"{PCIE}\" r=\"9\"/>\
                 <text class=\"number\" x=\"{x:.1}\" y=\"{}\">{number}</text>",
                PCIE + 3.5
            );
        }
    }
}

/// Values of the longest bars.
struct BarScale {
    bytes: f64,
    cycles: f64,
}

/// Draws the cost of a frame as bars.
fn bars(svg: &mut String, cost: &PathCost, scale: &BarScale) {
    let &PathCost { up, down, frame, switch_cycles, copy_cycles, guest_cycles, .. } = cost;
    let bytes = |all: f64| {
        let text = format!("{all:.0} bytes: {frame:.0} of the frame, {:.0} besides", all - frame);
        ([("a", frame), ("b", all - frame)], scale.bytes, text)
    };
    let fixed = switch_cycles - copy_cycles;
    let copied =
        format!("{switch_cycles:.0} cycles: {copy_cycles:.0} of copies, {fixed:.0} besides");
    let rows = [
        ("PCIe, up", bytes(up)),
        ("PCIe, down", bytes(down)),
        ("switch", ([("d", copy_cycles), ("c", fixed)], scale.cycles, copied)),
        (
            "guests",
            ([("e", guest_cycles), ("e", 0.0)], scale.cycles, format!("{guest_cycles:.0} cycles")),
        ),
    ];
    for (row, (name, (parts, most, text))) in rows.into_iter().enumerate() {
        let y = BARS + NEXT_BAR * row as f64;
        let base = y + BAR - 3.0;
        let _ = write!(svg, "<text class=\"small\" x=\"20\" y=\"{base}\">{name}</text>");
        let mut x = LEFT;
        for (class, value) in parts {
            let width = value / most.max(1.0) * LONGEST;
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\"/>"
            );
            x += width;
        }
        let _ =
            writeln!(svg, "<text class=\"small\" x=\"{:.1}\" y=\"{base}\">{text}</text>", x + 8.0);
    }
}

/// Horizontal centre of a guest.
fn guest_x(guest: u32, guests: u32) -> f64 {
    let step = (WIDTH - 20.0 - LEFT) / f64::from(guests);
    LEFT + step * (f64::from(guest) + 0.5)
}

/// Points of the frame's route, which turns at the card or at the switch.
fn route_points(is_card: bool, guests: u32) -> Vec<(f64, f64)> {
    let half = (WIDTH - 20.0 - LEFT) / f64::from(guests) / 4.0;
    let turn = if is_card { NIC } else { SWITCH };
    let (first, last) = (guest_x(0, guests), guest_x(guests - 1, guests));
    let mut points = vec![(first - half, WIRE), (first - half, NIC)];
    for guest in 0..guests {
        let x = guest_x(guest, guests);
        let aside = half.min(14.0);
        points.extend([(x - half, turn), (x - aside, GUEST), (x + aside, GUEST), (x + half, turn)]);
    }
    points.extend([(last + half, NIC), (last + half, WIRE)]);
    points.dedup();
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::testbed;

    #[test]
    fn a_chain_of_six_crosses_pcie_twelve_times_on_functions_and_twice_on_the_switch() {
        let machine = testbed().unwrap();
        let frames = FrameMix::of(1518).unwrap();
        let vf = path_cost(&machine, PlannedPath::Vf, 6, &frames).unwrap();
        let switch = path_cost(&machine, PlannedPath::Synthetic, 6, &frames).unwrap();
        assert_eq!((vf.crossings, switch.crossings), (12, 2));
        // A hop between VFs costs as much as one frame in and one frame out.
        assert!(
            (vf.up / switch.up - 6.0).abs() < 0.01 && (vf.down / switch.down - 6.0).abs() < 0.01
        );
        assert_eq!((vf.switch_cycles, vf.frame), (0.0, 6.0 * 1514.0));
        assert!(vf.frame < vf.up && switch.copy_cycles < switch.switch_cycles);
        assert!(switch.switch_cycles > 0.0);
        let svg = draw(&machine, 6, &frames).unwrap();
        assert_eq!(svg.matches("class=\"cross\"").count(), 14, "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }

    #[test]
    fn a_chain_without_guests_is_rejected() {
        let machine = testbed().unwrap();
        let frames = FrameMix::of(64).unwrap();
        assert!(draw(&machine, 0, &frames).is_err());
    }
}
