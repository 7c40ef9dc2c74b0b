//! Tests of the screen, of sorting and of filtering.

use std::path::Path;

use api::stats::Stats;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;

use super::app::{App, Paths};
use super::columns::Column;
use super::screen::draw;
use crate::rates::tests::{Block, reading};

/// Counters of three guests after `times` seconds of the same traffic, and of `idle` others.
fn counters(times: u64, idle: usize) -> Stats {
    let web = [
        ("rings_attached", 2),
        ("tx_frames", 1_000_000 * times),
        ("tx_bytes", 64_000_000 * times),
        ("tx_cycles", 500_000_000 * times),
        ("tx_bursts", 40_000 * times),
        ("tx_backlog_bursts", 10_000 * times),
        ("rx_frames", 2_500_000 * times),
        ("rx_bytes", 160_000_000 * times),
        ("rx_uplink_frames", 2_000_000 * times),
        ("rx_uplink_bytes", 128_000_000 * times),
        ("rx_drop_no_buffer", 12_500 * times),
    ];
    let db = [
        ("rings_attached", 4),
        ("tx_frames", 10 * times),
        ("tx_bytes", 15_000 * times),
        ("tx_drop_spoofed_mac", 7),
        ("tx_fault_index_jump", 1),
    ];
    let others: Vec<String> = (0..idle).map(|i| format!("nic0/vf{i}")).collect();
    let mut blocks: Vec<Block<'_>> = vec![("port", "nic0/web", &web), ("port", "nic0/db", &db)];
    blocks.extend(others.iter().map(|name| ("port", name.as_str(), &[][..])));
    let lane = [
        ("frames", 1_000_010 * times),
        ("bursts", 40_000 * times),
        ("backlog_bursts", 10_000 * times),
        ("busy_cycles", 500_000_000 * times),
        ("idle_cycles", 1_000_000_000 * times),
        ("sleeps", 300 * times),
        ("tsc_hz", 2_000_000_000),
    ];
    blocks.push(("lane", "0", &lane));
    reading(&blocks)
}

/// The program after two readings, a second apart.
fn app(idle: usize) -> App {
    let mut app = App::new(Path::new("/run/shunt"), counters(1, idle));
    app.paths = Some(Paths::of(&json!({"adapters": [
        {"name": "web", "path": "vf", "vf": 3, "queue": null, "reason": "Supported"},
        {"name": "db", "path": "synthetic", "vf": null, "queue": null, "reason": "NoFreeVf"},
        {"name": "nic0-vf1", "path": "vf", "vf": 1, "queue": null, "reason": "Supported"},
    ]})));
    app.take(Ok(counters(2, idle)), 1.0);
    app
}

/// The terminal after a drawing.
fn terminal(app: &mut App, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal
}

/// Lines of the terminal, without blanks at their ends.
fn screen(app: &mut App, width: u16, height: u16) -> String {
    let terminal = terminal(app, width, height);
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        cells.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()
    };
    cells.chunks(width.into()).map(line).collect::<Vec<_>>().join("\n")
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            other => KeyCode::Char(other),
        };
        assert!(!app.is_ended_by(KeyEvent::new(code, KeyModifiers::NONE)), "{key}");
    }
}

fn names(app: &App) -> Vec<&str> {
    app.ports().iter().map(|port| port.rates.name.as_str()).collect()
}

