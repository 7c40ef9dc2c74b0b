//! Rules for the source tree, checked on every run of the tests.
//!
//! Rules that a compiler or linter does not know: length of files and functions, crates that may
//! hold `unsafe` code, a doc comment for every module, comments and names in plain technical
//! English, documents that name only what exists. The forbidden words below are put together from
//! halves, so that this file has none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file; tests may be longer.
const FILE_LINES_MAX: usize = 600;
/// Columns of a comment, and of prose in documents. Rows of tables, headings and code may be wider.
const COLUMNS_MAX: usize = 100;
/// Words of ARCHITECTURE.md, which a new reader finishes in ten minutes with the README.
const ARCHITECTURE_WORDS_MAX: usize = 2000;
/// Characters of a cell in a table of a document; a longer one is a paragraph or a list.
const CELL_CHARACTERS_MAX: usize = 120;
/// Places where a public type of the same name may be defined, tests apart.
const NAME_PLACES_MAX: usize = 4;
/// Words that begin a question, not a comment: a comment begins with a noun or a verb.
const QUESTIONS: [&str; 7] = ["What", "Whether", "Who", "How", "Where", "That", "When"];
/// Lines of a function, from its `fn` to its last brace.
const FUNCTION_LINES_MAX: usize = 100;

/// The only files that may lift the workspace's ban on `unsafe` code.
const UNSAFE_ALLOWED: [&str; 8] = [
    "crates/guestmem/src/lib.rs",
    "crates/host/src/interrupt.rs",
    "crates/host/src/sandbox/trap.rs",
    "crates/host/src/sys.rs",
    "crates/host/src/tsc.rs",
    "crates/vduse/src/sys.rs",
    "crates/virtq/src/lib.rs",
    "crates/xdp/src/lib.rs",
];

/// Crates of the daemon; a peer must not be able to block its lanes and control threads.
const DAEMON: [&str; 8] =
    ["api", "daemon", "model", "engine", "guestmem", "port", "vduse", "vhost-user"];

/// Calls that another user of the file can block: those that take an inode's lock, read a pipe
/// or a socket without room for descriptors (which the kernel closes then, in the same thread), or
/// free memory. `vhost_user::foreign` has the thread for them.
const WAITING_CALLS: [&str; 10] = [
    "fallocate(",
    "ftruncate(",
    ".set_len(",
    "add_seals(",
    "io::read(",
    "libc::read(",
    "Read::read(",
    "stream.read(",
    "recvmsg(",
    "mm::munmap(",
];

/// Files that may make such a call, and the reason why no peer can block it.
const WAITING_ALLOWED: [(&str, &str, &str); 25] = [
    ("crates/api/src/run_dir.rs", "ftruncate(", "the lock file of the run directory"),
    ("crates/daemon/src/saved_rings.rs", ".set_len(", "a file of the run directory"),
    ("crates/daemon/src/handover/channel.rs", "recvmsg(", "the other process's, of ours"),
    ("crates/daemon/src/vdpa/open.rs", ".set_len(", "a file of the run directory"),
    ("crates/daemon/src/vdpa/worker.rs", "io::read(", "an eventfd of our own"),
    ("crates/api/src/guests/service.rs", "Read::read(", "a socket pair of our own"),
    ("crates/api/src/guests/line.rs", "stream.read(", "a `ByteStream`"),
    ("crates/engine/src/counters.rs", ".set_len(", "a file of the run directory"),
    ("crates/engine/src/lane/wake.rs", "io::read(", "an eventfd of our own"),
    ("crates/guestmem/src/io.rs", "libc::read(", "offered for taps"),
    ("crates/guestmem/src/io.rs", "recvmsg(", "has room for all descriptors"),
    ("crates/guestmem/src/mapping.rs", "add_seals(", "a new file that only we have"),
    ("crates/engine/src/counters.rs", "fallocate(", "a file of the run directory"),
    ("crates/guestmem/src/guard.rs", "fallocate(", "a file that only we have"),
    ("crates/guestmem/src/guard.rs", "ftruncate(", "a file that only we have"),
    ("crates/guestmem/src/mapping.rs", "fallocate(", "a new file that only we have"),
    ("crates/guestmem/src/mapping.rs", "ftruncate(", "a new file that only we have"),
    ("crates/guestmem/src/mapping.rs", "mm::munmap(", "`unmapped_by` says in which thread"),
    ("crates/port/src/capture/file.rs", ".set_len(", "the operator's file"),
    ("crates/port/src/capture/writer.rs", ".set_len(", "a thread of its own"),
    ("crates/port/src/tap.rs", "io::read(", "a tap of our own"),
    ("crates/port/src/vxlan/datagram_queue.rs", "io::read(", "an eventfd of our own"),
    ("crates/vduse/src/session.rs", "io::read(", "an eventfd of our own"),
    ("crates/vhost-user/src/foreign.rs", "recvmsg(", "has room for all descriptors"),
    ("crates/vhost-user/src/transfer.rs", "io::read(", "the session's thread"),
];

