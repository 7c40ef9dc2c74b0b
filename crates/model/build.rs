//! Generates the list of card profiles: the name and text of each file in `profiles`.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

fn main() {
    let folder =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../profiles");
    println!("cargo:rerun-if-changed={}", folder.display());
    let files = fs::read_dir(&folder).expect("the folder profiles is part of the sources");
    let mut paths: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "toml")) {
        let name = path.file_stem().expect("a file has a name").to_string_lossy();
        writeln!(list, "    ({name:?}, include_str!({path:?})),").expect("memory");
    }
    list.push(']');
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("profiles.rs"), list).expect("OUT_DIR is writable");
}