#[test]
fn everything_is_on_a_terminal_of_80_columns_and_24_lines() {
    insta::assert_snapshot!(screen(&mut app(3), 80, 24), @r#"
    shunt top  /run/shunt                                               5 of 5 ports
    1.28 Gbit/s  2.50 Mpps  lost 12.5k/s   wire 1.02G  between guests 256M
    port*         path      why           tx/s  tx bps   rx/s  rx bps  drop/s  lane%
    nic0/db       synthetic NoFreeVf      10.0    120k      0       0       0    0.0
    nic0/vf0                                 0       0      0       0       0    0.0
    nic0/vf1      vf 1      -                0       0      0       0       0    0.0
    nic0/vf2                                 0       0      0       0       0    0.0
    nic0/web      vf 3      -            1.00M    512M  2.50M   1.28G   12.5k   25.0
    lane        busy%  idle% sleep% frames/s cyc/frame burst backlog% sleeps/s
    0            25.0   50.0   25.0    1.00M       500  25.0     25.0      300
    dropped because             drop/s        total most at port
    rx_no_buffer                 12.5k        25000 nic0/web
      Give the guest more CPU time, or a larger ring (`rx_queue_size` in QEMU).
    tx_spoofed_mac                   0            7 nic0/db
      Use the adapter's MAC, allow more with `--macs`, or set `--spoof-check off`.
    tx_index_jump                fault            1 nic0/db
      Update the guest's driver; a reset of its device starts the ring again.






    q quit  / filter  s sort: port  r reverse  u queues  Tab pane  arrows scroll
    "#);
}

#[test]
fn a_wide_terminal_has_all_columns_and_bars() {
    let text = screen(&mut app(1), 200, 50);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[15]), (50, ""));
    assert!(lines[49].starts_with("q quit"), "{text}");
    insta::assert_snapshot!(lines[..8].join("\n"), @r#"
    shunt top  /run/shunt                                                                                                                                                                       3 of 3 ports
    1.28 Gbit/s  2.50 Mpps  lost 12.5k/s   wire 1.02G  between guests 256M
    port*                                                 path      why           tx/s  tx bps   rx/s  rx bps  drop/s  lane%  backlog%   no buf%  rings
    nic0/db                                               synthetic NoFreeVf      10.0    120k      0       0       0    0.0       0.0       0.0      4
    nic0/vf0                                                                         0       0      0       0       0    0.0       0.0       0.0      0
    nic0/web                                              vf 3      -            1.00M    512M  2.50M   1.28G   12.5k   25.0      25.0       0.5      2
    lane        busy%  idle% sleep% frames/s cyc/frame burst backlog% sleeps/s busy | idle .
    0            25.0   50.0   25.0    1.00M       500  25.0     25.0      300 [||||||||||||........................            ]
    "#);
}

#[test]
fn every_size_is_drawn_and_the_keys_stay_on_the_last_line() {
    for (width, height) in [(1, 1), (20, 5), (60, 10), (80, 24), (300, 100)] {
        for focus in 0..3 {
            let mut app = app(255);
            app.focus = focus;
            let text = screen(&mut app, width, height);
            let last = text.lines().last().unwrap();
            assert!("q quit  / filter".starts_with(&last[..last.len().min(14)]), "{text}");
        }
    }
}

#[test]
fn ports_are_sorted_by_the_column_that_keys_choose() {
    let mut app = app(12);
    assert_eq!(names(&app)[..3], ["nic0/db", "nic0/vf0", "nic0/vf1"]);
    assert_eq!(names(&app)[12..], ["nic0/vf11", "nic0/web"]);
    press(&mut app, "sss");
    assert_eq!(app.sort, Column::Tx);
    assert_eq!(names(&app)[..2], ["nic0/web", "nic0/db"]);
    press(&mut app, "r");
    assert_eq!(names(&app)[12..], ["nic0/db", "nic0/web"]);
    press(&mut app, "SSSS");
    assert_eq!((app.sort, app.is_reversed), (Column::Rings, false));
    assert_eq!(names(&app)[..2], ["nic0/db", "nic0/web"]);
    app.sort = Column::Drops;
    assert_eq!(names(&app)[0], "nic0/web");
    app.sort = Column::Why;
    assert_eq!(names(&app)[13], "nic0/db", "the only one with a reason");
}

