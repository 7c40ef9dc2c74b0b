//! Counters and log2 histograms in a file that other processes map read-only.
//!
//! # Format
//! 64-bit little-endian counters. Counter 0 is [`MAGIC`]. Counter 1 is the length of the text that
//! begins at byte 24. Counter 2 is the version of the text, odd while the text is being changed:
//! blocks come and go with their ports. The text has two kinds of lines:
//!
//! ```text
//! schema KIND NAME NAME ...      names of the counters of a block of this kind, in order
//! block KIND LABEL INDEX         a block of this kind, named LABEL, begins at this counter
//! ```
//!
//! A label may have several blocks in a row, each with a writer of its own; readers add them up. So
//! a reader depends on no version of the daemon. Blocks begin on cache lines of their own. A
//! counter has one writer at a time (the lane that holds the ring), which adds with plain loads and
//! stores. A reader sees each counter whole; counters of one moment differ by at most a burst.
//!
//! Limits: [`TEXT_MAX`] bytes of text and [`BLOCKS_MAX`] blocks.
//!
//! Pages are allocated before they are written, [`STEP`] bytes at a time: on a full file system a
//! new block is refused. A page fault without free space would lose all counters
//! ([`Counters::is_lost`]).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use guestmem::{CounterMapping, MapError, Mapping};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::{Errno, retry_on_intr};

/// First word of a counter file: "SHUNTCTR".
pub const MAGIC: u64 = u64::from_le_bytes(*b"SHUNTCTR");

/// Maximum length of the text, bytes.
pub const TEXT_MAX: usize = 1 << 20;
/// Maximum number of blocks.
pub const BLOCKS_MAX: usize = 1 << 14;

/// Granularity of allocation in the file, bytes.
pub const STEP: u64 = 64 << 10;

/// Indices of the parts of the file in `allocated`.
const TEXT: usize = 0;
const BLOCKS: usize = 1;

const LINE_WORDS: usize = 128 / 8;
const TEXT_AT: usize = 24;
const TEXT_LEN: usize = 1;
const VERSION: usize = 2;
/// Attempts of a reader while the text is being changed, one a millisecond.
const TRIES: usize = 100;
/// Attempts to lock a new file.
const LOCK_ATTEMPTS: usize = 100;

/// Errors of a counter file.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// The file could not be opened or made.
    #[error("cannot open the counter file {path}")]
    Open {
        /// The file.
        path: String,
        /// The kernel's error.
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
    /// The file system has no room for the file's pages.
    #[error(
        "no room for {bytes} more bytes of the counter file {path}; free space on its file system"
    )]
    NoRoom {
        /// The file.
        path: String,
        /// Bytes that are missing.
        bytes: u64,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The file has no room for another block.
    #[error("too many ports; the counter file has room for {BLOCKS_MAX}")]
    TooMany,
    /// The file is something else.
    #[error("{path} is not a counter file of shunt")]
    Format {
        /// The file.
        path: String,
    },
}

/// The counters of one port or lane.
#[derive(Clone, Copy, Debug)]
pub struct CounterBlock {
    words: &'static [AtomicU64],
}

impl CounterBlock {
    pub(crate) const fn new(words: &'static [AtomicU64]) -> CounterBlock {
        CounterBlock { words }
    }

