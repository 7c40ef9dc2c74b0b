//! A process that is killed while it applies, on a real file system.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::{Directory, Store};
use super::{apply, number_of};

/// Tells the test below that it is the process to be killed, and where.
const VICTIM: &str = "SHUNT_TEST_STORE_VICTIM";

/// Number of processes to kill.
const KILLS: u64 = 24;

/// Applies without end; only the process that is to be killed does.
#[test]
fn victim() {
    let Some(dir) = std::env::var_os(VICTIM).map(PathBuf::from) else {
        return;
    };
    let (mut store, unfinished) = Store::open(Directory::open(&dir).unwrap()).unwrap();
    if unfinished.is_some() {
        store.abandon().unwrap();
    }
    let mut number = number_of(&store).unwrap_or(0);
    loop {
        number = number.wrapping_add(1).max(1);
        apply(&mut store, number).unwrap();
        println!("applied {number}");
    }
}

/// Starts the victim, kills it after `life`, and gives the last number that it said it had applied.
fn kill_one(dir: &Path, life: Duration) -> Option<u8> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::killed::victim", "--nocapture"])
        .env(VICTIM, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(life);
    child.kill().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let last = said.filter_map(|line| line.strip_prefix("applied ")?.parse().ok()).last();
    child.wait().unwrap();
    last
}

#[test]
fn a_killed_process_leaves_the_old_or_the_new_state() {
    let dir = tempfile::tempdir().unwrap();
    let mut applied = 0;
    for kill in 0..KILLS {
        // Spread over many applies, and not in step with them.
        let life = Duration::from_micros(20_000 + kill * 7_919 % 60_000);
        let said = kill_one(dir.path(), life);
        let (store, _) =
            Store::open(Directory::open(dir.path()).unwrap()).expect("nothing is damaged");
        let number = number_of(&store);
        if let Some(said) = said {
            applied += 1;
            let next = said.wrapping_add(1).max(1);
            assert!(number == Some(said) || number == Some(next), "said {said}, found {number:?}");
        }
    }
    assert!(applied > 0, "no process lived long enough to apply anything");
}
