//! The feed: what machines at the edge are told through their one connection to a controller, and how it is cut into pieces.
//!
//! `GET /edge/v1/feed?since=REVISION` is answered with a stream of [`Frame`]s that never ends by itself. After [`Frame::Hello`] come changes since
//! the revision that was named, or a snapshot where those are not at hand any more: [`Frame::Snapshot`], all there is for this machine, and
//! [`Frame::At`]. From then on each change as it happens, and [`Frame::At`] as a heartbeat. A frame is JSON in pieces of at most [`PIECE_MAX`]
//! bytes; before each piece stand four bytes, big-endian: its length, and in the highest bit whether the frame goes on in the next one.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fleet::FleetDesired;
use crate::id::SecretName;
use crate::message::{
    AppDesired, BindingsChanged, BindingsDesired, Message, NetworkDesired, TxtDesired,
};
use crate::policy::quota::AppUsed;
use crate::unit::{DurationMs, Revision};

/// The form of frames that this build reads and writes. A machine names it, and is sent no other.
pub const SCHEMA: u16 = 1;
/// Bytes of a piece at most.
pub const PIECE_MAX: usize = 256 << 10;
/// Bytes before each piece.
const HEADER: usize = 4;
/// Set in the header of a piece that another one of the same frame follows.
const MORE: u32 = 1 << 31;

/// The value of a secret as it is on its way, inside TLS. `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plain(pub String);

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain(…)")
    }
}

/// What a controller says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// How long the controller is silent at most: whoever hears nothing for twice as long has lost it.
    pub heartbeat: DurationMs,
}

/// An app with the values of its secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppFrame {
    /// The app. Secrets are not in it.
    pub desired: AppDesired,
    /// Of each of its functions, in their order, the values of its secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<BTreeMap<SecretName, Plain>>,
}

/// What a controller tells a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// Comes first.
    Hello(Hello),
    /// A snapshot begins, complete up to this revision. Until [`Frame::At`] nothing else comes; what is held at an older or equal revision
    /// and does not come is gone.
    Snapshot(Revision),
    /// An app, for nodes.
    App(Box<AppFrame>),
    /// Machines, as far as this one must know of them.
    Fleet(FleetDesired),
    /// Calls of the apps that have a quota, on all nodes, as far as they are counted.
    Used(Vec<AppUsed>),
    /// What is answered for an app, for DNS servers.
    Bindings(BindingsDesired),
    /// How that changed.
    BindingsChanged(BindingsChanged),
    /// Clusters and latency map, for DNS servers.
    Network(NetworkDesired),
    /// Text records, for DNS servers.
    Txt(TxtDesired),
    /// All up to this revision was said.
    At(Revision),
}

/// What a machine reports, in one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Each as if it had come alone.
    pub messages: Vec<Message>,
}

/// Why a feed cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// A piece is longer than pieces are.
    #[error("a piece of {0} bytes, where {PIECE_MAX} are the most")]
    Piece(usize),
    /// A frame is longer than is taken.
    #[error("a frame of more than {0} bytes")]
    Frame(usize),
    /// A frame says nothing that is known.
    #[error("a frame cannot be understood: {0}")]
    Json(#[from] serde_json::Error),
}

impl Frame {
    /// The frame as it is sent.
    ///
    /// # Errors
    /// When it cannot be written, which would be a bug.
    pub fn encode(&self) -> Result<Vec<u8>, FeedError> {
        Ok(cut(&serde_json::to_vec(self)?))
    }
}

/// Puts a frame's text into pieces.
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

/// Puts frames together from bytes as they come.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    header: Vec<u8>,
    /// Bytes of the present piece that are to come, and whether another one follows it.
    piece: Option<(usize, bool)>,
    text: Vec<u8>,
}

impl Decoder {
    /// A decoder that takes frames of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            header: Vec::new(),
            piece: None,
            text: Vec::new(),
        }
    }

    /// Takes from the beginning of `bytes` what belongs to the next frame; the frame with its length, if it is whole.
    ///
    /// # Errors
    /// When the bytes are no feed, or a frame is too long. Nothing can be read after that.
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
