//! Counters and log2 histograms in a file that another process maps read-only.
//!
//! # Format
//! Words of eight bytes, little-endian. Word 0 is [`MAGIC`], word 1 the length of the text that
//! begins at byte 16. The text has two kinds of lines:
//!
//! ```text
//! schema KIND NAME NAME ...      the words of a block of this kind, in order
//! block KIND LABEL WORD          such a block, named LABEL, begins at this word
//! ```
//!
//! A label may have several blocks in a row, each with a writer of its own: their words are to be
//! added up.
//! So a reader needs no version of us. Blocks begin on cache lines of their own. A counter has one
//! writer at a time (the lane that holds the ring), which adds with plain loads and stores; a
//! reader sees each word whole, and words of one moment apart by at most a burst.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use guestmem::{MapError, Mapping, ReadOnlyWords};

/// First word of a counter file: "SHUNTCTR".
pub const MAGIC: u64 = u64::from_le_bytes(*b"SHUNTCTR");

const LINE_WORDS: usize = 128 / 8;
const TEXT_AT: usize = 16;

/// Why a counter file could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// The file could not be opened or made.
    #[error("cannot open the counter file {path}")]
    Open {
        /// The file.
        path: String,
        /// The kernel's word.
        #[source]
        source: std::io::Error,
    },
    /// The file could not be mapped.
    #[error("cannot map the counter file {path}")]
    Map {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: MapError,
    },
    /// The file is something else.
    #[error("{path} is not a counter file of shunt")]
    Format {
        /// The file.
        path: String,
    },
}

/// What a block is to hold.
#[derive(Clone, Debug)]
pub struct BlockSpec {
    /// Its schema's name.
    pub kind: &'static str,
    /// Its own name, without spaces.
    pub label: String,
}

/// The counters of one port or lane.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    words: &'static [AtomicU64],
}

impl Block {
    /// Adds to a counter whose only writer is the caller.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        let word = &self.words[index];
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds to a counter that several threads write: not for the way of a frame.
    pub fn add_shared(&self, index: usize, n: u64) {
        self.words[index].fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Reads a counter.
    pub fn get(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Relaxed)
    }

    /// Counts `value` in the log2 histogram that begins at `first` and has `buckets` words:
    /// bucket 0 is zero, bucket i is 2^(i-1) to 2^i - 1, the last one takes the rest.
    #[inline(always)]
    pub fn count_log2(&self, first: usize, buckets: usize, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.add(first + bucket.min(buckets - 1), 1);
    }
}

