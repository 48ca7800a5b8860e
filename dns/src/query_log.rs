//! The query log: a sample of the questions, each as a JSON object on a line of its own: who asked (never the whole address), the question, and
//! what the answer was based on. Off unless `query_log.one_in` is set.
//!
//! The message id, which resolvers choose at random (RFC 5452, section 9.2), decides whether a question is in the sample, so that
//! the other questions cost no counting. Answering never waits for the writer: lines go through a bounded queue, and those that do not fit
//! are dropped and counted.

use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use fdn_core::{AppName, ClientPrefix, ClusterId, Timestamp};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RecordType};
use hickory_proto::serialize::binary::BinDecodable;
use prometheus::IntCounter;
use serde::Serialize;

use crate::metrics::{Transport, rcode_label};
use crate::policy::fleet::Fleet;
use crate::policy::steer::{Pick, SteeringDecision};

/// What the answer for an app was based on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SteeringNote {
    /// The app. Names are filled in only if a line is to be written: they are copies, which mere counting does not need.
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<AppName>,
    /// The length of the longest bound prefix around the client, in bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<u8>,
    scope: u8,
    /// Whether the query carried a client subnet, so that the answer carries the scope.
    #[serde(skip)]
    carries_scope: bool,
    /// The cluster whose gateways were named, if it is a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterId>,
}

impl SteeringNote {
    /// Describes a choice; `carries_scope` is whether the answer carries its scope, `names` whether a line is to be written.
    #[must_use]
    pub fn of(
        decision: &SteeringDecision<'_>,
        client: ClientPrefix,
        fleet: &Fleet,
        (carries_scope, names): (bool, bool),
    ) -> Self {
        let bound = decision.table.bindings.covering(client);
        Self {
            app: names.then(|| decision.table.app.as_ref().clone()),
            matched: bound.map(|(_, len)| len),
            scope: decision.scope,
            carries_scope,
            cluster: match &decision.pick {
                Pick::Live(index) if names => Some(fleet.id(*index).clone()),
                Pick::Live(_) | Pick::Dead(_) | Pick::NoAddress | Pick::Refused => None,
            },
        }
    }

    /// The length of the bound prefix, 0 if there is none.
    #[must_use]
    pub fn matched(&self) -> u8 {
        self.matched.unwrap_or(0)
    }

    /// The scope, if the answer carries it.
    #[must_use]
    pub fn sent_scope(&self) -> Option<u8> {
        self.carries_scope.then_some(self.scope)
    }
}

/// One question and its answer.
#[derive(Debug, Serialize)]
pub struct Line {
    time: Timestamp,
    /// The client's network, truncated as for demand, for the client's privacy.
    client: ClientPrefix,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    rcode: &'static str,
    transport: &'static str,
    /// The time taken to answer, in µs.
    micros: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    note: Option<SteeringNote>,
}

impl Line {
    /// Creates a line from the question section, as it stands in the message, and the response code. `None` if it cannot be parsed.
    #[must_use]
    pub fn new(
        question: &[u8],
        code: ResponseCode,
        client: ClientPrefix,
        transport: Transport,
        took: Duration,
        note: Option<SteeringNote>,
    ) -> Option<Self> {
        let (name, rest) = question.split_at_checked(question.len().checked_sub(4)?)?;
        let kind = RecordType::from(u16::from_be_bytes([rest[0], rest[1]]));
        Some(Self {
            time: fdn_service::now(),
            client: client.to_demand(),
            name: Name::from_bytes(name).ok()?.to_lowercase().to_string(),
            kind: kind.to_string(),
            rcode: rcode_label(code),
            transport: transport.label(),
            micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
            note,
        })
    }
}

/// The sending side of the query log.
#[derive(Debug)]
pub struct QueryLog {
    one_in: u16,
    lines: SyncSender<Line>,
    dropped: IntCounter,
}

