//! What keeps this crate pure, beside the lints of its `clippy.toml`: its dependencies, and words that have no place in it.

use std::fs;
use std::path::{Path, PathBuf};

/// Nothing here does I/O or starts a task. `rand` is there for the trait of generators, `rand_chacha` for searches that are given a seed.
const DEPENDENCIES: [&str; 5] = ["fdn-core", "petgraph", "rand", "rand_chacha", "thiserror"];

const BANNED: [(&str, &str); 14] = [
    ("async fn", "schedulers are synchronous"),
    (".await", "schedulers are synchronous"),
    ("std::fs", "schedulers do no I/O"),
    ("std::io", "schedulers do no I/O"),
    ("std::net", "schedulers do no I/O"),
    ("std::process", "schedulers do no I/O"),
    ("std::thread", "schedulers start nothing"),
    ("rand::rng", "generators are handed in"),
    ("std::time", "time is an argument"),
    ("thread_local!", "state is handed in"),
    ("HashMap", "its order differs from run to run"),
    ("HashSet", "its order differs from run to run"),
    ("RandomState", "it differs from run to run"),
    ("static mut", "state is handed in"),
];

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}

/// The code of a line, without comments: those may say what is not done.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

#[test]
fn no_source_names_a_clock_a_thread_a_file_or_a_hash_table() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    assert!(files.len() >= 20, "only {} sources were found", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        for (number, line) in text.lines().enumerate() {
            for (word, why) in BANNED {
                if code(line).contains(word) {
                    found.push(format!("{}:{}: {word}: {why}", file.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_dependencies_can_do_no_io() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = fs::read_to_string(manifest).expect("the manifest");
    let section = text
        .split("\n[dependencies]\n")
        .nth(1)
        .expect("dependencies");
    let names: Vec<&str> = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| {
            line.split(['.', ' ', '='])
                .next()
                .filter(|name| !name.is_empty())
        })
        .collect();
    let foreign: Vec<_> = names
        .iter()
        .filter(|name| !DEPENDENCIES.contains(name))
        .collect();
    assert!(foreign.is_empty(), "think twice before these: {foreign:?}");
}
