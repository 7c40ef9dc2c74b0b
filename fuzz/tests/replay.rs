//! Replay of the corpora, and of variations of them, without libFuzzer.

use std::path::Path;
use std::{fs, thread};

use fuzz::{Reached, TARGETS, Target};

/// Inputs of a target beside its corpus.
const VARIATIONS: usize = 200;
/// Longest tail of a variation, bytes.
const TAIL_MAX: u64 = 400;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// The first part of `input`, sometimes with a byte changed, then random bytes.
    fn variation(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input[..self.below(input.len() + 1)].to_vec();
        if self.next().is_multiple_of(2) && !bytes.is_empty() {
            let at = self.below(bytes.len());
            bytes[at] = self.next() as u8;
        }
        let tail = self.next() % TAIL_MAX;
        bytes.extend((0..tail).map(|_| self.next() as u8));
        bytes
    }
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an input").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("an input")).collect()
}

fn replay(target: &Target) {
    let corpus = corpus(target);
    let mut reached = Reached::default();
    for input in &corpus {
        reached.merge(&(target.run)(input));
    }
    for place in target.reaches {
        assert!(reached.times(place) > 0, "{}: never reached: {place}", target.name);
    }
    (target.run)(&[]);
    let mut random = Random(1);
    for _ in 0..VARIATIONS {
        let input = &corpus[random.below(corpus.len())];
        (target.run)(&random.variation(input));
    }
    println!("{}: {} inputs in its corpus, {reached:?}", target.name, corpus.len());
}

#[test]
fn targets_hold_for_their_corpora() {
    thread::scope(|scope| {
        let thread = |target: &'static Target| {
            let named = thread::Builder::new().name(target.name.to_owned());
            named.spawn_scoped(scope, || replay(target)).expect("a thread")
        };
        let threads: Vec<_> = TARGETS.iter().map(thread).collect();
        let failed = threads.into_iter().filter_map(|thread| {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            thread.join().err().map(|_| name)
        });
        let failed: Vec<String> = failed.collect();
        assert!(failed.is_empty(), "failed, see above: {}", failed.join(" "));
    });
}
