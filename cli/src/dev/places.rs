//! Finds the source lines that a function's output points at. A panic in Rust, an error in JavaScript and a traceback in Python name files and
//! line numbers; their text is not in the component, but it is in the function's folder.

use std::path::Path;

use super::sources::{Sources, Texts};
use crate::output::printable;

/// The most characters of a source line that are shown.
const SHOWN: usize = 160;

/// The source line that a line of output points at, such as `src/lib.rs:7: names[7]`, unless its file is no longer what was built. Blocks.
pub fn source_line(
    output: &str,
    folder: &Path,
    built: &Sources,
    texts: &mut Texts,
) -> Option<String> {
    let (path, number) = place(output)?;
    let text = texts.text(built, folder, Path::new(path))?;
    let line = text.lines().nth(number.checked_sub(1)?)?.trim();
    let shown: String = line.chars().take(SHOWN).collect();
    (!shown.is_empty()).then(|| printable(&format!("{path}:{number}: {shown}")))
}

/// A text of several lines, and below each the source line that it points at. Blocks.
pub fn with_source_lines(text: &str, folder: &Path, built: &Sources, texts: &mut Texts) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.push(line.to_owned());
        let source = source_line(line, folder, built, texts);
        lines.extend(source.map(|source| format!("    {source}")));
    }
    lines.join("\n")
}

/// The path and the line number that a line of output names.
fn place(output: &str) -> Option<(&str, usize)> {
    frame_of_python(output).or_else(|| position(output))
}

/// `File "/0/app.py", line 7, in handle`: componentize-py names the folders that modules are imported from /0, /1 and so on.
fn frame_of_python(output: &str) -> Option<(&str, usize)> {
    let frame = output.trim_start().strip_prefix("File \"/")?;
    let (path, rest) = frame.split_once("\", line ")?;
    let (root, path) = path.split_once('/')?;
    root.parse::<u32>().ok()?;
    Some((path, rest.split(',').next()?.parse().ok()?))
}

/// `panicked at src/lib.rs:7:9:` of Rust, or `answer@src/function.js:7:9` of JavaScript.
fn position(output: &str) -> Option<(&str, usize)> {
    let (start, column) = output.trim_end_matches(':').rsplit_once(':')?;
    let (start, line) = start.rsplit_once(':')?;
    column.parse::<u32>().ok()?;
    Some((start.rsplit(['@', ' ']).next()?, line.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::sources;

    #[test]
    fn each_language_names_places_in_its_own_way() {
        for (output, expected) in [
            (
                "thread '<unnamed>' (1) panicked at src/lib.rs:90:13:",
                Some(("src/lib.rs", 90)),
            ),
            ("panicked at src/lib.rs:90:13:", Some(("src/lib.rs", 90))),
            (
                "  nothing@src/function.js:97:3",
                Some(("src/function.js", 97)),
            ),
            ("@src/function.js:97:3", Some(("src/function.js", 97))),
            (
                "  File \"/0/app.py\", line 30, in handle",
                Some(("app.py", 30)),
            ),
            (
                "  File \"/1/deep/names.py\", line 4",
                Some(("deep/names.py", 4)),
            ),
            (
                "  File \"/python/lib/json/decoder.py\", line 4, in decode",
                None,
            ),
            ("called `Option::unwrap()` on a `None` value", None),
            ("KeyError: 'name'", None),
            ("Stack:", None),
            ("at 12:30", None),
            ("", None),
        ] {
            assert_eq!(place(output), expected, "{output}");
        }
    }

    #[test]
    fn a_source_line_is_shown_while_its_file_is_what_was_built() {
        let folder = tempfile::tempdir().expect("folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        write("app.py", "def handle():\n    raise ValueError(\"no\")\n");
        write("other.py", "\n");
        let built = sources::read(folder.path()).expect("read");
        let mut texts = Texts::default();
        let mut shown = |output: &str| source_line(output, folder.path(), &built, &mut texts);
        let frame = "  File \"/0/app.py\", line 2, in handle";
        let source = "app.py:2: raise ValueError(\"no\")";
        assert_eq!(shown(frame).as_deref(), Some(source));
        assert_eq!(
            with_source_lines(
                &format!("Traceback:\n{frame}\nValueError: no\n"),
                folder.path(),
                &built,
                &mut Texts::default()
            ),
            format!("Traceback:\n{frame}\n    {source}\nValueError: no")
        );
        for nothing in [
            "File \"/0/app.py\", line 0",
            "File \"/0/app.py\", line 3",
            "File \"/0/other.py\", line 1",
            "File \"/0/../app.py\", line 1",
            "File \"/0/no.py\", line 1",
        ] {
            assert_eq!(shown(nothing), None, "{nothing}");
        }
        write("app.py", "# saved since\ndef handle():\n");
        assert_eq!(shown(frame), None, "another file than the built one");
    }

    #[test]
    fn a_file_is_not_read_again_until_it_changes() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("app.py");
        std::fs::write(&path, "raise KeyError\n").expect("written");
        let built = sources::read(folder.path()).expect("read");
        let mut texts = Texts::default();
        let mut shown = || {
            let frame = "  File \"/0/app.py\", line 1";
            source_line(frame, folder.path(), &built, &mut texts).is_some()
        };
        let modified = path.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.expect("a time");
        let write = |text: &str, modified| {
            std::fs::write(&path, text).expect("written");
            let file = std::fs::File::options().write(true).open(&path);
            let changed = file.and_then(|file| file.set_modified(modified));
            changed.expect("the time is set");
        };
        assert!(shown());
        // Nothing but reading would tell.
        write("raise KeyErro1\n", modified);
        assert!(shown(), "it was read again");
        let later = modified + std::time::Duration::from_secs(1);
        write("raise KeyErro1\n", later);
        assert!(!shown(), "it is not the built one");
        write("raise KeyError\n", modified);
        assert!(shown(), "it is the built one again");
    }
}
