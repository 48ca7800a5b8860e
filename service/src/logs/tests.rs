//! The log filter; and that docs/operations/monitoring.md and the sources agree about the fields.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::{error, info};

use super::*;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&lines).into_owned()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn logged(filter: &str) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives(filter)))
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        error!(target: "lapin::channel", "NOT_FOUND - no queue");
        error!(target: "lapin::io_loop", "an error of the connection");
        info!("an event of ours");
    });
    lines.text()
}

#[test]
fn a_question_that_is_answered_with_no_is_no_error() {
    for filter in ["info", "warn,fdn_service=info"] {
        let text = logged(filter);
        assert!(!text.contains("no queue"), "{text}");
        assert!(text.contains("an error of the connection"), "{text}");
        assert!(text.contains("an event of ours"), "{text}");
    }
}

#[test]
fn who_asks_for_it_hears_it() {
    assert!(logged("info,lapin=debug").contains("no queue"));
}

const PAGE: &str = include_str!("../../../docs/operations/monitoring.md");
/// The fields that every line has in the JSON format.
const EVERY_LINE: [&str; 4] = ["timestamp", "level", "target", "message"];
/// Fields that occur in this many lines of the sources are common, so that people look for them.
const COMMON: usize = 3;

/// The names in the first column of the tables in the page's chapter on logs.
fn documented() -> BTreeSet<String> {
    let chapter = PAGE
        .split("\n## ")
        .find(|chapter| chapter.starts_with("Logs\n"))
        .expect("the page has a chapter on logs");
    let firsts = chapter
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|cell| cell.starts_with('`'));
    firsts
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned))
        .collect()
}

/// The arguments of a macro, given the text after its opening parenthesis.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut quoted, mut escaped) = (0, 0, false, false);
    let mut found = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => {
                found.push(text[start..at].trim());
                break;
            }
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The fields of each log line in a source: what precedes the message.
fn fields(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for level in ["error!(", "warn!(", "info!(", "debug!(", "trace!("] {
        for (at, _) in source.match_indices(level) {
            let before = source[..at].chars().next_back();
            if before.is_some_and(|before| before.is_alphanumeric() || before == '_') {
                continue;
            }
            let own = arguments(&source[at + level.len()..]);
            let own = own.iter().take_while(|field| !field.starts_with('"'));
            let own = own.filter(|field| !field.starts_with("target:"));
            found.extend(own.map(|field| {
                let name = field.split('=').next().unwrap_or(field);
                name.trim().trim_start_matches(['%', '?']).to_owned()
            }));
        }
    }
    found
}

/// The number of lines in the sources with each field, without tests.
fn emitted() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = std::fs::read_dir(root).unwrap();
    let mut waiting: Vec<_> = crates
        .map(|entry| entry.unwrap().path().join("src"))
        .filter(|path| path.is_dir())
        .collect();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let within = std::fs::read_dir(&path).unwrap();
            waiting.extend(within.map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let source = source.split("\nmod tests {").next().unwrap();
            for field in fields(source) {
                *found.entry(field).or_default() += 1;
            }
        }
    }
    found
}

#[test]
fn fields_are_read_from_sources() {
    let source = r#"warn!(target: "x", %app, node = %row.node, count = (1, ")").0, "a \"b\", {}", why.x); my_warn!(no, "x");
        tracing::debug!("nothing"); error!( %failure, ?again_in, "x" )"#;
    let mut found = fields(source);
    found.sort();
    assert_eq!(found, ["again_in", "app", "count", "failure", "node"]);
}

#[test]
fn the_page_has_the_fields_that_lines_have() {
    let (documented, emitted) = (documented(), emitted());
    let gone: Vec<_> = documented
        .iter()
        .filter(|name| !EVERY_LINE.contains(&name.as_str()) && !emitted.contains_key(*name))
        .collect();
    assert!(gone.is_empty(), "documented, and logged nowhere: {gone:?}");
    let untold: Vec<_> = emitted
        .iter()
        .filter(|(name, lines)| **lines >= COMMON && !documented.contains(*name))
        .collect();
    assert!(
        untold.is_empty(),
        "logged, and not in docs/operations/monitoring.md: {untold:?}"
    );
    // Otherwise it would be in the object twice.
    let twice = EVERY_LINE.iter().find(|name| emitted.contains_key(**name));
    assert_eq!(twice, None);
}

#[test]
fn a_line_for_machines_has_what_is_told_of_every_line() {
    let lines = Lines::default();
    let writer = lines.clone();
    let builder = tracing_subscriber::fmt().with_env_filter(EnvFilter::new("info"));
    let subscriber = json(builder.with_writer(move || writer.clone())).finish();
    tracing::subscriber::with_default(subscriber, || info!(app = %"hello", "deployed"));
    let line: BTreeMap<String, String> = serde_json::from_str(&lines.text()).unwrap();
    let mut names: Vec<_> = line.keys().map(String::as_str).collect();
    names.retain(|name| *name != "app");
    let mut every = EVERY_LINE;
    every.sort_unstable();
    assert_eq!(names, every);
    assert_eq!(
        (line["app"].as_str(), line["message"].as_str()),
        ("hello", "deployed")
    );
    assert_eq!(line["level"], "INFO");
    assert!(EVERY_LINE.iter().all(|name| documented().contains(*name)));
}
