//! Encoding of frames as gRPC messages.

use http::uri::PathAndQuery;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::proto::Frame;

/// The path of the gRPC method.
pub(crate) const PATH: PathAndQuery = PathAndQuery::from_static("/fdn.cluster.v1.Peers/Stream");

/// The initial buffer size in bytes, enough for a frame of a busy stream; grows for larger ones.
const BUFFER: usize = 32 * 1024;

/// Encodes and decodes frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = Frame;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        frame
            .encode(to)
            .map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}

impl Decoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Frame>, Status> {
        Frame::decode(from)
            .map(Some)
            .map_err(|error| Status::invalid_argument(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}
