//! Distance: a relay that hands TCP connections on, and each byte later than it came by half a round trip, in both directions. Setting a connection up
//! costs a whole one more, as the handshake would.
//!
//! It delays and does not limit: what came together leaves together, however much is on its way.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Pieces that may be on their way in one direction; who sends more waits.
const PIECES: usize = 256;
/// The largest piece.
const PIECE: usize = 16 << 10;

/// A relay, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Relay(JoinHandle<()>);

impl Drop for Relay {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Listens `at` an address for whoever is a round trip away from `to`.
pub(crate) async fn listen(
    at: SocketAddr,
    to: SocketAddr,
    round_trip: Duration,
) -> io::Result<Relay> {
    Ok(serve(TcpListener::bind(at).await?, to, round_trip))
}

fn serve(listener: TcpListener, to: SocketAddr, round_trip: Duration) -> Relay {
    Relay(tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            // Who breaks a connection off is told by its end.
            tokio::spawn(async move { drop(join(near, to, round_trip).await) });
        }
    }))
}

async fn join(near: TcpStream, to: SocketAddr, round_trip: Duration) -> io::Result<()> {
    sleep(round_trip).await;
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let one_way = round_trip / 2;
    // As soon as one direction has failed the other has nobody to talk to; one that has merely ended leaves it alone.
    tokio::try_join!(
        carry(near_in, far_out, one_way),
        carry(far_in, near_out, one_way)
    )
    .map(drop)
}

/// Hands on what comes, later by `delay`, and its end.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> io::Result<()> {
    let (pieces, mut under_way) = mpsc::channel::<(Instant, Bytes)>(PIECES);
    let read = async move {
        loop {
            let mut piece = BytesMut::with_capacity(PIECE);
            let length = from.read_buf(&mut piece).await?;
            let sent = pieces.send((Instant::now() + delay, piece.freeze())).await;
            if length == 0 || sent.is_err() {
                return Ok::<(), io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = under_way.recv().await {
            sleep_until(due).await;
            if piece.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&piece).await?;
        }
        Err(io::Error::from(ErrorKind::ConnectionAborted))
    };
    tokio::try_join!(read, write).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(60);

    /// A server that answers each byte with the same, and a relay before it.
    async fn relay() -> (Relay, SocketAddr) {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let to = server.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = server.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    drop(tokio::io::copy(&mut from, &mut to).await);
                    drop(to.shutdown().await);
                });
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        (serve(listener, to, ROUND_TRIP), at)
    }

    #[tokio::test]
    async fn an_answer_takes_a_round_trip_and_the_first_one_two() {
        let (_relay, at) = relay().await;
        let begin = Instant::now();
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let mut byte = [0];
        for trips in 2..5 {
            stream.write_all(&[trips]).await.expect("sent");
            stream.read_exact(&mut byte).await.expect("an answer");
            assert_eq!(byte, [trips]);
            assert!(begin.elapsed() >= ROUND_TRIP * u32::from(trips), "{trips}");
        }
    }

    #[tokio::test]
    async fn everything_comes_in_its_order_and_then_the_end() {
        let (_relay, at) = relay().await;
        let stream = TcpStream::connect(at).await.expect("connected");
        let (mut from, mut to) = stream.into_split();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let expected = sent.clone();
        let writing = tokio::spawn(async move {
            to.write_all(&sent).await.expect("sent");
            to.shutdown().await.expect("ended");
            to
        });
        let mut received = Vec::new();
        from.read_to_end(&mut received).await.expect("the end");
        assert!(received == expected, "{} bytes", received.len());
        drop(writing.await.expect("written"));
    }

    #[tokio::test]
    async fn where_nobody_listens_the_connection_ends() {
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let to = gone.local_addr().expect("an address");
        drop(gone);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        let _relay = serve(listener, to, ROUND_TRIP);
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let end = stream.read(&mut [0]).await;
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    }
}
