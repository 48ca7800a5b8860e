//! The body of a response, which returns its connection to the pool once it has been read to its end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{Connection, InFlightGuard};
use crate::body::{BoxError, Response};

struct PooledBody {
    body: Incoming,
    /// `None` once the connection was returned. Dropped with the body if that is not read to its end, which closes our half of the
    /// connection and so tells the instance that nobody is listening.
    held: Option<(Connection, InFlightGuard)>,
}

pub(super) fn pooled(
    response: http::Response<Incoming>,
    connection: Connection,
    in_flight: InFlightGuard,
) -> Response {
    response.map(|body| {
        let mut pooled = PooledBody {
            body,
            held: Some((connection, in_flight)),
        };
        pooled.return_if_ended();
        pooled.boxed_unsync()
    })
}

impl PooledBody {
    fn return_if_ended(&mut self) {
        if self.body.is_end_stream()
            && let Some((connection, in_flight)) = self.held.take()
        {
            in_flight.0.give_back(connection);
        }
    }
}

impl http_body::Body for PooledBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => self.return_if_ended(),
            Some(Err(_)) => {
                if let Some((connection, _)) = self.held.take() {
                    connection.end_call();
                }
            }
            None => {
                if let Some((connection, in_flight)) = self.held.take() {
                    in_flight.0.give_back(connection);
                }
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
