//! A man in the middle, who relays all messages and may change answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fdn_testkit::ports;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

/// Bytes to be replaced in answers, and their replacements.
type Changes = Vec<(&'static [u8], &'static [u8])>;

/// A relay over UDP and TCP at one address. It stops on drop.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    changed: Arc<AtomicU64>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Relay {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Relay {
    pub(crate) async fn start(server: SocketAddr, changes: Option<Changes>) -> Self {
        let address = SocketAddr::new(server.ip(), ports::free(&[server.ip()]));
        let udp = UdpSocket::bind(address).await.expect("a free address");
        let tcp = TcpListener::bind(address).await.expect("a free address");
        let (changes, changed) = (
            Arc::new(changes.unwrap_or_default()),
            Arc::new(AtomicU64::new(0)),
        );
        let tasks = [
            tokio::spawn(datagrams(
                udp,
                server,
                Arc::clone(&changes),
                Arc::clone(&changed),
            )),
            tokio::spawn(streams(tcp, server, changes, Arc::clone(&changed))),
        ];
        Self {
            address,
            changed,
            tasks,
        }
    }

    /// The number of changed answers.
    pub(crate) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }
}

fn change(answer: &mut [u8], changes: &Changes, changed: &AtomicU64) {
    for (from, to) in changes {
        let found = answer
            .windows(from.len())
            .position(|window| window == *from);
        if let Some(at) = found {
            answer[at..at + to.len()].copy_from_slice(to);
            changed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn datagrams(
    udp: UdpSocket,
    server: SocketAddr,
    changes: Arc<Changes>,
    changed: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 65_535];
    while let Ok((len, from)) = udp.recv_from(&mut buffer).await {
        let upstream = UdpSocket::bind((server.ip(), 0)).await.expect("a socket");
        upstream
            .send_to(&buffer[..len], server)
            .await
            .expect("sent");
        let (len, _) = upstream.recv_from(&mut buffer).await.expect("an answer");
        change(&mut buffer[..len], &changes, &changed);
        udp.send_to(&buffer[..len], from).await.expect("sent");
    }
}

async fn streams(
    tcp: TcpListener,
    server: SocketAddr,
    changes: Arc<Changes>,
    changed: Arc<AtomicU64>,
) {
    while let Ok((mut stream, _)) = tcp.accept().await {
        let (changes, changed) = (Arc::clone(&changes), Arc::clone(&changed));
        tokio::spawn(async move {
            let mut upstream = TcpStream::connect(server).await?;
            loop {
                let question = message(&mut stream).await?;
                upstream.write_all(&question).await?;
                let mut answer = message(&mut upstream).await?;
                change(&mut answer, &changes, &changed);
                stream.write_all(&answer).await?;
            }
            #[allow(unreachable_code, reason = "it says what the loop's errors are")]
            Ok::<(), std::io::Error>(())
        });
    }
}

/// A message with its length prefix.
async fn message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let len = stream.read_u16().await?;
    let mut message = len.to_be_bytes().to_vec();
    message.resize(2 + usize::from(len), 0);
    stream.read_exact(&mut message[2..]).await?;
    Ok(message)
}
