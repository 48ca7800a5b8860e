//! A slow link: a TCP proxy that forwards every byte after a fixed delay, in order, in both directions.
//!
//! The delay is what is emulated, so it is timed precisely. The bandwidth is limited by the data in flight: [`IN_FLIGHT_MAX`] chunks of at
//! most [`CHUNK`] bytes per direction of a connection; a faster sender waits, as on a real link whose receive window is full.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// The most chunks in flight in one direction of a connection.
pub const IN_FLIGHT_MAX: usize = 64;
/// The largest chunk in bytes.
pub const CHUNK: usize = 64 << 10;

/// A link to one address. Dropping it closes its connections.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    task: AbortHandle,
}

impl Link {
    /// Creates a link to `far` with `delay` in each direction; nothing needs to listen there yet.
    ///
    /// # Errors
    /// When no loopback port is free.
    pub async fn start(far: SocketAddr, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("binding the near end of a link")?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    near = listener.accept() => {
                        if let Ok((near, _)) = near {
                            connections.spawn(forward(near, far, delay));
                        }
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            task: task.abort_handle(),
        })
    }

    /// The address of its near end.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries one connection until both directions have ended or one has failed.
async fn forward(near: TcpStream, far: SocketAddr, delay: Duration) -> Result<()> {
    let far = TcpStream::connect(far).await?;
    // Small messages must not be held back: only the delay is emulated.
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::try_join!(
        one_way(near_in, far_out, delay),
        one_way(far_in, near_out, delay)
    )?;
    Ok(())
}

/// Carries one direction; the end of the stream is delayed like the data before it.
async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> Result<()> {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Bytes)>(IN_FLIGHT_MAX);
    let receive = async move {
        loop {
            let mut chunk = BytesMut::with_capacity(CHUNK);
            // An empty chunk is the end of the stream.
            from.read_buf(&mut chunk).await?;
            let is_end = chunk.is_empty();
            let due = Instant::now() + delay;
            if sender.send((due, chunk.freeze())).await.is_err() || is_end {
                return Ok::<_, anyhow::Error>(());
            }
        }
    };
    let deliver = async move {
        while let Some((due, chunk)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            if chunk.is_empty() {
                to.shutdown().await?;
            } else {
                to.write_all(&chunk).await?;
            }
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::try_join!(receive, deliver)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(40);

    #[tokio::test]
    async fn bytes_arrive_in_order_after_the_delay_and_the_end_after_them() {
        let far = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let link = Link::start(far.local_addr().expect("address"), DELAY).await;
        let link = link.expect("a link");
        let echo = tokio::spawn(async move {
            let (mut stream, _) = far.accept().await.expect("connected");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.expect("all of it");
            stream.write_all(&all).await.expect("written");
        });
        let mut near = TcpStream::connect(link.address()).await.expect("connected");
        let began = Instant::now();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (mut read, mut write) = near.split();
        let send = async {
            write.write_all(&sent).await.expect("written");
            write.shutdown().await.expect("ended");
        };
        let mut back = Vec::new();
        let (_, received) = tokio::join!(send, read.read_to_end(&mut back));
        received.expect("all of it");
        assert!(back == sent, "{} of {}", back.len(), sent.len());
        assert!(began.elapsed() >= DELAY * 2, "{:?}", began.elapsed());
        echo.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_link_whose_far_end_reads_nothing_takes_in_so_much_and_no_more() {
        let far = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let link = Link::start(far.local_addr().expect("address"), DELAY).await;
        let link = link.expect("a link");
        let near = TcpStream::connect(link.address()).await.expect("connected");
        let (_silent, _) = far.accept().await.expect("connected");
        let chunk = vec![0; CHUNK];
        let mut taken = 0;
        // The system's socket buffers at both ends are added; they grow to some MiB each.
        let most = (IN_FLIGHT_MAX + 2) * CHUNK + (64 << 20);
        // It is full if nothing was accepted for long after all data in flight must have arrived.
        while let Ok(writable) = tokio::time::timeout(DELAY * 50, near.writable()).await {
            writable.expect("the link lives");
            taken += near.try_write(&chunk).unwrap_or(0);
            assert!(taken < most, "{taken}");
        }
        assert!(taken > 0);
    }

    #[tokio::test]
    async fn a_connection_ends_where_nobody_listens_and_all_end_with_the_link() {
        let far = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = far.local_addr().expect("address");
        let link = Link::start(address, DELAY).await.expect("a link");
        let mut near = TcpStream::connect(link.address()).await.expect("connected");
        let (_far, _) = far.accept().await.expect("connected");
        drop(far);
        let mut refused = TcpStream::connect(link.address()).await.expect("connected");
        let ended = refused.read(&mut [0]).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        drop(link);
        let ended = near.read(&mut [0]).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    }
}