/// Makes the counter file at `path` (or in anonymous memory), with zeroed blocks in the order of
/// `blocks`. `schemas` names the words of each kind. The memory stays for the process's life.
pub fn create(
    path: Option<&Path>,
    schemas: &[(&'static str, Vec<String>)],
    blocks: &[BlockSpec],
) -> Result<Vec<Block>, CountersError> {
    let shown = path.map_or("(memory)".into(), |path| path.display().to_string());
    let words_of = |kind: &str| {
        let schema = schemas.iter().find(|(name, _)| *name == kind);
        schema.map_or(0, |(_, words)| words.len())
    };
    let text_of = |base: usize| {
        let mut text = String::new();
        for (kind, words) in schemas {
            text += &format!("schema {kind} {}\n", words.join(" "));
        }
        let mut at = base;
        for block in blocks {
            text += &format!("block {} {} {at:010}\n", block.kind, block.label);
            at += words_of(block.kind).next_multiple_of(LINE_WORDS);
        }
        (text, at)
    };
    // The text's length does not depend on the numbers in it, which are padded.
    let base = (TEXT_AT + text_of(0).0.len()).div_ceil(8).next_multiple_of(LINE_WORDS);
    let (text, end) = text_of(base);

    let open = |source| CountersError::Open { path: shown.clone(), source };
    let file = open_file(path).map_err(open)?;
    file.set_len(end as u64 * 8).map_err(open)?;
    let map = |source| CountersError::Map { path: shown.clone(), source };
    let mapping: &'static Mapping =
        Box::leak(Box::new(Mapping::new(file.as_fd(), end as u64 * 8, 0).map_err(map)?));
    let all = mapping.slice(0, end * 8).and_then(|slice| slice.atomics_u64());
    let all = all.expect("a mapping is aligned to pages, and all of it is inside");
    let mut blocks_made = Vec::new();
    let mut at = base;
    for block in blocks {
        blocks_made.push(Block { words: &all[at..at + words_of(block.kind)] });
        at += words_of(block.kind).next_multiple_of(LINE_WORDS);
    }
    let place = mapping.slice(TEXT_AT as u64, text.len()).expect("the text was measured");
    place.write_bytes(text.as_bytes());
    all[1].store(text.len() as u64, Ordering::Relaxed);
    all[0].store(MAGIC, Ordering::Release);
    Ok(blocks_made)
}

fn open_file(path: Option<&Path>) -> std::io::Result<File> {
    match path {
        Some(path) => {
            // A new file each time: a reader of the old one keeps what it mapped. What is no file
            // is not ours to remove.
            match std::fs::symlink_metadata(path) {
                Ok(there) if there.is_file() => std::fs::remove_file(path)?,
                Ok(_) => return Err(std::io::ErrorKind::AlreadyExists.into()),
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                Err(_) => {}
            }
            OpenOptions::new().read(true).write(true).create_new(true).open(path)
        }
        None => {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            Ok(File::from(rustix::fs::memfd_create("shunt-counters", flags)?))
        }
    }
}

/// A counter file, mapped read-only.
#[derive(Debug)]
pub struct Reader {
    words: ReadOnlyWords,
    blocks: Vec<ReaderBlock>,
}

#[derive(Debug)]
struct ReaderBlock {
    kind: String,
    label: String,
    at: usize,
    names: Vec<String>,
}

impl ReaderBlock {
    fn is_inside(&self, words: &ReadOnlyWords) -> bool {
        // Far below what could overflow as a number of bytes, and far above any file of ours.
        let last = self.at.saturating_add(self.names.len());
        last < 1 << 40 && words.get(last.saturating_sub(1)).is_some()
    }
}

/// One block's words by name, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Schema's name.
    pub kind: String,
    /// The block's name.
    pub label: String,
    /// Words by name.
    pub values: BTreeMap<String, u64>,
}

impl Reader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Reader, CountersError> {
        let shown = path.display().to_string();
        let file = File::open(path)
            .map_err(|source| CountersError::Open { path: shown.clone(), source })?;
        let words = ReadOnlyWords::open(file.as_fd())
            .map_err(|source| CountersError::Map { path: shown.clone(), source })?;
        let format = || CountersError::Format { path: shown.clone() };
        if words.get(0) != Some(MAGIC) {
            return Err(format());
        }
        let len = words.get(1).ok_or_else(format)?;
        let end = (TEXT_AT as u64).checked_add(len).ok_or_else(format)?;
        // Words follow the text, so its last byte is in a whole one. Asked before `bytes`
        // allocates as much as a broken file says.
        words.get((end / 8) as usize).ok_or_else(format)?;
        let text = words.bytes(TEXT_AT as u64, end).ok_or_else(format)?;
        let blocks = parse(&String::from_utf8_lossy(&text)).ok_or_else(format)?;
        match blocks.iter().all(|block| block.is_inside(&words)) {
            true => Ok(Reader { words, blocks }),
            false => Err(format()),
        }
    }

    /// All blocks, now; neighbours of the same kind and label are added up.
    pub fn read(&self) -> Vec<Snapshot> {
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for block in &self.blocks {
            let words = (block.at..).map(|at| self.words.get(at).unwrap_or(0));
            let values = block.names.iter().cloned().zip(words);
            match snapshots.last_mut() {
                Some(last) if (&last.kind, &last.label) == (&block.kind, &block.label) => {
                    for (name, value) in values {
                        let sum = last.values.entry(name).or_default();
                        *sum = sum.wrapping_add(value);
                    }
                }
                _ => snapshots.push(Snapshot {
                    kind: block.kind.clone(),
                    label: block.label.clone(),
                    values: values.collect(),
                }),
            }
        }
        snapshots
    }
}

fn parse(text: &str) -> Option<Vec<ReaderBlock>> {
    let mut schemas: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut blocks = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next()? {
            "schema" => {
                schemas.insert(words.next()?, words.map(str::to_string).collect());
            }
            "block" => {
                let (kind, label) = (words.next()?, words.next()?);
                blocks.push(ReaderBlock {
                    kind: kind.to_string(),
                    label: label.to_string(),
                    at: words.next()?.parse().ok()?,
                    names: schemas.get(kind)?.clone(),
                });
            }
            _ => return None,
        }
    }
    Some(blocks)
}
