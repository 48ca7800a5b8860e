//! The output of a function, split into lines and limited in size.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use fdn_core::InstanceId;
use fdn_core::api::LogStream;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};

/// Receives the lines of one call. It is called on the thread that runs the guest, so it must not block.
///
/// A call that fails writes exactly one line to [`LogStream::System`] with the reason; a denied outbound request writes
/// one as well. The gateway need not write them again.
pub trait LogSink: Send + Sync + 'static {
    /// Receives one line without its newline. Lines longer than the limit arrive truncated.
    fn line(&self, instance: InstanceId, stream: LogStream, text: &str);
}

/// Drops every line.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl LogSink for NoLog {
    fn line(&self, _instance: InstanceId, _stream: LogStream, _text: &str) {}
}

/// Keeps the lines of one call in memory; the per-call log limit bounds it.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<Vec<(LogStream, String)>>);

impl MemoryLog {
    /// The lines so far.
    #[must_use]
    pub fn lines(&self) -> Vec<(LogStream, String)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl LogSink for MemoryLog {
    fn line(&self, _instance: InstanceId, stream: LogStream, text: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((stream, text.to_owned()));
    }
}

/// The output of an instance. Guests keep their stream handles from one call to the next, so the streams live as long as
/// the instance, and the sink behind them is replaced for each call.
#[derive(Clone, Default)]
pub(crate) struct Output(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    sink: Option<Arc<dyn LogSink>>,
    instance: InstanceIdOrNil,
    line_limit: usize,
    left: usize,
    said_cut: bool,
    partial: [Vec<u8>; 2],
}

#[derive(Clone, Copy)]
struct InstanceIdOrNil(InstanceId);

impl Default for InstanceIdOrNil {
    fn default() -> Self {
        Self(InstanceId::from_uuid(uuid::Uuid::nil()))
    }
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_call(
        &self,
        sink: Arc<dyn LogSink>,
        instance: InstanceId,
        line_limit: usize,
        total: usize,
    ) {
        let mut state = self.lock();
        state.sink = Some(sink);
        state.instance = InstanceIdOrNil(instance);
        state.line_limit = line_limit;
        state.left = total;
        state.said_cut = false;
    }

    /// Writes out lines that lack their newline and releases the sink.
    pub(crate) fn end_call(&self) {
        let mut state = self.lock();
        state.flush(LogStream::Stdout);
        state.flush(LogStream::Stderr);
        state.sink = None;
    }

    pub(crate) fn stream(&self, stream: LogStream) -> GuestStream {
        GuestStream {
            output: self.clone(),
            stream,
        }
    }
}

impl State {
    fn partial(&mut self, stream: LogStream) -> &mut Vec<u8> {
        &mut self.partial[usize::from(stream == LogStream::Stderr)]
    }

    fn write(&mut self, stream: LogStream, bytes: &[u8]) {
        if self.sink.is_none() {
            return;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = self.line_limit.saturating_sub(self.partial(stream).len());
            let taken = text.len().min(room).min(self.left);
            self.partial(stream).extend_from_slice(&text[..taken]);
            self.left -= taken;
            // A newline counts as well; otherwise a guest could send any number of empty lines.
            if self.left == 0 && (taken < text.len() || ends) {
                self.write_truncation_notice(stream);
                return;
            }
            if ends {
                self.left -= 1;
                self.emit(stream);
            }
        }
    }

    fn flush(&mut self, stream: LogStream) {
        if !self.partial(stream).is_empty() {
            self.emit(stream);
        }
    }

    fn emit(&mut self, stream: LogStream) {
        let mut line = std::mem::take(self.partial(stream));
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if let Some(sink) = &self.sink {
            sink.line(self.instance.0, stream, &String::from_utf8_lossy(&line));
        }
        line.clear();
        *self.partial(stream) = line;
    }

    fn write_truncation_notice(&mut self, stream: LogStream) {
        if !self.said_cut {
            self.said_cut = true;
            self.flush(stream);
            if let Some(sink) = &self.sink {
                sink.line(
                    self.instance.0,
                    LogStream::System,
                    "… the rest of this call's output is cut",
                );
            }
        }
    }
}

/// Standard output or standard error of a guest.
#[derive(Clone)]
pub(crate) struct GuestStream {
    output: Output,
    stream: LogStream,
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        self.output.lock().write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(64 << 10)
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.output.lock().write(self.stream, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(
        line_limit: usize,
        total: usize,
        writes: &[(LogStream, &[u8])],
    ) -> Vec<(LogStream, String)> {
        let log = Arc::new(MemoryLog::default());
        let output = Output::default();
        output.begin_call(log.clone(), InstanceIdOrNil::default().0, line_limit, total);
        for (stream, bytes) in writes {
            output.lock().write(*stream, bytes);
        }
        output.end_call();
        output.lock().write(LogStream::Stdout, b"after the call\n");
        log.lines()
    }

    #[test]
    fn lines_are_put_together_and_kept_apart() {
        use LogStream::{Stderr, Stdout};
        assert_eq!(
            collect(
                100,
                1000,
                &[
                    (Stdout, b"one\ntw"),
                    (Stderr, b"err\r\n"),
                    (Stdout, b"o\n\nlast"),
                    (Stderr, b"\xff")
                ]
            ),
            [
                (Stdout, "one".to_owned()),
                (Stderr, "err".to_owned()),
                (Stdout, "two".to_owned()),
                (Stdout, String::new()),
                (Stdout, "last".to_owned()),
                (Stderr, "\u{fffd}".to_owned()),
            ]
        );
    }

    #[test]
    fn long_lines_and_long_output_are_cut() {
        use LogStream::{Stdout, System};
        assert_eq!(
            collect(
                4,
                10,
                &[
                    (Stdout, b"abcdefgh\nxy\n"),
                    (Stdout, b"12345678\nmore\n\n\n")
                ]
            ),
            [
                (Stdout, "abcd".to_owned()),
                (Stdout, "xy".to_owned()),
                (Stdout, "12".to_owned()),
                (System, "… the rest of this call's output is cut".to_owned()),
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn it_does_not_matter_in_which_pieces_a_guest_writes(
            text in "[a-c\n]{0,60}", cuts in proptest::collection::vec(0..60_usize, 0..6), line in 1..20_usize, total in 1..80_usize
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| (LogStream::Stdout, &bytes[cut[0]..cut[1]])).collect();
            let whole = collect(line, total, &[(LogStream::Stdout, bytes)]);
            proptest::prop_assert_eq!(&collect(line, total, &pieces), &whole);
            let bytes: usize = whole.iter().filter(|(s, _)| *s == LogStream::Stdout).map(|(_, t)| t.len()).sum();
            proptest::prop_assert!(bytes <= total);
        }
    }

    #[test]
    fn empty_lines_are_bounded_too() {
        assert_eq!(
            collect(10, 5, &[(LogStream::Stdout, &[b'\n'; 100])]).len(),
            6
        );
    }
}
