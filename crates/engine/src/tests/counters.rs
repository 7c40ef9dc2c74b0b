//! The counter file: another process reads names and values without knowing this version.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use proptest::prelude::*;

use crate::counters::{CounterBlock, Counters, CountersError, MAGIC, Reader, STEP, Schema};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn block(kind: &'static str, label: &'static str) -> (&'static str, &'static str) {
    (kind, label)
}

/// A counter file with these blocks.
fn create(
    path: Option<&Path>,
    schemas: &[Schema],
    blocks: &[(&'static str, &str)],
) -> Result<Vec<CounterBlock>, CountersError> {
    let mut counters = Counters::create(path, schemas.to_vec())?;
    let add = |(kind, label): &(&'static str, &str)| counters.add(kind, label).unwrap();
    Ok(blocks.iter().map(add).collect())
}

fn file(dir: &tempfile::TempDir) -> std::path::PathBuf {
    dir.path().join("counters")
}

#[test]
fn a_reader_sees_names_and_values_as_they_are_now() {
    let dir = tempfile::tempdir().unwrap();
    let many: Vec<String> = (0..40).map(|i| format!("many_{i}")).collect();
    let schemas = [("few", names(&["a", "b"])), ("many", many)];
    let specs = [block("many", "n/vf0"), block("few", "first"), block("few", "second")];
    let blocks = create(Some(&file(&dir)), &schemas, &specs).unwrap();
    let reader = Reader::open(&file(&dir)).unwrap();
    let zeros = reader.read();
    assert!(zeros.iter().all(|block| block.values.values().all(|value| *value == 0)));
    let descriptions = zeros.iter().map(|block| (&*block.kind, &*block.label, block.values.len()));
    let expected = [("many", "n/vf0", 40), ("few", "first", 2), ("few", "second", 2)];
    assert!(descriptions.eq(expected));

    blocks[0].add(39, 7);
    blocks[0].add(39, 1);
    blocks[1].set(0, u64::MAX);
    blocks[2].add_shared(1, 5);
    blocks[2].add_shared(1, 2u64.wrapping_neg());
    let now = reader.read();
    assert_eq!(now[0].values["many_39"], 8);
    assert_eq!(now[1].values["a"], u64::MAX);
    assert_eq!(now[2].values["b"], 3);
    assert_eq!(blocks[2].get(1), 3);
    let sum: u64 = now[0].values.values().sum();
    assert_eq!((sum, now[1].values["b"], now[2].values["a"]), (8, 0, 0));
}

#[test]
fn blocks_of_one_label_are_added_up() {
    let dir = tempfile::tempdir().unwrap();
    let specs = [block("few", "x"), block("few", "x"), block("few", "y")];
    let blocks = create(Some(&file(&dir)), &[("few", names(&["a", "b"]))], &specs).unwrap();
    blocks[0].set(0, 1);
    blocks[1].set(0, 2);
    blocks[0].add_shared(1, 1u64.wrapping_neg());
    blocks[1].add_shared(1, 1);
    blocks[2].set(0, 4);
    let reader = Reader::open(&file(&dir)).unwrap();
    let now = reader.read();
    assert_eq!(now.len(), 2);
    assert_eq!((now[0].values["a"], now[0].values["b"], now[1].values["a"]), (3, 0, 4));
    let each = reader.read_each();
    let each: Vec<_> = each.iter().map(|block| (&*block.label, block.values["a"])).collect();
    assert_eq!(each, [("x", 1), ("x", 2), ("y", 4)]);
}

#[test]
fn blocks_do_not_share_cache_lines() {
    let dir = tempfile::tempdir().unwrap();
    let specs = [block("few", "x"), block("few", "y")];
    let blocks = create(Some(&file(&dir)), &[("few", names(&["a"]))], &specs).unwrap();
    blocks[0].set(0, 0x1111);
    blocks[1].set(0, 0x2222);
    let bytes = std::fs::read(file(&dir)).unwrap();
    let at = |value: u64| {
        let mut words = bytes.chunks_exact(8);
        words.position(|word| word == value.to_le_bytes()).unwrap() * 8
    };
    assert_eq!(at(0x1111) % 128, 0);
    assert_eq!(at(0x2222), at(0x1111) + 128);
}

#[test]
fn readers_of_an_old_file_keep_its_counters() {
    let dir = tempfile::tempdir().unwrap();
    let make = || {
        let specs = [block("few", "x")];
        create(Some(&file(&dir)), &[("few", names(&["a"]))], &specs).unwrap()
    };
    let old = make();
    old[0].set(0, 1);
    let reader = Reader::open(&file(&dir)).unwrap();
    let new = make();
    new[0].set(0, 2);
    assert_eq!(reader.read()[0].values["a"], 1);
    assert_eq!(Reader::open(&file(&dir)).unwrap().read()[0].values["a"], 2);
}

#[test]
fn a_label_with_blanks_is_one_word() {
    let dir = tempfile::tempdir().unwrap();
    let specs = [block("few", "a b\nblock\tc")];
    create(Some(&file(&dir)), &[("few", names(&["a"]))], &specs).unwrap();
    let read = Reader::open(&file(&dir)).unwrap().read();
    assert_eq!(read.iter().map(|block| &block.label).collect::<Vec<_>>(), ["a_b_block_c"]);
}

#[test]
fn blocks_come_and_go_under_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let schemas = vec![("few", names(&["a", "b"])), ("one", names(&["c"]))];
    let mut counters = Counters::create(Some(&file(&dir)), schemas).unwrap();
    let first = counters.add("few", "first").unwrap();
    let second = counters.add("few", "second").unwrap();
    let reader = Reader::open(&file(&dir)).unwrap();
    first.set(0, 1);
    second.set(1, 2);
    counters.remove(first);
    let labels = || reader.read().into_iter().map(|block| block.label).collect::<Vec<_>>();
    assert_eq!(labels(), ["second"]);
    let one = counters.add("one", "one").unwrap();
    let third = counters.add("few", "third").unwrap();
    one.set(0, 7);
    assert_eq!(labels(), ["second", "one", "third"]);
    let now = reader.read();
    assert_eq!((now[0].values["b"], now[1].values["c"]), (2, 7));
    assert_eq!((now[2].values["a"], now[2].values["b"]), (0, 0), "the room of the first, emptied");
    third.set(0, 3);
    assert_eq!(reader.read()[2].values["a"], 3);
    let size = std::fs::metadata(file(&dir)).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&size) * 512 < 1 << 20, "the file is sparse");
}