    /// Adds to a counter whose only writer is the caller.
    #[inline(always)]
    pub fn add(&self, index: usize, n: u64) {
        let word = &self.words[index];
        word.store(word.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds to a counter that several threads write. Not for the data path.
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

    /// Counts `value` in the log2 histogram at `first` with `buckets` counters: bucket 0 is zero,
    /// bucket i is 2^(i-1) to 2^i - 1, the last bucket takes the rest.
    #[inline(always)]
    pub fn count_log2(&self, first: usize, buckets: usize, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        self.add(first + bucket.min(buckets - 1), 1);
    }
}

/// Layout of one kind of block: its kind, and the names of its counters.
pub type Schema = (&'static str, Vec<String>);

/// A counter file and its only writer. The mapping stays for the life of the process.
pub struct Counters {
    /// Path for error messages.
    shown: String,
    file: File,
    /// Allocated bytes: of the text and its header, and of the blocks.
    allocated: [Range<u64>; 2],
    mapping: &'static Mapping,
    words: &'static [AtomicU64],
    schemas: Vec<Schema>,
    /// All blocks ever made: kind, label while in use, first counter.
    blocks: Vec<(&'static str, Option<String>, usize)>,
    /// Blocks in the order in which the text names them.
    order: Vec<usize>,
    /// First counter after the last block.
    end: usize,
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("blocks", &self.blocks).finish_non_exhaustive()
    }
}

impl Counters {
    /// Makes the counter file at `path`, or one in anonymous memory, without blocks.
    ///
    /// # Errors
    /// The file cannot be made, mapped or allocated.
    pub fn create(path: Option<&Path>, schemas: Vec<Schema>) -> Result<Counters, CountersError> {
        let shown = path.map_or("(memory)".into(), |path| path.display().to_string());
        let widest = schemas.iter().map(|(_, words)| words.len()).max().unwrap_or(0);
        let first = (TEXT_AT + TEXT_MAX).div_ceil(8).next_multiple_of(LINE_WORDS);
        let bytes = (first + BLOCKS_MAX * widest.next_multiple_of(LINE_WORDS)) as u64 * 8;
        let open = |source| CountersError::Open { path: shown.clone(), source };
        let file = open_file(path).map_err(open)?;
        file.set_len(bytes).map_err(open)?;
        let map = |source| CountersError::Map { path: shown.clone(), source };
        let mapping: &'static Mapping =
            Box::leak(Box::new(Mapping::new(file.as_fd(), bytes, 0).map_err(map)?));
        let words = mapping.slice(0, bytes as usize).and_then(|slice| slice.atomics_u64());
        let words = words.expect("a mapping is aligned to pages, and all of it is inside");
        let mut counters = Counters {
            shown,
            file,
            allocated: [0..0, first as u64 * 8..first as u64 * 8],
            mapping,
            words,
            schemas,
            blocks: Vec::new(),
            order: Vec::new(),
            end: first,
        };
        counters.allocate(TEXT, TEXT_AT + counters.text().len())?;
        counters.write_text();
        words[0].store(MAGIC, Ordering::Release);
        Ok(counters)
    }

    /// Adds a block of zeros. White space in a label becomes `_`. Add blocks of one kind and label
    /// one after the other.
    ///
    /// # Errors
    /// There are too many, or the file system is full.
    ///
    /// # Panics
    /// If there is no schema of this kind.
    pub fn add(&mut self, kind: &'static str, label: &str) -> Result<CounterBlock, CountersError> {
        let schema = self.schemas.iter().find(|(name, _)| *name == kind);
        let len = schema.expect("each block has a schema").1.len();
        let label: String =
            label.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
        let line = format!("block {kind} {label} {}\n", self.words.len()).len();
        let text = self.text().len() + line;
        if text > TEXT_MAX {
            return Err(CountersError::TooMany);
        }
        self.allocate(TEXT, TEXT_AT + text)?;
        let free = |(of, label, _): &(_, Option<_>, _)| *of == kind && label.is_none();
        let index = match self.blocks.iter().position(free) {
            Some(index) => index,
            None if self.blocks.len() == BLOCKS_MAX => return Err(CountersError::TooMany),
            None => {
                let end = self.end + len.next_multiple_of(LINE_WORDS);
                self.allocate(BLOCKS, end * 8)?;
                self.blocks.push((kind, None, self.end));
                self.end = end;
                self.blocks.len() - 1
            }
        };
        let at = self.blocks[index].2;
        let block = CounterBlock { words: &self.words[at..at + len] };
        block.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.blocks[index].1 = Some(label);
        self.order.push(index);
        self.write_text();
        Ok(block)
    }

    /// Returns `true` if readers no longer see the counters: the file was truncated, or its file
    /// system had no page for it. Counting continues in memory.
    pub fn is_lost(&self) -> bool {
        self.mapping.is_truncated()
    }

    /// Allocates pages for one of the two parts, up to the byte `end`.
    fn allocate(&mut self, part: usize, end: usize) -> Result<(), CountersError> {
        let at = self.allocated[part].end;
        if end as u64 <= at {
            return Ok(());
        }
        let most = [self.allocated[BLOCKS].start, self.mapping.size() as u64][part];
        let end = (end as u64).next_multiple_of(STEP).min(most);
        let bytes = end - at;
        let failed = |source| CountersError::NoRoom { path: self.shown.clone(), bytes, source };
        let all = FallocateFlags::empty();
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, all, at, bytes)) {
            // No counter is in these pages yet.
            Err(Errno::OPNOTSUPP) => {
                self.file.write_all_at(&vec![0; bytes as usize], at).map_err(failed)?;
            }
            other => other.map_err(|errno| failed(errno.into()))?,
        }
        self.allocated[part].end = end;
        Ok(())
    }

    /// Removes a block, which must have no writer left. Its room is reused.
    pub fn remove(&mut self, block: CounterBlock) {
        let same = |at: usize| std::ptr::eq(&self.words[at], &block.words[0]);
        let found = self.order.iter().position(|index| same(self.blocks[*index].2));
        if let Some(place) = found {
            let index = self.order.remove(place);
            self.blocks[index].1 = None;
            self.write_text();
        }
    }

    /// Adds the values of snapshots to the first block of the same kind and label, counter by
    /// counter by name, except those named. Values without a counter here are dropped.
    pub(crate) fn add_all(&self, counted: &[CounterSnapshot], except: &[&str]) {
        for snapshot in counted {
            let same = |(kind, label, _): &&(&str, Option<String>, usize)| {
                *kind == snapshot.kind && label.as_deref() == Some(&snapshot.label)
            };
            let mut blocks = self.order.iter().map(|index| &self.blocks[*index]);
            let Some((kind, _, at)) = blocks.find(same) else { continue };
            let schema = self.schemas.iter().find(|(name, _)| name == kind);
            for (i, name) in schema.iter().flat_map(|(_, names)| names.iter().enumerate()) {
                if let (Some(n), false) = (snapshot.values.get(name), except.contains(&&**name)) {
                    self.words[at + i].fetch_add(*n, Ordering::Relaxed);
                }
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (kind, words) in &self.schemas {
            text += &format!("schema {kind} {}\n", words.join(" "));
        }
        for (kind, label, at) in self.order.iter().map(|index| &self.blocks[*index]) {
            text += &format!("block {kind} {} {at}\n", label.as_deref().unwrap_or("-"));
        }
        text
    }

    /// Readers take a text only if its version was even and the same before and after.
    fn write_text(&mut self) {
        let text = self.text();
        let version = self.words[VERSION].load(Ordering::Relaxed);
        self.words[VERSION].store(version + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let place = self.mapping.slice(TEXT_AT as u64, text.len().min(TEXT_MAX));
        place.expect("the file begins with room for it").write_bytes(text.as_bytes());
        self.words[TEXT_LEN].store(text.len() as u64, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.words[VERSION].store(version + 2, Ordering::SeqCst);
    }
}

fn open_file(path: Option<&Path>) -> std::io::Result<File> {
    match path {
        Some(path) => {
            // A new file each time: a reader of the old one keeps its mapping. Never remove a path
            // that is not a regular file.
            match std::fs::symlink_metadata(path) {
                Ok(there) if there.is_file() => std::fs::remove_file(path)?,
                Ok(_) => return Err(std::io::ErrorKind::AlreadyExists.into()),
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                Err(_) => {}
            }
            // Never writable by others, whatever the umask: they could truncate it.
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o644).open(path)?;
            lock(&file);
            Ok(file)
        }
        None => {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            Ok(File::from(rustix::fs::memfd_create("shunt-counters", flags)?))
        }
    }
}

/// Locks the file while this process has it mapped: users that may only read it can then tell that
/// its daemon runs. They could prevent that, but nothing else depends on it.
fn lock(file: &File) {
    for _ in 0..LOCK_ATTEMPTS {
        if rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1)); // a reader has just looked
    }
}

/// A counter file, mapped read-only.
#[derive(Debug)]
pub struct Reader {
    words: CounterMapping,
    /// Version of the text that `blocks` was parsed from.
    version: u64,
    blocks: Vec<ReaderBlock>,
}

#[derive(Clone, Debug)]
struct ReaderBlock {
    kind: String,
    label: String,
    at: usize,
    names: Vec<String>,
}

impl ReaderBlock {
    fn is_inside(&self, words: &CounterMapping) -> bool {
        // Far below an overflow of the byte offset, and far above any counter file.
        let last = self.at.saturating_add(self.names.len());
        last < 1 << 40 && words.get(last.saturating_sub(1)).is_some()
    }
}

/// Counters of one block by name, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// Kind of the block.
    pub kind: String,
    /// Label of the block.
    pub label: String,
    /// Counters by name.
    pub values: BTreeMap<String, u64>,
}

impl Reader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Reader, CountersError> {
        let shown = path.display().to_string();
        let file = File::open(path)
            .map_err(|source| CountersError::Open { path: shown.clone(), source })?;
        let words = CounterMapping::open(file.as_fd())
            .map_err(|source| CountersError::Map { path: shown.clone(), source })?;
        let (version, blocks) = read_text(&words).ok_or(CountersError::Format { path: shown })?;
        Ok(Reader { words, version, blocks })
    }

