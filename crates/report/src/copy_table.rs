//! Tables of file copies: columns of guests and of the shared layers, for terminals (at most 80
//! columns wide) and for the page.

use super::columns::{Column, terminal};
use super::copy::{CopyGuest, FileCopy, by_size};
use super::format::{percent, three};
use super::text_table::TextFormat;
use super::transfer::Spread;

const LEGEND: &str = "\
guests: number of simultaneous copies; s: common start to end of the copy; user,
system: cores of the guest's program; CPU s/GiB: its CPU seconds for each GiB it
received; server, daemon: cores in user space + in the kernel; busy: share of
the lane's cycles that moved frames; cyc/KiB: these cycles for each KiB that
guests received; softirq: cores, of the whole machine. Medians of the rounds.
";

/// A guest with its copy.
#[derive(Debug)]
pub(super) struct GuestRow<'a> {
    copy: &'a FileCopy,
    guest: &'a CopyGuest,
}

/// One row for each guest.
pub(super) fn guest_rows(copies: &[FileCopy]) -> Vec<GuestRow<'_>> {
    copies
        .iter()
        .flat_map(|copy| copy.guests.iter().map(move |guest| GuestRow { copy, guest }))
        .collect()
}

/// Columns of guests.
pub(super) fn guest_columns<'a>() -> [Column<GuestRow<'a>>; 8] {
    [
        ("guests", true, |row| row.copy.what()),
        ("path", true, |row| row.guest.path.to_string()),
        ("s", false, |row| three(row.guest.seconds[1])),
        ("Gbps", false, |row| three(row.guest.gbps[1])),
        ("user", false, |row| three(row.guest.user_cores[1])),
        ("system", false, |row| three(row.guest.system_cores[1])),
        ("CPU s/GiB", false, |row| three(row.guest.cpu_s_per_gib[1])),
        ("least-most", false, |row| range(&row.guest.cpu_s_per_gib)),
    ]
}

/// Columns of the shared layers.
pub(super) const HOST_COLUMNS: [Column<FileCopy>; 8] = [
    ("guests", true, FileCopy::label),
    ("Gbps", false, |copy| three(copy.gbps[1])),
    ("server", false, |copy| both(&copy.host.server_user_cores, &copy.host.server_system_cores)),
    ("daemon", false, |copy| both(&copy.host.daemon_user_cores, &copy.host.daemon_system_cores)),
    ("busy", false, |copy| percent(copy.host.lane_busy_share[1]).replace(' ', "")),
    ("cyc/KiB", false, |copy| three(copy.host.lane_cycles_per_kib[1])),
    ("least-most", false, |copy| range(&copy.host.lane_cycles_per_kib)),
    ("softirq", false, |copy| three(copy.host.softirq_cores[1])),
];

/// Tables with their legend; empty without copies. For text see
/// [`sentences`](super::copy_verdict::sentences).
pub fn all(copies: &[FileCopy], format: TextFormat) -> String {
    let of_size = |copies: &[FileCopy]| {
        let title = format!("copies of a file of {} MiB, the guests", copies[0].file_mib);
        let guests = guest_rows(copies);
        let guests = terminal(format, &title, &guest_columns(), &guests.iter().collect::<Vec<_>>());
        let copies: Vec<&FileCopy> = copies.iter().collect();
        guests + &terminal(format, "what they share", &HOST_COLUMNS, &copies)
    };
    let tables: String = by_size(copies).map(of_size).collect();
    if tables.is_empty() { tables } else { tables + LEGEND }
}

/// Minimum and maximum of the rounds.
fn range([least, _, most]: &Spread) -> String {
    format!("{}-{}", three(*least), three(*most))
}

/// User space and kernel.
fn both(user: &Spread, system: &Spread) -> String {
    format!("{:.2}+{:.2}", user[1], system[1])
}