#[test]
fn too_many_blocks_are_refused() {
    let mut counters = Counters::create(None, vec![("one", names(&["c"]))]).unwrap();
    let label = "x".repeat(250_000);
    let made = (0..9).map_while(|_| counters.add("one", &label).ok()).count();
    assert!((3..5).contains(&made), "{made} blocks fit into a text of a mebibyte");
    assert!(counters.add("one", "short").is_ok());
}

/// A hole in the file would be a page that has to be found when a lane counts.
#[test]
fn the_file_has_no_holes_where_blocks_are() {
    let dir = tempfile::tempdir().unwrap();
    let schemas = vec![("wide", (0..512).map(|i| format!("w{i}")).collect())];
    let mut counters = Counters::create(Some(&file(&dir)), schemas).unwrap();
    for number in 0..200u64 {
        counters.add("wide", &number.to_string()).unwrap();
        let need = (number + 1) * 4096;
        let room = std::fs::metadata(file(&dir)).unwrap().blocks() * 512;
        assert!(room >= need, "block {number}: {room} of {need} bytes are allocated");
        assert!(room < need + 4 * STEP, "block {number}: {room} bytes for {need}");
    }
}

#[test]
fn a_file_that_is_cut_off_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut counters = Counters::create(Some(&file(&dir)), vec![("one", names(&["a"]))]).unwrap();
    let block = counters.add("one", "x").unwrap();
    block.add(0, 1);
    assert!(!counters.is_lost());
    std::fs::File::options().write(true).open(file(&dir)).unwrap().set_len(0).unwrap();
    block.add(0, 1);
    assert!(counters.is_lost());
    block.add(0, 1);
    assert_eq!(block.get(0), 2, "it counts on, from 0");
}

#[test]
fn counters_without_a_file_work_as_well() {
    let blocks = create(None, &[("few", names(&["a"]))], &[block("few", "x")]).unwrap();
    blocks[0].add(0, 3);
    assert_eq!(blocks[0].get(0), 3);
}

#[test]
fn where_no_file_can_be_made_the_error_names_it() {
    let error = create(Some(Path::new("/proc/no/counters")), &[], &[]).unwrap_err();
    assert!(matches!(error, CountersError::Open { .. }));
    assert!(error.to_string().contains("/proc/no/counters"), "{error}");
}

/// Bytes of a file that begins like a counter file, with this text.
fn like_ours(text: &str, len: u64) -> Vec<u8> {
    let mut bytes = [MAGIC.to_le_bytes(), len.to_le_bytes(), [0; 8]].concat();
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(8) + 128, 0);
    bytes
}