    /// Reads all blocks; adds up neighbours of the same kind and label.
    pub fn read(&self) -> Vec<CounterSnapshot> {
        let mut sums: Vec<CounterSnapshot> = Vec::new();
        for block in self.read_each() {
            match sums.last_mut() {
                Some(last) if (&last.kind, &last.label) == (&block.kind, &block.label) => {
                    for (name, value) in block.values {
                        let sum = last.values.entry(name).or_default();
                        *sum = sum.wrapping_add(value);
                    }
                }
                _ => sums.push(block),
            }
        }
        sums
    }

    /// Reads all blocks: of a port one for each queue pair, in their order.
    pub fn read_each(&self) -> Vec<CounterSnapshot> {
        for _ in 0..TRIES {
            let known = self.words.get(VERSION) == Some(self.version);
            let new_text = if known { None } else { read_text(&self.words) };
            let (version, blocks) =
                new_text.as_ref().map_or((self.version, &self.blocks), |(v, blocks)| (*v, blocks));
            let snapshots = self.read_blocks(blocks);
            // A block may have been reused for another port meanwhile.
            fence(Ordering::Acquire);
            if self.words.get(VERSION) == Some(version) {
                return snapshots;
            }
        }
        self.read_blocks(&self.blocks)
    }

    fn read_blocks(&self, blocks: &[ReaderBlock]) -> Vec<CounterSnapshot> {
        let read = |block: &ReaderBlock| {
            let words = (block.at..).map(|at| self.words.get(at).unwrap_or(0));
            CounterSnapshot {
                kind: block.kind.clone(),
                label: block.label.clone(),
                values: block.names.iter().cloned().zip(words).collect(),
            }
        };
        blocks.iter().map(read).collect()
    }
}

/// Reads the text and its version. Waits while it is being changed; `None` after [`TRIES`], or for
/// another format.
fn read_text(words: &CounterMapping) -> Option<(u64, Vec<ReaderBlock>)> {
    for _ in 0..TRIES {
        words.get(0).filter(|magic| *magic == MAGIC)?;
        let version = words.get(VERSION)?;
        fence(Ordering::Acquire);
        let end = (TEXT_AT as u64).checked_add(words.get(TEXT_LEN)?)?;
        // Counters follow the text, so its last byte is in a whole one. Checked before `bytes`
        // allocates the length from a possibly broken file.
        words.get((end / 8) as usize)?;
        let text = words.bytes(TEXT_AT as u64, end)?;
        fence(Ordering::Acquire);
        if version % 2 == 0 && words.get(VERSION) == Some(version) {
            let blocks = parse(&String::from_utf8_lossy(&text))?;
            let inside = blocks.iter().all(|block| block.is_inside(words));
            return inside.then_some((version, blocks));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
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
