//! A sample of the questions, each as a JSON object in a line of its own: who asked (never the whole address), for what, and what the
//! answer followed from. Off unless `query_log.one_in` is set.
//!
//! A question is in the sample by its message id, which resolvers choose at random (RFC 5452, section 9.2), so that nothing is counted for
//! those that are not. Who answers never waits for who writes: lines go through a queue of bounded length, and those it has no room for are
//! dropped and counted.

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
use crate::policy::steer::{Pick, Steered};

/// What the answer for an app followed from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// The app. Names are there if a line is to be written: they are copies, and who only counts makes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<AppName>,
    /// The length of the longest prefix around the client that is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    matched: Option<u8>,
    scope: u8,
    /// Whether the query told a client subnet, so that the answer says the scope.
    #[serde(skip)]
    said: bool,
    /// The cluster whose gateways were named, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterId>,
}

impl Told {
    /// What is told of a choice; `said` is whether the answer says its scope, `names` whether a line is to be written.
    #[must_use]
    pub fn of(
        steered: &Steered<'_>,
        client: ClientPrefix,
        fleet: &Fleet,
        (said, names): (bool, bool),
    ) -> Self {
        let bound = steered.table.bindings.covering(client);
        Self {
            app: names.then(|| steered.table.app.as_ref().clone()),
            matched: bound.map(|(_, len)| len),
            scope: steered.scope,
            said,
            cluster: match &steered.pick {
                Pick::Live(index) if names => Some(fleet.id(*index).clone()),
                Pick::Live(_) | Pick::Dead(_) | Pick::NoAddress | Pick::Refused => None,
            },
        }
    }

    /// The length of the prefix that was bound, 0 if none was.
    #[must_use]
    pub fn matched(&self) -> u8 {
        self.matched.unwrap_or(0)
    }

    /// The scope, if the answer says it.
    #[must_use]
    pub fn scope_said(&self) -> Option<u8> {
        self.said.then_some(self.scope)
    }
}

/// One question and its answer.
#[derive(Debug, Serialize)]
pub struct Line {
    time: Timestamp,
    /// The client's network, as demand is counted by: who asked is nobody's business.
    client: ClientPrefix,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    rcode: &'static str,
    transport: &'static str,
    /// How long it took to answer.
    micros: u64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    told: Option<Told>,
}

impl Line {
    /// A line about a question, as it stands in its message, and the code of its answer. `None` if it cannot be read.
    #[must_use]
    pub fn new(
        question: &[u8],
        code: ResponseCode,
        client: ClientPrefix,
        transport: Transport,
        took: Duration,
        told: Option<Told>,
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
            told,
        })
    }
}

/// Takes lines from those who answer.
#[derive(Debug)]
pub struct QueryLog {
    one_in: u16,
    lines: SyncSender<Line>,
    dropped: IntCounter,
}

impl QueryLog {
    /// Starts a thread that writes lines to `out` for as long as there is somebody to tell them. One question in `one_in` is to be told;
    /// at most `queue` of them wait to be written.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(
        one_in: u16,
        queue: usize,
        dropped: IntCounter,
        out: impl Write + Send + 'static,
    ) -> std::io::Result<Self> {
        let (lines, told) = sync_channel(queue);
        std::thread::Builder::new()
            .name("query-log".to_owned())
            .spawn(move || write_all(&told, out))?;
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

    /// Tells of a question. Never waits.
    pub fn tell(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            self.dropped.inc();
        }
    }
}

/// Writes what comes until nobody is left to tell more. What cannot be written is lost: there is nobody to say so to.
fn write_all(told: &Receiver<Line>, mut out: impl Write) {
    let mut text = Vec::new();
    while let Ok(line) = told.recv() {
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

    /// Hands on what is written, and waits before each line until it may.
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
        let told = Told {
            app: "hello".parse().ok(),
            matched: Some(24),
            scope: 24,
            said: true,
            cluster: "eu-west".parse().ok(),
        };
        Line::new(
            b"\x05HeLLo\x02fn\x04test\x00\x00\x01\x00\x01",
            ResponseCode::NoError,
            "203.0.113.77".parse().expect("client"),
            Transport::Udp,
            Duration::from_micros(7),
            Some(told),
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
        // Nothing may be written yet: one line at most is in the writer's hand, two wait, and the others have no room.
        (0..10).for_each(|_| log.tell(line()));
        assert!((7..=8).contains(&dropped.get()), "{}", dropped.get());
        let kept = 10 - dropped.get();
        (0..kept).for_each(|_| allow.send(()).expect("it writes"));
        for _ in 0..kept {
            let bytes = lines
                .recv_timeout(Duration::from_secs(60))
                .expect("a line is written");
            assert!(bytes.ends_with(b"}\n"));
        }
        // Whoever writes ends with whoever told it.
        drop(log);
        assert!(lines.recv().is_err());
    }
}