const FORBIDDEN_IN_CODE: [&str; 4] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("#[", "ignore"),
    concat!("allow(", "dead_code)"),
];

/// Directories that only the writer of a file has.
const FORBIDDEN_ANYWHERE: [&str; 4] =
    [concat!("/", "home/"), concat!("/", "root/"), concat!("/", "Users/"), concat!("/", "work/")];

/// First parts of the paths that documents name between backquotes.
const TOP_LEVEL: [&str; 8] =
    [".ci/", "crates/", "deploy/", "docs/", "fuzz/", "lab/peers/", "published/", "tests/"];

/// A file of the project: its path below the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    fn is_document(&self) -> bool {
        self.path.ends_with(".md")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every text file of the project; what builds and runs leave behind is not part of it.
fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    collect(&root(), "", &mut sources);
    assert!(sources.len() > 100, "the project was not found");
    sources
}

fn collect(dir: &Path, prefix: &str, sources: &mut Vec<Source>) {
    const LEFT_BEHIND: [&str; 7] =
        [".git", "target", "lab-results", "corpus", "artifacts", "__pycache__", "Cargo.lock"];
    let entries = fs::read_dir(dir).expect("a directory of the project");
    for entry in entries {
        let entry = entry.expect("an entry of a directory of the project");
        let name = entry.file_name().to_string_lossy().into_owned();
        if LEFT_BEHIND.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().expect("a kind of file");
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), sources);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            sources.push(Source { path, text });
        }
    }
}

/// Fails with one line for each finding.
fn none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// `path:line` for every line of `source` that has one of the words.
fn lines_with(source: &Source, words: &[&str]) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    let bad = lines.filter(|(_, line)| words.iter().any(|word| line.contains(word)));
    bad.map(|(i, line)| format!("{}:{}: {}", source.path, i + 1, line.trim())).collect()
}

#[test]
fn files_are_not_too_long() {
    let found = sources()
        .into_iter()
        .filter(|source| source.is_rust() && !source.is_test())
        .filter(|source| source.text.lines().count() > FILE_LINES_MAX)
        .map(|source| source.path);
    none("files of more than 600 lines", found.collect());
}

#[test]
fn functions_are_not_too_long() {
    let mut found = Vec::new();
    let mut seen = 0;
    for source in sources().iter().filter(|source| source.is_rust()) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (start, lines_long) in functions(&lines) {
            seen += 1;
            if lines_long > FUNCTION_LINES_MAX {
                let (path, line) = (&source.path, start + 1);
                found.push(format!("{path}:{line}: {lines_long} lines"));
            }
        }
    }
    assert!(seen > 500, "only {seen} functions were found");
    none("functions of more than 100 lines", found);
}

