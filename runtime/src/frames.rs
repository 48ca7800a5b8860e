//! The names of a guest's innermost functions when it trapped.

use std::fmt::{self, Write};

use wasmtime::WasmBacktrace;

/// How many frames a log line names.
const FRAMES: usize = 6;
/// The most bytes of a function's name: a guest chooses its names, and a mangled one can be written out at great length.
const NAME_MAX: usize = 200;
/// What the names of the functions that begin a panic in Rust contain, for each way to mangle them.
const PANIC: [&str; 2] = ["4core9panicking", "core::panicking::"];

/// The index of a function, and its name if there is one.
type Frame<'a> = (u32, Option<&'a str>);

/// The names, such as `f, called by g`; empty if there are none.
pub(crate) fn names(backtrace: &WasmBacktrace) -> String {
    let frames: Vec<Frame<'_>> = backtrace
        .frames()
        .iter()
        .map(|frame| (frame.func_index(), frame.func_name()))
        .collect();
    let names: Vec<String> = past_panic(&frames)
        .iter()
        .take(FRAMES)
        .map(|(index, name)| name.map_or_else(|| format!("function {index}"), readable))
        .collect();
    names.join(", called by ")
}

/// The frames without those of a panic in Rust: about ten functions lie between its place and the trap, the same for every panic.
fn past_panic<'a, 'b>(frames: &'a [Frame<'b>]) -> &'a [Frame<'b>] {
    let Some(first) = frames.iter().position(in_panic) else {
        return frames;
    };
    let of_panic = frames[first..].iter().take_while(|frame| in_panic(frame));
    match &frames[first + of_panic.count()..] {
        [] => frames,
        callers => callers,
    }
}

fn in_panic((_, name): &Frame<'_>) -> bool {
    name.is_some_and(|name| PANIC.iter().any(|part| name.contains(part)))
}

/// A name as in the source, without the hash that a compiler adds.
fn readable(name: &str) -> String {
    let mut text = Bounded(String::new());
    // It fails when the text is full.
    let _ = write!(text, "{:#}", rustc_demangle::demangle(name));
    text.0
}

/// A text of at most [`NAME_MAX`] bytes, and then a mark.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = NAME_MAX.saturating_sub(self.0.len());
        if piece.len() <= room {
            self.0.push_str(piece);
            return Ok(());
        }
        self.0.push_str(&piece[..piece.floor_char_boundary(room)]);
        self.0.push('…');
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past<'a>(names: &[&'a str]) -> Vec<&'a str> {
        let frames: Vec<Frame<'_>> = names.iter().map(|name| (0, Some(*name))).collect();
        past_panic(&frames)
            .iter()
            .filter_map(|(_, name)| *name)
            .collect()
    }

    #[test]
    fn the_functions_of_a_panic_are_left_out() {
        let panic = "_RNvNtCs9pv848UzQwQ_4core9panicking9panic_fmt";
        let old_panic = "core::panicking::panic_fmt::h298c66fcaa0d3064";
        for panic in [panic, old_panic] {
            assert_eq!(past(&["abort", panic, panic, "f", "g"]), ["f", "g"]);
            assert_eq!(past(&["abort", panic]), ["abort", panic], "all there is");
            assert_eq!(
                past(&[panic, "f", panic, "g"]),
                ["f", panic, "g"],
                "the innermost panic"
            );
        }
        assert_eq!(past(&["f", "g"]), ["f", "g"]);
        assert_eq!(past_panic(&[(7, None)]).len(), 1, "without a name");
    }

    #[test]
    fn names_are_those_of_the_source_and_not_long() {
        let readable_names = [
            ("_ZN8function4deep17h298c66fcaa0d3064E", "function::deep"),
            (
                "_RNvNtCs9pv848UzQwQ_4core6option13unwrap_failed",
                "core::option::unwrap_failed",
            ),
            ("handle", "handle"),
            (
                "wasi:http/incoming-handler#handle",
                "wasi:http/incoming-handler#handle",
            ),
        ];
        for (name, expected) in readable_names {
            assert_eq!(readable(name), expected);
        }
        let long = readable(&"ä".repeat(NAME_MAX));
        assert_eq!(long, format!("{}…", "ä".repeat(NAME_MAX / 2)));
    }
}
