//! A drawing of where a frame's bytes and cycles go, as SVG.
//!
//! One panel for each path: the wire, the NIC, the host and the guests of a chain from left to right, the frame's way as a line, and
//! each crossing of PCIe with its number. Beneath, what the frame took on its whole way.

use std::fmt::Write;

use crate::frames::Frames;
use crate::load::{Company, End, Guests, Hop, Load};
use crate::machine::Machine;
use crate::predict::{PathKind, Pattern, Scenario, ScenarioError, predict};
use crate::units::FrameRate;

const WIDTH: f64 = 900.0;
const PANEL: f64 = 330.0;
const LEFT: f64 = 130.0;
/// Heights of what a frame passes, from the top of a panel.
const WIRE: f64 = 60.0;
const NIC: f64 = 100.0;
const PCIE: f64 = 140.0;
const SWITCH: f64 = 180.0;
const GUEST: f64 = 230.0;

const STYLE: &str = "\
text{font:13px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.small{font-size:11px;fill:#555}\
.layer{stroke:#ccc;stroke-width:1}.pcie{stroke:#b45309;stroke-width:1.5;stroke-dasharray:6 4}\
.guest{fill:#e5e7eb;stroke:#6b7280}.way{fill:none;stroke:#1d4ed8;stroke-width:2;stroke-linejoin:round}\
.cross{fill:#b45309}.number{fill:#fff;font-size:10px;text-anchor:middle}.mid{text-anchor:middle}\
@media(prefers-color-scheme:dark){svg{background:#111}text{fill:#eee}.small{fill:#aaa}.layer{stroke:#444}\
.guest{fill:#333;stroke:#999}.way{stroke:#93c5fd}}";

/// What a frame takes on its way through a whole chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// How often it crosses PCIe.
    pub crossings: u32,
    /// Bytes on PCIe from the NIC to the host.
    pub up: f64,
    /// Bytes on PCIe from the host to the NIC.
    pub down: f64,
    /// Cycles of the switch's threads.
    pub switch_cycles: f64,
    /// Cycles of guests.
    pub guest_cycles: f64,
}

/// What a frame of `frames` takes on a path through a chain of so many guests, from the wire to the wire.
///
/// # Errors
/// There is no such chain.
pub fn way(
    machine: &Machine,
    path: PathKind,
    guests: u32,
    frames: &Frames,
) -> Result<Way, ScenarioError> {
    let pattern = Pattern::NorthSouth;
    // The same checks as of a scenario.
    predict(machine, &Scenario { pattern, path, frames: frames.clone(), guests, cores_each: 1.0 })?;
    let each = Guests { count: 1, cores_each: 1.0, cycles: None };
    let mut company = Company::default();
    for of in 0..guests as usize {
        company.guests.push(each);
        company.parties.push(crate::load::Party { path, of });
    }
    let ends = std::iter::once(End::Wire)
        .chain((0..guests as usize).map(End::Party))
        .chain(std::iter::once(End::Wire));
    let ends: Vec<_> = ends.collect();
    let hop = |pair: &[End]| Hop {
        from: pair[0],
        to: pair[1],
        rate: FrameRate(1.0),
        frames: frames.clone(),
    };
    let hops: Vec<_> = ends.windows(2).map(hop).collect();
    let load = Load::of(machine, &company, &hops);
    let clock = machine.host.ghz.value * 1e9;
    Ok(Way {
        crossings: crossings(machine, path, guests),
        up: load.up.0 / 8.0,
        down: load.down.0 / 8.0,
        switch_cycles: load.switch_cores * clock,
        guest_cycles: load.guest_cores * clock,
    })
}

fn crossings(machine: &Machine, path: PathKind, guests: u32) -> u32 {
    match (path, machine.host.soft_nic.is_some()) {
        (_, true) => 0,
        (PathKind::Vf, false) => 2 * guests,
        (PathKind::Vhost | PathKind::Virtio, false) => 2,
    }
}

/// Draws a chain of so many guests on paths `vf` and `vhost`.
///
/// # Errors
/// There is no such chain.
pub fn draw(machine: &Machine, guests: u32, frames: &Frames) -> Result<String, ScenarioError> {
    let paths = [PathKind::Vf, PathKind::Vhost];
    let height = PANEL * paths.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>A chain of {guests} guests, {frames}: where bytes and cycles go</title>\n<style>{STYLE}</style>\n"
    );
    for (number, path) in paths.into_iter().enumerate() {
        let way = way(machine, path, guests, frames)?;
        let top = PANEL * number as f64;
        // Writing to a string does not fail.
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">");
        panel(&mut svg, machine, path, guests, &way);
        svg += "</g>\n";
    }
    svg += "</svg>\n";
    Ok(svg)
}

fn panel(svg: &mut String, machine: &Machine, path: PathKind, guests: u32, way: &Way) {
    let name = match path {
        PathKind::Vf => "virtual functions",
        PathKind::Vhost | PathKind::Virtio => "the switch",
    };
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"20\" y=\"30\">path {path}: {name}, {} crossings of PCIe</text>",
        way.crossings
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
    let points = line(path, guests);
    let text: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(svg, "<polyline class=\"way\" points=\"{}\"/>", text.join(" "));
    for guest in 0..guests {
        let x = place(guest, guests);
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
    for pair in points.windows(2) {
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
    let Way { up, down, switch_cycles, guest_cycles, .. } = way;
    let usable = (machine.nic.link.tlp() * machine.nic.link_share.value).as_gbps();
    let _ = writeln!(
        svg,
        "<text x=\"20\" y=\"{}\">{up:.0} bytes up and {down:.0} bytes down on PCIe, of {usable:.1} Gbit/s each way; \
         {switch_cycles:.0} cycles of the switch, {guest_cycles:.0} of guests</text>",
        GUEST + 60.0
    );
}

/// Where a guest is drawn.
fn place(guest: u32, guests: u32) -> f64 {
    let step = (WIDTH - 20.0 - LEFT) / f64::from(guests);
    LEFT + step * (f64::from(guest) + 0.5)
}

/// The frame's way.
fn line(path: PathKind, guests: u32) -> Vec<(f64, f64)> {
    let half = (WIDTH - 20.0 - LEFT) / f64::from(guests) / 4.0;
    let turn = if path == PathKind::Vf { NIC } else { SWITCH };
    let (first, last) = (place(0, guests), place(guests - 1, guests));
    let mut points = vec![(first - half, WIRE), (first - half, NIC)];
    for guest in 0..guests {
        let x = place(guest, guests);
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
        let frames = Frames::of(1518).unwrap();
        let vf = way(&machine, PathKind::Vf, 6, &frames).unwrap();
        let vhost = way(&machine, PathKind::Vhost, 6, &frames).unwrap();
        assert_eq!((vf.crossings, vhost.crossings), (12, 2));
        // A hop between functions costs as much as a frame in and one out.
        assert!((vf.up / vhost.up - 6.0).abs() < 0.01 && (vf.down / vhost.down - 6.0).abs() < 0.01);
        assert_eq!(vf.switch_cycles, 0.0);
        assert!(vhost.switch_cycles > 0.0);
        let svg = draw(&machine, 6, &frames).unwrap();
        assert_eq!(svg.matches("class=\"cross\"").count(), 14, "{svg}");
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
    }

    #[test]
    fn there_is_no_drawing_of_nobody() {
        let machine = testbed().unwrap();
        let frames = Frames::of(64).unwrap();
        assert!(draw(&machine, 0, &frames).is_err());
    }
}
