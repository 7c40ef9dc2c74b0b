//! File copies on the page: charts of the guests' CPU and the lane's work, tables, and the
//! comparison with the paper.

use super::super::columns::html;
use super::super::copy::{CopyGuest, by_size};
use super::super::copy_table::{HOST_COLUMNS, guest_columns, guest_rows};
use super::super::copy_verdict::sentences;
use super::super::results::FileCopy;
use super::super::svg::bars::BarRow;
use super::super::svg::escape;
use super::transfers::{ONE_LAYER, chart};

/// Sentences, and a section for each file size; empty without copies.
pub(super) fn all(copies: &[FileCopy]) -> String {
    let paragraph = |sentence| format!("<p class=\"verdict\">{}</p>\n", escape(sentence));
    let words: String = sentences(copies).iter().map(|it| paragraph(it)).collect();
    words + &by_size(copies).map(section).collect::<String>()
}

fn section(copies: &[FileCopy]) -> String {
    let file_mib = copies[0].file_mib;
    let charts: String = [guests(copies), lane(copies)]
        .into_iter()
        .flatten()
        .map(|chart| format!("<figure>\n{chart}</figure>\n"))
        .collect();
    let rows = guest_rows(copies);
    format!(
        "<section class=\"pattern\">\n<h2 id=\"copies-{file_mib}\">Copies of {file_mib} MiB</h2>\n\
         <p class=\"sub\">Every guest copies the same file over TCP from a \
         server beyond the uplink, medians of the rounds.</p>\n\
         <div class=\"charts\">\n{charts}</div>\n\
         <h3>Guests</h3>\n{}<h3>Shared layers</h3>\n{}</section>\n",
        html(&guest_columns(), &rows.iter().collect::<Vec<_>>()),
        html(&HOST_COLUMNS, &copies.iter().collect::<Vec<_>>()),
    )
}

fn guests(copies: &[FileCopy]) -> Option<String> {
    let row = |copy: &FileCopy, guest: &CopyGuest| BarRow {
        label: guest.path.to_string(),
        group: copy.what(),
        parts: vec![guest.cpu_s_per_gib[1]],
    };
    let rows = copies.iter().flat_map(|copy| copy.guests.iter().map(move |guest| row(copy, guest)));
    let subtitle = "CPU seconds of the guest's program for each GiB received";
    chart("Guests' CPU", subtitle, "s", &ONE_LAYER, rows.collect())
}

fn lane(copies: &[FileCopy]) -> Option<String> {
    let row = |copy: &FileCopy| BarRow {
        label: copy.paths(),
        group: copy.what(),
        parts: vec![copy.host.lane_cycles_per_kib[1]],
    };
    let subtitle = "busy cycles for each KiB received, NIC and switch in one";
    chart("Work of the lane", subtitle, "cycles", &ONE_LAYER, copies.iter().map(row).collect())
}