#[test]
fn the_filter_finds_names_paths_and_reasons() {
    let mut app = app(12);
    press(&mut app, "/NoFree");
    assert_eq!(names(&app), ["nic0/db"]);
    let dropped = app.dropped(&app.ports());
    let reasons: Vec<_> = dropped.iter().map(|row| (row.reason.as_str(), row.total)).collect();
    assert_eq!(reasons, [("tx_spoofed_mac", 7), ("tx_index_jump", 1)]);
    press(&mut app, "\n");
    assert!(!app.is_typing);
    assert!(!app.is_ended_by(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
    assert_eq!(names(&app).len(), 14);
    press(&mut app, "/vf q");
    assert!(names(&app).is_empty(), "keys are text while a filter is typed");
    assert!(!app.is_ended_by(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE)));
    assert_eq!(names(&app), ["nic0/vf1", "nic0/web"], "paths vf 1 and vf 3");
    press(&mut app, "\n");
    assert!(app.is_ended_by(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)));
    assert!(app.is_ended_by(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn the_pane_in_focus_scrolls_to_its_end_and_no_further() {
    let mut app = app(255);
    for key in [KeyCode::End, KeyCode::Down] {
        assert!(!app.is_ended_by(KeyEvent::new(key, KeyModifiers::NONE)));
        let text = screen(&mut app, 80, 24);
        assert!(text.contains("nic0/web") && text.contains("of 257"), "{text}");
    }
    let end = app.offsets[0];
    press(&mut app, "k");
    screen(&mut app, 80, 24);
    assert_eq!(app.offsets[0], end - 1);
    press(&mut app, "\t\t");
    let text = screen(&mut app, 80, 24);
    let spoofed = "Use the adapter's MAC, allow more with `--macs`, or set `--spoof-check off`.";
    assert!(text.contains(spoofed), "drops in focus: {text}");
}

#[test]
fn colors_repeat_what_the_text_says() {
    let colors = |app: &mut App| {
        let terminal = terminal(app, 80, 24);
        let cells = terminal.backend().buffer().content().iter();
        cells.filter(|cell| cell.fg != Color::Reset).count()
    };
    let mut app = app(3);
    assert!(colors(&mut app) > 0);
    let text = screen(&mut app, 80, 24);
    app.has_colors = false;
    assert_eq!(colors(&mut app), 0);
    assert_eq!(screen(&mut app, 80, 24), text);
}

#[test]
fn a_daemon_that_ends_is_told_and_one_that_starts_again_has_no_negative_rates() {
    let mut app = app(0);
    app.take(Err(anyhow::anyhow!("no counter file")), 1.0);
    app.is_running = false;
    let text = screen(&mut app, 80, 24);
    assert!(text.contains("the daemon has ended; waiting for it"), "{text}");
    assert!(text.contains("0 bit/s  0 pps  lost 0/s"), "{text}");
    app.take(Ok(counters(1, 0)), 1.0);
    app.is_running = true;
    assert_eq!(app.rates.ports[0].tx_frames_per_s, 0.0);
    app.take(Ok(counters(2, 0)), 1.0);
    assert!(screen(&mut app, 80, 24).contains("1.00M"), "rates again");
}

#[test]
fn each_queue_pair_has_a_row_with_the_path_of_its_port() {
    let of = |times: u64| {
        let values = [("tx_frames", 7 * times), ("rx_frames", 5 * times)];
        let names = ["nic0/web#0", "nic0/web#1", "nic0/uplink#0"];
        reading(&names.map(|name| ("port", name, &values[..])))
    };
    let mut app = app(0);
    press(&mut app, "u");
    assert!(app.by_queue);
    app.begin(Ok(of(1)));
    assert_eq!(app.rates.total.local_frames_per_s, 0.0, "no rates yet");
    app.take(Ok(of(2)), 1.0);
    let rows: Vec<_> = app.ports().iter().map(|port| (&*port.rates.name, port.path)).collect();
    assert_eq!(rows, [("nic0/uplink#0", ""), ("nic0/web#0", "vf 3"), ("nic0/web#1", "vf 3")]);
    assert_eq!(app.rates.total.local_frames_per_s, 10.0, "without the uplink's");
}
