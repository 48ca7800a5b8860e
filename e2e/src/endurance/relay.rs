//! A link that can be cut: a TCP proxy that hands bytes on as long as the link is whole.
//!
//! While it is cut nothing ends and nothing arrives, as where a router loses packets: connections stand, what is sent waits, who connects gets no word. When
//! it is whole again everything goes on.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The largest piece that is handed on at once.
const PIECE: usize = 64 << 10;

/// A link to one address. Its connections end with it.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    task: AbortHandle,
}

impl Relay {
    /// A link to `far`, where nobody needs to listen yet; whole while `whole` says so.
    ///
    /// # Errors
    /// When loopback cannot be listened on.
    pub async fn start(far: SocketAddr, whole: watch::Receiver<bool>) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("binding the near end of a link")?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    near = listener.accept() => {
                        if let Ok((near, _)) = near {
                            connections.spawn(carry(near, far, whole.clone()));
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

    /// Where its near end listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries one connection until both directions have ended or one has broken.
async fn carry(near: TcpStream, far: SocketAddr, mut whole: watch::Receiver<bool>) -> Result<()> {
    whole.wait_for(|whole| *whole).await?;
    let far = TcpStream::connect(far).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::try_join!(
        one_way(near_in, far_out, whole.clone()),
        one_way(far_in, near_out, whole)
    )?;
    Ok(())
}

async fn one_way(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut whole: watch::Receiver<bool>,
) -> Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        // An end is a packet as well: it does not arrive either.
        let read = from.read(&mut piece).await;
        whole.wait_for(|whole| *whole).await?;
        match read? {
            0 => return Ok(to.shutdown().await?),
            length => to.write_all(&piece[..length]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Long enough to see that nothing comes.
    const NOTHING: Duration = Duration::from_millis(200);

    async fn echo(far: TcpListener) {
        while let Ok((mut stream, _)) = far.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                drop(tokio::io::copy(&mut read, &mut write).await);
            });
        }
    }

    #[tokio::test]
    async fn a_cut_link_says_nothing_and_goes_on_when_it_is_whole() {
        let far = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = far.local_addr().expect("address");
        tokio::spawn(echo(far));
        let (link, whole) = watch::channel(true);
        let relay = Relay::start(address, whole).await.expect("a link");
        let mut near = TcpStream::connect(relay.address())
            .await
            .expect("connected");
        let mut got = [0; 3];
        near.write_all(b"one").await.expect("sent");
        near.read_exact(&mut got).await.expect("back");
        link.send_replace(false);
        near.write_all(b"two").await.expect("sent");
        let mut late = TcpStream::connect(relay.address()).await.expect("taken");
        late.write_all(b"new").await.expect("sent");
        for stream in [&mut near, &mut late] {
            let none = tokio::time::timeout(NOTHING, stream.read_exact(&mut got)).await;
            assert!(none.is_err(), "{none:?}");
        }
        link.send_replace(true);
        near.read_exact(&mut got).await.expect("back");
        assert_eq!(&got, b"two");
        late.read_exact(&mut got).await.expect("back");
        assert_eq!(&got, b"new");
    }
}
