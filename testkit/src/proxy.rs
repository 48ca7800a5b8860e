//! A proxy that forwards connections as requested by its clients (RFC 9110, 9.3.6: CONNECT; also plain HTTP requests), but only to allowed
//! addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// The largest head of a request in bytes.
const HEAD_MAX: usize = 4096;

/// A running proxy. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    forwarded: Arc<Mutex<Vec<String>>>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts a proxy that forwards to the addresses for which `allowed` is true and refuses others.
    ///
    /// # Errors
    /// When no loopback port is free.
    pub async fn start(allowed: impl Fn(&str) -> bool + Send + 'static) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("binding the proxy")?;
        let address = listener.local_addr()?;
        let forwarded = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&forwarded);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    near = listener.accept() => {
                        let Ok((mut near, _)) = near else { continue };
                        let Ok((to, head)) = requested_target(&mut near).await else { continue };
                        let allowed = allowed(&to);
                        if allowed {
                            noted.lock().unwrap_or_else(PoisonError::into_inner).push(to.clone());
                        }
                        connections.spawn(forward(near, to, head, allowed));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self {
            address,
            forwarded,
            task: task.abort_handle(),
        })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The addresses that it forwarded connections to, in order.
    #[must_use]
    pub fn forwarded(&self) -> Vec<String> {
        let forwarded = self.forwarded.lock();
        forwarded.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The address that a client requests, and the bytes to forward to it first.
async fn requested_target(near: &mut TcpStream) -> Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_MAX, "a long request");
        head.push(near.read_u8().await?);
    }
    let text = String::from_utf8(head)?;
    let mut words = text.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        bail!("it asks for nothing");
    };
    if method == "CONNECT" {
        return Ok((target.to_owned(), Vec::new()));
    }
    // Servers accept an absolute URL instead of a path (RFC 9112, 3.2.2).
    let rest = target.strip_prefix("http://").context("no URL")?;
    let to = rest.split('/').next().unwrap_or_default().to_owned();
    Ok((to, text.into_bytes()))
}

async fn forward(mut near: TcpStream, to: String, head: Vec<u8>, allowed: bool) -> Result<()> {
    if !allowed {
        near.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            .await?;
        return Ok(());
    }
    let mut far = TcpStream::connect(to).await?;
    if head.is_empty() {
        near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await?;
    }
    far.write_all(&head).await?;
    copy_bidirectional(&mut near, &mut far).await?;
    Ok(())
}