/// The functions with a body: where each begins, and how many lines it has. Relies on rustfmt: a
/// body ends at the first line that is a brace as far in as its `fn`.
fn functions<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let starts = (0..lines.len()).filter(|&i| is_function(lines[i].trim_start()));
    starts.filter_map(move |start| {
        let signature_end = (start..lines.len()).find(|&i| lines[i].ends_with(['{', '}', ';']))?;
        if !lines[signature_end].ends_with('{') {
            return None; // declared only, or all in one line
        }
        let indent = lines[start].len() - lines[start].trim_start().len();
        let end = format!("{}}}", &lines[start][..indent]);
        let length = lines[start..].iter().position(|line| *line == end)?;
        Some((start, length + 1))
    })
}

fn is_function(line: &str) -> bool {
    let Some(before) = line.split("fn ").next().filter(|before| before.len() < line.len()) else {
        return false;
    };
    let known = |word: &str| {
        matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub")
    };
    before.split_whitespace().all(|word| known(word) || word.ends_with(')'))
        && (before.is_empty() || before.ends_with(' '))
}

#[test]
fn unsafe_code_is_confined() {
    let lifted = concat!("allow(", "unsafe_code)");
    let mut found = Vec::new();
    for source in sources() {
        let allowed = UNSAFE_ALLOWED.contains(&source.path.as_str());
        if source.is_rust() && !allowed {
            found.extend(lines_with(&source, &[lifted]));
        }
        let is_crate = source.path.starts_with("crates/") && source.path.ends_with("/Cargo.toml");
        if is_crate && !source.text.contains("[lints]\nworkspace = true") {
            found.push(format!("{}: does not take the workspace's lints", source.path));
        }
    }
    none("unsafe code outside guestmem, virtq, xdp, four files of host and one of vduse", found);
}

#[test]
fn lanes_and_control_threads_make_no_call_that_a_peer_can_block() {
    let of_daemon =
        |path: &str| DAEMON.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    let (mut found, mut used) = (Vec::new(), 0);
    for mut source in sources() {
        if !source.is_rust() || source.is_test() || !of_daemon(&source.path) {
            continue;
        }
        let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
        let end = tests.iter().find_map(|begin| source.text.find(begin));
        source.text.truncate(end.unwrap_or(source.text.len()));
        for call in WAITING_CALLS {
            let lines = lines_with(&source, &[call]);
            let allowed = |(path, it, _): &(&str, &str, &str)| *path == source.path && *it == call;
            match WAITING_ALLOWED.iter().any(allowed) {
                true => used += usize::from(!lines.is_empty()),
                false => found.extend(lines),
            }
        }
    }
    none("calls that a peer can block: leave them to `vhost_user::Closer`", found);
    assert_eq!(
        used,
        WAITING_ALLOWED.len(),
        "remove from WAITING_ALLOWED what is not there any more"
    );
}

#[test]
fn every_module_says_what_it_is() {
    let is_module = |source: &Source| {
        let in_src = source.path.starts_with("crates/") && source.path.contains("/src/");
        in_src && source.is_rust() && !source.is_test()
    };
    let sources = sources();
    let silent =
        sources.iter().filter(|source| is_module(source) && !source.text.starts_with("//! "));
    none(
        "modules without a first line of documentation",
        silent.map(|source| source.path.clone()).collect(),
    );
}

#[test]
fn no_unfinished_code() {
    let sources = sources();
    let code = sources.iter().filter(|source| source.is_rust());
    none(
        "unfinished or silenced code",
        code.flat_map(|source| lines_with(source, &FORBIDDEN_IN_CODE)).collect(),
    );
}

#[test]
fn no_private_paths() {
    let sources = sources();
    let found = sources.iter().flat_map(|source| lines_with(source, &FORBIDDEN_ANYWHERE));
    none("paths that only their writer has", found.collect());
}

/// Text of a line that is a comment, without its mark and the space behind it.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["//!", "///", "//"].iter().find_map(|mark| line.strip_prefix(mark))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

