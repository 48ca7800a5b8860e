//! The feed: what controllers send to machines at the edge over their one connection, and its framing.
//!
//! `GET /edge/v1/feed?since=REVISION` is answered with an endless stream of [`Frame`]s. After [`Frame::Hello`] come the changes since the
//! named revision, or, where those are no longer available, a snapshot: [`Frame::Snapshot`], all state for this machine, and
//! [`Frame::At`]. From then on each change is sent as it happens, and [`Frame::At`] as a heartbeat. A frame is JSON, cut into pieces of
//! at most [`PIECE_MAX`] bytes; each piece is preceded by four bytes, big-endian: its length, with the highest bit set if the frame
//! continues in the next piece.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fleet::FleetDesired;
use crate::id::SecretName;
use crate::message::{
    AppDesired, BindingsChanged, BindingsDesired, Message, NetworkDesired, TxtDesired,
};
use crate::policy::quota::AppQuotaUsage;
use crate::unit::{DurationMs, Revision};

/// The frame format that this build reads and writes. A machine names it in its request, and gets no other.
pub const SCHEMA: u16 = 1;
/// The most bytes of a piece.
pub const PIECE_MAX: usize = 256 << 10;
/// The number of bytes before each piece.
const HEADER: usize = 4;
/// Set in the header of a piece if the frame continues in the next one.
const MORE: u32 = 1 << 31;

/// The value of a secret in transit, protected by TLS only. `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plain(pub String);

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

/// The first frame of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The longest silence of the controller: a machine that hears nothing for twice as long has lost it.
    pub heartbeat: DurationMs,
}

/// An app with the values of its secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppFrame {
    /// The app's desired state, without secrets.
    pub desired: AppDesired,
    /// By function, in the order of `desired`: the values of its secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<BTreeMap<SecretName, Plain>>,
}

/// A message of the feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// The first frame of every feed.
    Hello(Hello),
    /// Begins a snapshot that is complete up to this revision and ends with [`Frame::At`]. Whatever the machine holds at this
    /// revision or an older one and is not in the snapshot has been deleted.
    Snapshot(Revision),
    /// The desired state of an app, for nodes.
    App(Box<AppFrame>),
    /// The desired state of the machines, restricted to what this one must know.
    Fleet(FleetDesired),
    /// The calls counted so far, over all nodes, for apps with a quota.
    Used(Vec<AppQuotaUsage>),
    /// The bindings of an app, for DNS servers.
    Bindings(BindingsDesired),
    /// Changes of an app's bindings, for DNS servers.
    BindingsChanged(BindingsChanged),
    /// The clusters and the latency map, for DNS servers.
    Network(NetworkDesired),
    /// The text records of one name, for DNS servers.
    Txt(TxtDesired),
    /// Everything up to this revision has been sent.
    At(Revision),
}

/// The reports of a machine, in one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The messages, in the order in which they arose; each is handled by itself.
    pub messages: Vec<Message>,
}

/// The feed cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// A piece claims more bytes than [`PIECE_MAX`].
    #[error("a piece of {0} bytes, where {PIECE_MAX} are the most")]
    Piece(usize),
    /// A frame is longer than the decoder's limit.
    #[error("a frame of more than {0} bytes")]
    Frame(usize),
    /// A frame is not JSON of a known form.
    #[error("a frame cannot be understood: {0}")]
    Json(#[from] serde_json::Error),
}

impl Frame {
    /// The frame as it is sent, cut into pieces.
    ///
    /// # Errors
    /// When it cannot be serialized, which would be a bug.
    pub fn encode(&self) -> Result<Vec<u8>, FeedError> {
        Ok(cut(&serde_json::to_vec(self)?))
    }
}

/// Cuts a frame's text into pieces.
fn cut(text: &[u8]) -> Vec<u8> {
    let pieces = text.len().div_ceil(PIECE_MAX).max(1);
    let mut out = Vec::with_capacity(text.len() + pieces * HEADER);
    for (n, piece) in text.chunks(PIECE_MAX).enumerate() {
        let more = if n + 1 < pieces { MORE } else { 0 };
        // A piece is far shorter than 2^31.
        let header = u32::try_from(piece.len()).unwrap_or(0) | more;
        out.extend_from_slice(&header.to_be_bytes());
        out.extend_from_slice(piece);
    }
    out
}

/// Reassembles frames from a byte stream.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    header: Vec<u8>,
    /// The number of bytes missing from the present piece, and whether the frame continues after it.
    piece: Option<(usize, bool)>,
    text: Vec<u8>,
}