impl QueryLog {
    /// Starts a thread that writes lines to `out` until the log is dropped. One question in `one_in` is sampled; at most `queue` lines wait to be
    /// written.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        one_in: u16,
        queue: usize,
        dropped: IntCounter,
        out: impl Write + Send + 'static,
    ) -> std::io::Result<Self> {
        let (lines, queued) = sync_channel(queue);
        std::thread::Builder::new()
            .name("query-log".to_owned())
            .spawn(move || write_all(&queued, out))?;
        Ok(Self {
            one_in,
            lines,
            dropped,
        })
    }

    /// Whether a question with this message id is in the sample.
    #[must_use]
    pub const fn samples(&self, id: u16) -> bool {
        self.one_in > 0 && id.is_multiple_of(self.one_in)
    }

    /// Queues a line. Never blocks; a line that does not fit is dropped and counted.
    pub fn enqueue(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.dropped.inc();
        }
    }
}

/// Writes lines until all senders are gone. Write errors are ignored: there is nowhere to report them.
fn write_all(queued: &Receiver<Line>, mut out: impl Write) {
    let mut text = Vec::new();
    while let Ok(line) = queued.recv() {
        text.clear();
        if serde_json::to_writer(&mut text, &line).is_ok() {
            text.push(b'\n');
            let _lost = out.write_all(&text).and_then(|()| out.flush()).is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// A writer that passes on what is written, and blocks before each line until it is allowed.
    struct Paper {
        may: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.may.recv().map_err(io::Error::other)?;
            self.written
                .send(bytes.to_vec())
                .map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line() -> Line {
        let note = SteeringNote {
            app: "hello".parse().ok(),
            matched: Some(24),
            scope: 24,
            carries_scope: true,
            cluster: "eu-west".parse().ok(),
        };
        Line::new(
            b"\x05HeLLo\x02fn\x04test\x00\x00\x01\x00\x01",
            ResponseCode::NoError,
            "203.0.113.77".parse().expect("client"),
            Transport::Udp,
            Duration::from_micros(7),
            Some(note),
        )
        .expect("a question")
    }

    #[test]
    fn a_line_is_an_object_without_the_clients_own_address() {
        let mut told = serde_json::to_value(line()).expect("JSON");
        let time = told.as_object_mut().and_then(|all| all.remove("time"));
        assert!(time.is_some_and(|time| !time.is_null()));
        let expected = serde_json::json!({
            "client": "203.0.113.0/24", "name": "hello.fn.test.", "type": "A", "rcode": "NOERROR", "transport": "udp",
            "micros": 7, "app": "hello", "matched": 24, "scope": 24, "cluster": "eu-west",
        });
        assert_eq!(told, expected);
        assert!(
            Line::new(
                b"\x05He",
                ResponseCode::NoError,
                "::/0".parse().expect("client"),
                Transport::Udp,
                Duration::ZERO,
                None
            )
            .is_none()
        );
    }

    #[test]
    fn who_answers_does_not_wait_for_who_writes() {
        let dropped = IntCounter::new("dropped", "dropped").expect("a counter");
        let ((allow, may), (written, lines)) = (channel(), channel());
        let log = QueryLog::start(4, 2, dropped.clone(), Paper { may, written }).expect("started");
        assert!(log.samples(0) && log.samples(8) && !log.samples(7));
        // Nothing may be written yet: at most one line is with the writer, two are queued, and the others are dropped.
        (0..10).for_each(|_| log.enqueue(line()));
        assert!((7..=8).contains(&dropped.get()), "{}", dropped.get());
        let kept = 10 - dropped.get();
        (0..kept).for_each(|_| allow.send(()).expect("it writes"));
        for _ in 0..kept {
            let bytes = lines
                .recv_timeout(Duration::from_secs(60))
                .expect("a line is written");
            assert!(bytes.ends_with(b"}\n"));
        }
        // The writer thread ends when the log is dropped.
        drop(log);
        assert!(lines.recv().is_err());
    }
}