#[test]
fn comments_and_prose_fit_in_the_columns() {
    let mut found = Vec::new();
    for source in sources() {
        let text_of: fn(&str) -> Option<&str> = match () {
            () if source.is_rust() => comment,
            () if source.is_document() => |line| Some(line),
            () => continue,
        };
        let mut is_code = false;
        for (at, line) in source.text.lines().enumerate() {
            let Some(text) = text_of(line) else {
                is_code = false;
                continue;
            };
            is_code ^= text.trim_start().starts_with("```");
            let is_exempt =
                is_code || text.starts_with(['|', '#', '<']) || text.starts_with("    ");
            // An address cannot be broken and may be longer.
            let is_one_word = text.split_whitespace().count() <= 2;
            if line.chars().count() > COLUMNS_MAX && !is_exempt && !is_one_word {
                found.push(format!("{}:{}: {text}", source.path, at + 1));
            }
        }
    }
    none("wider than 100 columns", found);
}

#[test]
fn comments_begin_with_a_noun_or_a_verb() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        for (at, line) in source.text.lines().enumerate() {
            let text = comment(line).unwrap_or_default();
            let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if QUESTIONS.contains(&first) {
                found.push(format!("{}:{}: {text}", source.path, at + 1));
            }
        }
    }
    none("comments that begin with a question word", found);
}

#[test]
fn cells_of_tables_fit_a_screen() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.is_document()) {
        for (at, line) in source.text.lines().enumerate().filter(|(_, line)| line.starts_with('|'))
        {
            // A bar that is escaped is part of its cell.
            let line = line.replace("\\|", "/");
            let longest = line.split('|').map(|cell| cell.trim().chars().count()).max();
            if longest > Some(CELL_CHARACTERS_MAX) {
                found.push(format!("{}:{}: {longest:?} characters", source.path, at + 1));
            }
        }
    }
    none("cells of more than 120 characters", found);
}

#[test]
fn a_name_means_one_thing() {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let sources = sources();
    for source in sources.iter().filter(|source| source.is_rust() && !source.is_test()) {
        for line in source.text.lines().map(str::trim_start).filter(|line| line.starts_with("pub"))
        {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let Some(_) = words.find(|word| ["struct", "enum", "trait", "type"].contains(word))
            else {
                continue;
            };
            let name = words.next().unwrap_or_default();
            places.entry(name).or_default().push(&source.path);
        }
    }
    assert!(places.len() > 500, "only {} names were found", places.len());
    let found = places.iter().filter(|(_, places)| places.len() > NAME_PLACES_MAX);
    let found = found.map(|(name, places)| format!("{name}: {}", places.join(", ")));
    none("names of types that are defined in more than four places", found.collect());
}

#[test]
fn links_lead_somewhere() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.is_document()) {
        let here = root().join(&source.path);
        let dir = here.parent().expect("a file is in a directory");
        for target in links(&source.text) {
            let outside = target.contains("://") || target.starts_with("mailto:");
            let path = target.split('#').next().unwrap_or_default();
            if !outside && !path.is_empty() && !dir.join(path).exists() {
                found.push(format!("{}: {target}", source.path));
            }
        }
    }
    none("links to files that do not exist", found);
}

/// The targets of `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("](").skip(1);
    after.filter_map(|rest| rest.split([')', ' ']).next())
}

#[test]
fn documents_name_only_files_that_exist() {
    let mut found = Vec::new();
    let mut seen = 0;
    for source in sources().iter().filter(|source| source.is_document()) {
        for path in quoted(&source.text).filter(|word| is_path(word)) {
            seen += 1;
            if !root().join(path).exists() {
                found.push(format!("{}: {path}", source.path));
            }
        }
    }
    assert!(seen > 30, "only {seen} paths were found");
    none("files that do not exist", found);
}

/// Texts between backquotes, in documents where code blocks are fenced or indented.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    let plain = text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    plain.flat_map(|line| line.split('`').skip(1).step_by(2))
}

fn is_path(word: &str) -> bool {
    TOP_LEVEL.iter().any(|top| word.starts_with(top)) && !word.contains([' ', '*', '<', '{', '$'])
}