impl Decoder {
    /// A decoder that accepts frames of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            header: Vec::new(),
            piece: None,
            text: Vec::new(),
        }
    }

    /// Consumes bytes from the front of `bytes` up to the end of the next frame; returns the frame and its length once it is complete.
    ///
    /// # Errors
    /// When the bytes are not a feed, or a frame is too long. The decoder cannot continue after that.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<(Frame, usize)>, FeedError> {
        while !bytes.is_empty() {
            let Some((left, more)) = self.piece else {
                self.take_header(bytes)?;
                continue;
            };
            let (here, rest) = bytes.split_at(left.min(bytes.len()));
            self.text.extend_from_slice(here);
            *bytes = rest;
            if here.len() < left {
                self.piece = Some((left - here.len(), more));
                continue;
            }
            self.piece = None;
            if !more {
                let text = std::mem::take(&mut self.text);
                return Ok(Some((serde_json::from_slice(&text)?, text.len())));
            }
        }
        Ok(None)
    }

    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<(), FeedError> {
        let (here, rest) = bytes.split_at((HEADER - self.header.len()).min(bytes.len()));
        self.header.extend_from_slice(here);
        *bytes = rest;
        let Ok(header) = <[u8; HEADER]>::try_from(self.header.as_slice()) else {
            return Ok(());
        };
        self.header.clear();
        let header = u32::from_be_bytes(header);
        let length = (header & !MORE) as usize;
        if length > PIECE_MAX || length == 0 {
            return Err(FeedError::Piece(length));
        }
        if self.text.len() + length > self.limit {
            return Err(FeedError::Frame(self.limit));
        }
        self.piece = Some((length, header & MORE != 0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AppBindings, Holders};

    fn frames() -> Vec<Frame> {
        let bindings = |n: u32| BindingsDesired {
            app: "hello".parse().expect("app"),
            revision: Revision(7),
            state: Some(AppBindings {
                host: "hello.fn.test".parse().expect("host"),
                ttl_s: 5,
                bindings: (0..n)
                    .map(|n| {
                        let [a, b, c, _] = (n << 8).to_be_bytes();
                        let prefix = format!("{}.{b}.{c}.0/24", 10 + a);
                        let cluster = "eu-west".parse().expect("cluster");
                        (prefix.parse().expect("prefix"), cluster)
                    })
                    .collect(),
                holders: Holders::EVERYWHERE,
            }),
        };
        vec![
            Frame::Hello(Hello {
                heartbeat: DurationMs::from_secs(2),
            }),
            Frame::Snapshot(Revision(7)),
            Frame::Bindings(bindings(3)),
            // Longer than two pieces.
            Frame::Bindings(bindings(20_000)),
            Frame::At(Revision(7)),
        ]
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let frames = frames();
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| frame.encode().expect("encoded"))
            .collect();
        assert!(bytes.len() > 2 * PIECE_MAX);
        for step in [1, 3, 5, 4096, PIECE_MAX + 1, bytes.len()] {
            let mut decoder = Decoder::new(64 << 20);
            let mut out = Vec::new();
            for mut chunk in bytes.chunks(step) {
                while let Some((frame, length)) = decoder.take(&mut chunk).expect("a feed") {
                    assert!(length > 0);
                    out.push(frame);
                }
            }
            assert_eq!(out, frames, "in steps of {step}");
        }
    }

    #[test]
    fn what_is_too_long_or_no_feed_is_refused_before_it_is_kept() {
        let long = frames()[3].encode().expect("encoded");
        let mut small = Decoder::new(PIECE_MAX + 10);
        assert!(matches!(
            small.take(&mut long.as_slice()),
            Err(FeedError::Frame(_))
        ));
        let html = b"<html><body>no feed</body></html>";
        assert!(Decoder::new(1 << 20).take(&mut html.as_slice()).is_err());
        let empty = [0_u8; 8];
        assert!(matches!(
            Decoder::new(1 << 20).take(&mut empty.as_slice()),
            Err(FeedError::Piece(0))
        ));
        let mut unknown = cut(b"{\"tomorrow\":1}");
        unknown.extend_from_slice(&[0; 4]);
        assert!(matches!(
            Decoder::new(1 << 20).take(&mut unknown.as_slice()),
            Err(FeedError::Json(_))
        ));
    }

    #[test]
    fn values_of_secrets_do_not_show() {
        assert_eq!(format!("{:?}", Plain("s3cret".into())), "Plain(…)");
    }
}
