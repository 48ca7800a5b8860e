//! The output of instances: split into lines, bounded, with the last lines kept.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fdn_core::api::LogStream;
use serde::{Deserialize, Serialize};

use crate::spec::Description;

/// Limits on the part of an instance's output that is kept, for those who ask why it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogLimits {
    /// The most bytes of one line; the rest of a longer one is dropped.
    pub line: usize,
    /// The most lines kept.
    pub lines: usize,
    /// The most bytes of all kept lines together.
    pub bytes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            line: 4096,
            lines: 100,
            bytes: 64 << 10,
        }
    }
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// The stream to which it was written.
    pub stream: LogStream,
    /// The text, without the newline.
    pub text: String,
}

/// Receives every line of every instance as it is written. Must not block.
pub trait LogSink: Send + Sync {
    /// Receives one line of an instance.
    fn line(&self, instance: &Description, line: &LogLine);
}

/// Drops every line.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl LogSink for NoSink {
    fn line(&self, _instance: &Description, _line: &LogLine) {}
}

/// Assembles pieces of output into lines and keeps the last ones.
#[derive(Debug)]
pub struct LogTail {
    limits: LogLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// The incomplete lines of standard output and standard error.
    partial: [Vec<u8>; 2],
}

impl LogTail {
    /// An empty tail.
    #[must_use]
    pub fn new(limits: LogLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// Adds a piece of output and calls `each` for every line that it completes.
    pub fn write(&self, stream: LogStream, piece: &[u8], mut each: impl FnMut(&LogLine)) {
        let mut state = self.lock();
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match part.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (part, false),
            };
            let partial = &mut state.partial[usize::from(stream == LogStream::Stderr)];
            let room = self.limits.line.saturating_sub(partial.len());
            partial.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                let line = std::mem::take(partial);
                each(state.keep(stream, &line, &self.limits));
            }
        }
    }

    /// Adds a whole line and calls `each` with what is kept of it.
    pub fn line(&self, stream: LogStream, text: &str, each: impl FnOnce(&LogLine)) {
        let end = (0..=text.len().min(self.limits.line))
            .rev()
            .find(|at| text.is_char_boundary(*at));
        let text = &text[..end.unwrap_or(0)];
        each(self.lock().keep(stream, text.as_bytes(), &self.limits));
    }

    /// Completes lines that lack their newline, because the instance has ended.
    pub fn finish(&self, mut each: impl FnMut(&LogLine)) {
        let mut state = self.lock();
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            let partial = &mut state.partial[usize::from(stream == LogStream::Stderr)];
            let line = std::mem::take(partial);
            if !line.is_empty() {
                each(state.keep(stream, &line, &self.limits));
            }
        }
    }

    /// The kept lines, oldest first.
    #[must_use]
    pub fn lines(&self) -> Vec<LogLine> {
        self.lock().lines.iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn keep(&mut self, stream: LogStream, bytes: &[u8], limits: &LogLimits) -> &LogLine {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.bytes += text.len();
        self.lines.push_back(LogLine { stream, text });
        // The newest line stays, however small the limits are.
        while self.lines.len() > 1 && (self.lines.len() > limits.lines || self.bytes > limits.bytes)
        {
            if let Some(oldest) = self.lines.pop_front() {
                self.bytes -= oldest.text.len();
            }
        }
        self.lines.back().expect("a line was pushed just now")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(tail: &LogTail) -> Vec<String> {
        tail.lines().into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn pieces_become_lines_and_streams_stay_apart() {
        let tail = LogTail::new(LogLimits::default());
        let mut seen = Vec::new();
        tail.write(LogStream::Stdout, b"one\ntw", |l| seen.push(l.text.clone()));
        tail.write(LogStream::Stderr, b"err\r\n", |l| seen.push(l.text.clone()));
        tail.write(LogStream::Stdout, b"o\nrest", |l| seen.push(l.text.clone()));
        tail.finish(|l| seen.push(l.text.clone()));
        assert_eq!(seen, ["one", "err", "two", "rest"]);
        assert_eq!(texts(&tail), seen);
    }

    proptest! {
        #[test]
        fn bounds_hold_and_the_last_lines_are_kept(
            lines in prop::collection::vec("[a-z]{0,30}", 0..60),
            line in 1usize..20, count in 1usize..20, bytes in 20usize..200, cut in 1usize..17,
        ) {
            let tail = LogTail::new(LogLimits { line, lines: count, bytes });
            let whole: String = lines.iter().map(|l| format!("{l}\n")).collect();
            for piece in whole.as_bytes().chunks(cut) {
                tail.write(LogStream::Stdout, piece, |_| {});
            }
            let kept = texts(&tail);
            prop_assert!(kept.len() <= count);
            prop_assert!(kept.iter().map(String::len).sum::<usize>() <= bytes);
            let expected: Vec<String> = lines.iter().map(|l| l.chars().take(line).collect()).collect();
            prop_assert!(expected.ends_with(&kept));
            let longer = expected.len().checked_sub(kept.len() + 1).map(|from| &expected[from..]);
            if let Some(longer) = longer {
                let too_long = longer.len() > count || longer.iter().map(String::len).sum::<usize>() > bytes;
                prop_assert!(too_long, "{kept:?} could hold one line more");
            }
        }
    }
}