#[test]
fn a_foreign_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let refuse = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Reader::open(&path).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        error
    };
    assert!(matches!(refuse(b""), CountersError::Map { .. }));
    let whole = "schema few a b\nblock few x 16\n";
    let len = whole.len() as u64;
    let bad = [
        b"short".to_vec(),
        b"#!/bin/sh\necho this is something else\n".to_vec(),
        MAGIC.to_le_bytes().to_vec(),
        like_ours(whole, u64::MAX),
        like_ours(whole, 1 << 60),
        like_ours(whole, 1 << 40),
        like_ours("something else\n", 15),
        like_ours("block few x 16\n", 15),
        like_ours("schema few a\nblock few x\n", 25),
        like_ours("schema few a\nblock few x -1\n", 28),
        like_ours("schema few a\nblock few x 99999999\n", 34),
        like_ours("schema few a\nblock few x 18446744073709551615\n", 46),
        like_ours("schema few a\nblock few x 2305843009213693952\n", 45),
        like_ours(whole, len)[..48].to_vec(),
    ];
    for bytes in bad {
        let error = refuse(&bytes);
        assert!(matches!(error, CountersError::Format { .. }), "{bytes:?}: {error}");
    }
    std::fs::write(&path, like_ours(whole, len)).unwrap();
    assert_eq!(Reader::open(&path).unwrap().read()[0].label, "x");
    let missing = Reader::open(&dir.path().join("no")).unwrap_err();
    assert!(matches!(missing, CountersError::Open { .. }));
}

#[test]
fn a_histogram_counts_by_powers_of_two() {
    let specs = [block("h", "x")];
    let blocks = create(None, &[("h", vec!["w".into(); 10])], &specs).unwrap();
    // Eight buckets in the middle of ten counters.
    for (value, bucket) in
        [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (63, 6), (64, 7), (u64::MAX, 7)]
    {
        let before = blocks[0].get(1 + bucket);
        blocks[0].count_log2(1, 8, value);
        assert_eq!(blocks[0].get(1 + bucket), before + 1, "{value}");
    }
    assert_eq!((0..10).map(|i| blocks[0].get(i)).sum::<u64>(), 10);
    assert_eq!((blocks[0].get(0), blocks[0].get(9)), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_value_has_one_bucket(values in prop::collection::vec(any::<u64>(), 1..50), buckets in 1_usize..65) {
        let blocks = create(None, &[("h", vec!["w".into(); 65])], &[block("h", "x")]).unwrap();
        for value in &values {
            blocks[0].count_log2(0, buckets, *value);
        }
        for i in 0..65 {
            let low = if i == 0 { 0 } else { 1_u64 << (i - 1) };
            let high = match i {
                _ if i + 1 == buckets => u64::MAX,
                0 => 0,
                _ => low + (low - 1),
            };
            let here = values.iter().filter(|value| (low..=high).contains(*value));
            let expected = if i < buckets { here.count() } else { 0 };
            prop_assert_eq!(blocks[0].get(i), expected as u64, "bucket {}", i);
        }
    }

    #[test]
    fn no_file_makes_a_reader_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), len in 0_u64..500) {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir);
        if bytes.len() >= 16 {
            bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            bytes[8..16].copy_from_slice(&len.to_le_bytes());
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(reader) = Reader::open(&path) {
            reader.read();
        }
    }
}

#[test]
fn a_file_that_shrinks_reads_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = create(Some(&file(&dir)), &[("few", names(&["a"]))], &[block("few", "x")]);
    let blocks = blocks.unwrap();
    blocks[0].set(0, 9);
    let copy = dir.path().join("copy");
    std::fs::copy(file(&dir), &copy).unwrap();
    let reader = Reader::open(&copy).unwrap();
    assert_eq!(reader.read()[0].values["a"], 9);
    let handle = std::fs::File::options().write(true).open(&copy).unwrap();
    handle.write_all_at(&[0], 0).unwrap();
    handle.set_len(0).unwrap();
    assert_eq!(reader.read()[0].values["a"], 0);
}

#[test]
fn another_process_goes_on_counting() {
    let dir = tempfile::tempdir().unwrap();
    let old_schema = [("port", names(&["frames", "gauge", "gone"]))];
    let specs = [block("port", "n/vf0"), block("port", "n/vf0"), block("port", "n/left")];
    let blocks = create(Some(&file(&dir)), &old_schema, &specs).unwrap();
    blocks.iter().for_each(|block| (0..3).for_each(|word| block.add(word, 5)));
    let counted = Reader::open(&file(&dir)).unwrap().read();

    let new_schema = vec![("port", names(&["new", "gauge", "frames"]))];
    let mut counters = Counters::create(Some(&file(&dir)), new_schema).unwrap();
    let added = ["n/vf0", "n/vf1"].map(|label| counters.add("port", label).unwrap());
    added[0].add(2, 1);
    counters.add_all(&counted, &["gauge"]);
    let now = Reader::open(&file(&dir)).unwrap().read();
    let values = |at: usize| ["new", "gauge", "frames"].map(|name| now[at].values[name]);
    assert_eq!(values(0), [0, 0, 11], "both blocks of the label, by the names of words");
    assert_eq!(values(1), [0, 0, 0], "only the block itself");
}
