use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;

use super::results::{
    Bottleneck, GeneratorLoad, PathKind, Pattern, Point, Results, Transfer, gbps,
};
use super::samples::{limited, one_path, point, results, stages, three_paths, transfers};
use super::stages::table as stages_table;
use super::svg::escape;
use super::{TextFormat, csv, folder_name, html, json, table, transfer_table, verdict, write};

mod copies;
mod experiments;

/// Parses CSV per RFC 4180, independently of the writer.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quoted, c) {
            (true, '"') if chars.peek() == Some(&'"') => {
                field.push('"');
                chars.next();
            }
            (_, '"') => quoted = !quoted,
            (false, ',') => row.push(std::mem::take(&mut field)),
            (false, '\n') => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            (_, c) => field.push(c),
        }
    }
    assert!(!quoted && field.is_empty() && row.is_empty(), "the last line has no end");
    rows
}

/// Checks that elements are closed in order, and that `&` and `<` start only valid markup.
fn check_html(page: &str) -> Result<(), String> {
    let body = page.strip_prefix("<!DOCTYPE html>\n").ok_or("no doctype")?;
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some((text, after)) = rest.split_once('<') {
        check_text(text)?;
        let (tag, after) = after.split_once('>').ok_or("a tag without end")?;
        rest = after;
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.contains('<') || name.is_empty() || tag.matches('"').count() % 2 != 0 {
            return Err(format!("<{tag}> is no tag"));
        }
        if tag.starts_with('/') {
            let opened = open.pop();
            if opened != Some(name) {
                return Err(format!("</{name}> closes {opened:?}"));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    check_text(rest)?;
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} stay open")) }
}

fn check_text(text: &str) -> Result<(), String> {
    let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
    let bad =
        text.split('&').skip(1).find(|part| !known.iter().any(|known| part.starts_with(known)));
    bad.map_or(Ok(()), |bad| Err(format!("bare & before {bad:?}")))
}

#[test]
fn table_of_one_path() {
    insta::assert_snapshot!(table::all(&one_path(), TextFormat::LINES), @"
    North/south
    ─────────────────────────────────────────────────────────────────────────────
      frame  VMs  path    Gbps    Mpps  cycles  switch CPU  guests CPU  limit
    ═════════════════════════════════════════════════════════════════════════════
       64 B    1  vf      3.17    6.60      66  0.99 (97%)        0.27  switch
               2  vf      3.46    7.20      66  0.99 (97%)        0.52  switch
               4  vf      4.03    8.40      66  0.99 (97%)        1.02  switch
      256 B    1  vf      11.1    5.50      86  0.99 (97%)        0.27  switch
               2  vf      12.1    6.00      86  0.99 (97%)        0.52  switch
               4  vf      14.1    7.00      86  0.99 (97%)        1.02  switch
     1518 B    1  vf      33.3    2.75     212  0.99 (97%)        0.27  switch
               2  vf      36.3    3.00     212  0.99 (97%)        0.52  guest
               4  vf    > 42.4  > 3.50     212  0.99 (97%)        1.02  generator
    ─────────────────────────────────────────────────────────────────────────────

    East/west
    ──────────────────────────────────────────────────────────────────────
      frame  VMs  path  Gbps  Mpps  cycles  switch CPU  guests CPU  limit
    ══════════════════════════════════════════════════════════════════════
       64 B    2  vf    3.46  7.20      66  0.99 (97%)        0.52  switch
               4  vf    4.03  8.40      66  0.99 (97%)        1.02  switch
      256 B    2  vf    12.1  6.00      86  0.99 (97%)        0.52  switch
               4  vf    14.1  7.00      86  0.99 (97%)        1.02  switch
     1518 B    2  vf    36.3  3.00     212  0.99 (97%)        0.52  switch
               4  vf    42.4  3.50     212  0.99 (97%)        1.02  switch
    ──────────────────────────────────────────────────────────────────────

    Gbps, Mpps: sums over the guests' transmit side; Gbps without the 4-byte FCS
    cycles: the switch's busy cycles per delivered frame; switch CPU: cores (share
    of polling cycles that moved frames); guests CPU: cores; limit: bottleneck,
    on virtio the kernel is the switch. Of a point measured several times the row
    is the median by Mpps (of two, the lower) of the undisturbed slots
    vf: a VF; vhost: path synthetic of the daemon; virtio: tap and bridge of Linux
    > lower bound: the generator was the bottleneck, not the switch
    ");
}

#[test]
fn table_of_stages() {
    insta::assert_snapshot!(stages_table(&stages(), TextFormat::LINES), @"
    Cycles per delivered frame by stage
    ───────────────────────────
     stage        cycles  share
    ═══════════════════════════
     poll           2.50   3.8%
     descriptors    12.0  18.2%
     classify       8.00  12.1%
     copy           25.5  38.6%
     publish        6.00   9.1%
     notify            0   0.0%
     other          11.9  18.0%
     sampling       0.10   0.2%
    ───────────────────────────
    measured on a sample of 3125 bursts; sampling: cost of the readings;
    other: busy cycles outside of bursts (rounds, polls that found nothing)
    ");
}

#[test]
fn table_of_three_paths() {
    let points: Vec<Point> = three_paths().into_iter().filter(|p| p.frame_bytes == 64).collect();
    insta::assert_snapshot!(table::all(&points, TextFormat::LINES), @"
    North/south
    ───────────────────────────────────────────────────────────────────────
     frame  VMs  path    Gbps  Mpps  cycles  switch CPU  guests CPU  limit
    ═══════════════════════════════════════════════════════════════════════
      64 B    1  vf      5.18  10.8      66  0.99 (97%)        0.27  switch
                 vhost   2.30  4.80      66  0.99 (97%)        0.27  switch
                 virtio  0.19  0.40     n/a         n/a        0.27  switch
              2  vf      6.05  12.6      66  0.99 (97%)        0.52  switch
                 vhost   2.69  5.60      66  0.99 (97%)        0.52  switch
                 virtio  0.19  0.40     n/a         n/a        0.52  switch
              4  vf      7.78  16.2      66  0.99 (97%)        1.02  switch
                 vhost   3.46  7.20      66  0.99 (97%)        1.02  switch
                 virtio  0.19  0.40     n/a         n/a        1.02  switch
    ───────────────────────────────────────────────────────────────────────

    Gbps, Mpps: sums over the guests' transmit side; Gbps without the 4-byte FCS
    cycles: the switch's busy cycles per delivered frame; switch CPU: cores (share
    of polling cycles that moved frames); guests CPU: cores; limit: bottleneck,
    on virtio the kernel is the switch. Of a point measured several times the row
    is the median by Mpps (of two, the lower) of the undisturbed slots
    vf: a VF; vhost: path synthetic of the daemon; virtio: tap and bridge of Linux
    ");
}

#[test]
fn tables_fit_80_columns() {
    let mut points: Vec<Point> = three_paths();
    points.extend(one_path());
    let mut large = point(Pattern::EastWest, PathKind::Virtio, 9018, 64, 216.4);
    large.bottleneck = Bottleneck::Generator;
    large.switch_cycles_per_frame = Some(1_234.0);
    large.cpu.guests_user_cores = 63.0;
    large.cpu.switch_user_cores = 14.0;
    large.cpu.switch_busy_share = 1.0;
    large.load = GeneratorLoad::Overload;
    points.push(large);
    assert!(
        table::all(&points, TextFormat::LINES)
            .contains("offered 325 Mpps, delivered 216, lost 108 (33 %)")
    );
    for line in table::all(&points, TextFormat::LINES).lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
    assert_eq!(table::all(&[], TextFormat::LINES), "");
}

#[test]
fn gbps_leave_the_fcs_out() {
    assert!((gbps(10.36, 64) - 4.9728).abs() < 1e-9);
    assert!((gbps(3.24, 1518) - 39.243).abs() < 1e-3);
}

#[test]
fn json_of_a_point_has_the_documented_fields() {
    let text = json::point(&one_path()[0]).unwrap();
    assert!(!text.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for field in [
        "pattern",
        "path",
        "vms",
        "frame_bytes",
        "seconds",
        "mpps",
        "gbps",
        "rx_mpps",
        "returned_mpps",
        "offered_mpps",
        "lost_frames",
        "switch_cycles_per_frame",
        "generator_limit_mpps",
        "bottleneck",
        "guests",
        "drops",
        "pinned",
        "burst_mean",
        "round_trip_cycles",
        "stages",
    ] {
        assert!(!value[field].is_null(), "{field}");
    }
    assert_eq!(value["pattern"], "north-south");
    assert_eq!((&value["path"], &value["bottleneck"]), (&"vf".into(), &"switch".into()));
    assert_eq!(value["cpu"]["switch_busy_share"], 0.97);
    assert_eq!(value["pinned"]["guests"][0], 1);
}

proptest! {
    #[test]
    fn json_round_trip(mpps in 0.0..500.0_f64, cycles in prop::option::of(0.0..1e5_f64), at in 0..5_usize) {
        let mut points = one_path();
        points[at].mpps = mpps;
        points[at].switch_cycles_per_frame = cycles;
        points[at].burst_mean = cycles;
        points[at].round_trip_cycles = cycles;
        let run = results(points);
        let back = json::read(&json::results(&run).unwrap()).unwrap();
        prop_assert_eq!(back, run);
    }
}

#[test]
fn impossible_numbers_are_refused() {
    let mut run = results(one_path());
    run.points[3].cpu.guests_user_cores = f64::NAN;
    insta::assert_snapshot!(json::results(&run).unwrap_err(), @"north-south vf, frame_bytes 256, vms 1: cpu.guests_user_cores is NaN, an impossible measurement; please report this bug");
    run.points[3].cpu.guests_user_cores = 0.0;
    run.points[3].seconds = 0.0;
    insta::assert_snapshot!(write(std::path::Path::new("/nowhere"), &run).unwrap_err(), @"north-south vf, frame_bytes 256, vms 1: seconds is 0, an impossible measurement; please report this bug");
    assert!(json::read("{}").is_err());
}

#[test]
fn names_are_parsed_and_refused() {
    assert_eq!("east-west".parse(), Ok(Pattern::EastWest));
    assert_eq!("generator".parse(), Ok(Bottleneck::Generator));
    insta::assert_snapshot!("vp".parse::<PathKind>().unwrap_err(), @r#""vp" is not a path; use vf, vhost, virtio"#);
}

#[test]
fn csv_parses_back() {
    let mut points = one_path();
    points[0].drops.insert("no-buffer".to_owned(), 12_345);
    points[0].drops.insert("say \"no\", twice\n".to_owned(), 1);
    points[1].switch_cycles_per_frame = None;
    let rows = parse_csv(&csv::text(&points));
    let names: BTreeSet<&String> = rows[0].iter().collect();
    assert_eq!(names.len(), rows[0].len());
    assert_eq!(rows.len(), points.len() + 1);
    let field = |row: usize, name: &str| {
        let column = rows[0].iter().position(|one| one == name).unwrap();
        &rows[row][column]
    };
    for (row, point) in points.iter().enumerate() {
        assert_eq!(rows[row + 1].len(), rows[0].len());
        assert_eq!(field(row + 1, "mpps").parse(), Ok(point.mpps));
        assert_eq!(field(row + 1, "pattern").parse(), Ok(point.pattern));
        assert_eq!(
            field(row + 1, "cpu.guests_user_cores").parse(),
            Ok(point.cpu.guests_user_cores)
        );
    }
    assert_eq!(field(1, "drops"), "no-buffer:12345 say \"no\", twice\n:1");
    assert_eq!(field(2, "switch_cycles_per_frame"), "");
}

/// Every name in a point's JSON is also a CSV column.
#[test]
fn csv_has_every_field_of_json() {
    let value = serde_json::to_value(&one_path()[0]).unwrap();
    let mut names = BTreeSet::new();
    for (name, value) in value.as_object().unwrap() {
        match value.as_object() {
            Some(nested) if name != "drops" => {
                names.extend(nested.keys().map(|key| format!("{name}.{key}")))
            }
            _ => drop(names.insert(name.clone())),
        }
    }
    let header = parse_csv(&csv::text(&[])).remove(0);
    assert_eq!(header.into_iter().collect::<BTreeSet<_>>(), names);
}

#[test]
fn html_is_well_formed_and_whole() {
    for points in [one_path(), three_paths(), Vec::new(), one_path().split_off(14)] {
        let run: Results = results(points);
        let page = html::page(&run);
        check_html(&page).unwrap();
        assert!(page.contains("shunt lab --out &#39;&lt;here&gt;&#39; &amp; wait"));
        assert!(
            page.contains("A &lt;fast&gt; CPU &amp; more") && page.contains("Two threads shared")
        );
        assert!(!page.contains("NaN") && !page.contains("<script") && !page.contains("src="));
        for (_, sentence) in verdict::all(&run.points) {
            assert!(page.contains(&escape(&sentence)), "{sentence}");
        }
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    for page in ["<p>", "<p></b>", "<p>a & b</p>", "<p a=\"></p>", "<p><b></p></b>", "<p"] {
        assert!(check_html(&format!("<!DOCTYPE html>\n{page}")).is_err(), "{page}");
    }
    check_html("<!DOCTYPE html>\n<p>a &amp; <br/>b</p>").unwrap();
}

#[test]
fn html_marks_lower_bounds_and_shows_the_paper() {
    let points =
        vec![limited(point(Pattern::NorthSouth, PathKind::Vf, 64, 1, 12.3), Bottleneck::Generator)];
    let page = html::page(&results(points));
    assert!(page.contains("<td>&gt; 12.3</td>"));
    assert!(page.contains("hollow") && page.contains("lower bound"));
    // The published value, in its own column.
    assert!(page.contains("<td>20.6</td>") && page.contains("335625-001"));
    let jumbo = vec![point(Pattern::NorthSouth, PathKind::Vf, 9018, 1, 1.0)];
    assert!(!html::page(&results(jumbo)).contains("335625-001"));
}

#[test]
fn folder_names_are_safe() {
    assert_eq!(folder_name(1_772_357_400, "lab1"), "2026-03-01T09-30-00Z-lab1");
    assert_eq!(folder_name(0, "../a b/ü."), "1970-01-01T00-00-00Z-a-b");
    assert_eq!(folder_name(0, ""), "1970-01-01T00-00-00Z-host");
    assert!(folder_name(0, &"x".repeat(500)).len() < 100);
}

#[test]
fn writes_three_files_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("lab-results").join(folder_name(0, "lab1"));
    let run = results(one_path());
    // The second run replaces the files of the first.
    for _ in 0..2 {
        let written = write(&dir, &run).unwrap();
        let names: Vec<_> = written.iter().map(|file| file.file_name().unwrap()).collect();
        assert_eq!(names, ["results.json", "results.csv", "report.html"]);
        let mut found: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        let mut written = written;
        written.sort();
        assert_eq!(found, written);
    }
    let text = fs::read_to_string(dir.join("results.json")).unwrap();
    assert_eq!(json::read(&text).unwrap(), run);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let error = write(&file.join("run"), &results(Vec::new())).unwrap_err().to_string();
    assert!(error.starts_with("cannot create the folder") && error.contains("file/run"), "{error}");
}

#[test]
fn transfers_are_in_every_form_of_the_report() {
    let run = Results { points: Vec::new(), transfers: transfers(), ..results(Vec::new()) };
    let text = json::results(&run).unwrap();
    assert_eq!(json::read(&text).unwrap(), run);
    let page = html::page(&run);
    check_html(&page).unwrap();
    for words in ["id=\"ntttcp\"", "id=\"netperf\"", "id=\"vpf\"", "SR-IOV 5.00", "&gt; 12.0"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("Nothing was measured") && !page.contains("The generator: what"));
    let rows = parse_csv(&csv::transfers(&run.transfers));
    assert_eq!(rows.len(), run.transfers.len() + 1);
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    let column = |name: &str| rows[0].iter().position(|known| known == name).unwrap();
    for (row, transfer) in rows[1..].iter().zip(&run.transfers) {
        let gbps = transfer.gbps.map_or(String::new(), |[_, median, _]| median.to_string());
        assert_eq!(row[column("gbps")], gbps);
        assert_eq!(row[column("limit")], transfer.limit.to_string());
    }
}

#[test]
fn tables_of_transfers_fit_a_terminal_and_say_what_is_a_bound() {
    let text = transfer_table::all(&transfers(), TextFormat::LINES);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("> 12.0") && text.contains("> lower bound"), "{text}");
    // Each of two experiments prints the traffic once for all its paths.
    assert_eq!(text.matches("1 x 64 KiB, 1 MiB").count(), 2, "{text}");
    assert_eq!(transfer_table::all(&[], TextFormat::LINES), "");
}

#[test]
fn a_transfer_with_a_number_that_cannot_be_is_not_written() {
    let mut bad = transfers();
    bad[0].cpu.softirq_cores = f64::NAN;
    let run = Results { points: Vec::new(), transfers: bad, ..results(Vec::new()) };
    let error = json::results(&run).unwrap_err().to_string();
    assert!(error.contains("cpu.softirq_cores") && error.contains("ntttcp"), "{error}");
}

#[test]
fn transfers_of_two_patterns_are_told_apart() {
    let mut all = transfers();
    for transfer in all.clone() {
        all.push(Transfer { pattern: Pattern::EastWest, ..transfer });
    }
    let text = transfer_table::all(&all, TextFormat::LINES);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for title in ["ntttcp\n", "ntttcp, east-west\n", "vpf, east-west: round trips"] {
        assert_eq!(text.matches(title).count(), 1, "{title}: {text}");
    }
    let mut run = results(Vec::new());
    run.transfers = all;
    let page = html::page(&run);
    check_html(&page).unwrap();
    assert!(page.contains("id=\"netperf-east-west\""));
}

#[test]
fn results_of_a_later_program_are_refused() {
    let text = json::results(&results(one_path())).unwrap();
    let later = text.replacen("\"schema\": 2", "\"schema\": 3", 1);
    let error = json::read(&later).unwrap_err().to_string();
    assert!(error.starts_with("results have schema 3, newer than 2"), "{error}");
}