#[test]
fn the_architecture_names_every_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut found = Vec::new();
    let words = text.split_whitespace().count();
    if words > ARCHITECTURE_WORDS_MAX {
        found.push(format!("{words} words; {ARCHITECTURE_WORDS_MAX} are allowed"));
    }
    for entry in fs::read_dir(root().join("crates")).expect("crates/") {
        let name = entry.expect("a crate").file_name();
        let name = name.to_string_lossy();
        if !text.contains(&format!("`crates/{name}`")) {
            found.push(format!("`crates/{name}` is not named"));
        }
    }
    none("ARCHITECTURE.md", found);
}

#[test]
fn documents_name_only_functions_that_exist() {
    let (mut found, mut seen) = (Vec::new(), 0);
    for document in ["ARCHITECTURE.md", "docs/threat-model.md"] {
        let text = fs::read_to_string(root().join(document)).expect("a document");
        for line in text.lines() {
            let code: String = quoted(line)
                .filter(|word| is_path(word) && word.ends_with(".rs"))
                .filter_map(|path| fs::read_to_string(root().join(path)).ok())
                .collect();
            let calls = quoted(line).filter_map(|word| word.strip_suffix("()"));
            for call in calls.filter(|_| !code.is_empty()) {
                seen += 1;
                let name = call.rsplit("::").next().unwrap_or(call);
                if !code.contains(&format!("fn {name}(")) && !code.contains(&format!("fn {name}<"))
                {
                    found.push(format!("{document}: no function {call} in the files of: {line}"));
                }
            }
        }
    }
    assert!(seen > 50, "only {seen} functions were found");
    none("functions that do not exist", found);
}

/// A test's name is its class, and its comment has the references.
#[test]
fn classes_of_vulnerabilities_have_tests_of_their_names() {
    let text = fs::read_to_string(root().join("docs/threat-model.md")).expect("the threat model");
    let (_, table) = text.split_once("### Classes of known").expect("a table of classes");
    let rows = table.split("\n### ").next().unwrap_or_default().lines();
    let (mut found, mut seen) = (Vec::new(), 0);
    for row in rows.filter(|row| row.starts_with("| ")).skip(1) {
        seen += 1;
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [class, references, test] = cells[..] else {
            found.push(format!("not three cells: {row}"));
            continue;
        };
        let name = class.to_lowercase().replace([' ', '-'], "_");
        let Some(path) = test.strip_suffix(&format!("` `{name}()`")) else {
            found.push(format!("{class}: its test must be `{name}()`"));
            continue;
        };
        let code = fs::read_to_string(root().join(path.trim_start_matches('`')));
        let code = code.unwrap_or_default();
        let before = code.split_once(&format!(" {name}(")).map_or("", |(before, _)| before);
        let own = before.rsplit("\n\n").next().unwrap_or_default();
        let comment: Vec<&str> = own.lines().filter_map(comment).collect();
        if !own.contains("#[test]") || !comment.join(" ").contains(references) {
            found.push(format!("{class}: no test {name} with a comment of {references} in {path}"));
        }
    }
    none("classes of vulnerabilities without a test", found);
    assert!(seen >= 37, "only {seen} classes were found");
}

/// Crates without examples in their documentation leave rustdoc out of `cargo test`: a run for each
/// takes more time than all unit tests.
#[test]
fn examples_in_documentation_are_tested() {
    let sources = sources();
    let untested: Vec<&str> = sources
        .iter()
        .filter(|source| source.text.contains("\ndoctest = false\n"))
        .filter_map(|source| source.path.strip_suffix("Cargo.toml"))
        .collect();
    assert!(untested.len() > 10, "only {} crates without examples were found", untested.len());
    let mut found = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let mut is_open = false;
        for (i, line) in source.text.lines().enumerate() {
            let Some(text) = line.trim().strip_prefix("///").or(line.trim().strip_prefix("//!"))
            else {
                continue;
            };
            let Some(language) = text.trim().strip_prefix("```") else { continue };
            is_open = !is_open;
            let is_example = is_open && !["text", "console", "toml"].contains(&language);
            if is_example && untested.iter().any(|krate| source.path.starts_with(krate)) {
                found.push(format!("{}:{}", source.path, i + 1));
            }
        }
    }
    none("examples in a crate with `doctest = false`; remove that line of its Cargo.toml", found);
}
