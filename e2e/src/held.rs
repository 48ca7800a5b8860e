//! A server where calls of a function wait until the test lets them go: what must be seen while a call runs depends on no time then.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use fdn_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nawake";
/// The largest request head.
const HEAD: usize = 16 << 10;

/// The server; it ends when dropped. Functions reach it with `fdn_testkit::components::outbound`, and must be allowed to.
pub struct Held {
    address: SocketAddr,
    open: watch::Sender<bool>,
    waiting: Arc<AtomicUsize>,
    came: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Held {
    /// Starts it; calls pass at once until [`Held::hold`].
    ///
    /// # Panics
    /// When loopback cannot be listened on.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a socket");
        let address = listener.local_addr().expect("an address");
        let (open, passes) = watch::channel(true);
        let (waiting, came) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let counts = (Arc::clone(&waiting), Arc::clone(&came));
        let task = tokio::spawn(serve(listener, passes, counts));
        Self {
            address,
            open,
            waiting,
            came,
            task,
        }
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on calls wait here.
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    /// Lets all calls go, and those that come later.
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// How many calls have come, held or not.
    #[must_use]
    pub fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    /// Waits until so many calls wait here.
    pub async fn waiting(&self, count: usize) {
        wait::until("calls to wait", async || {
            let now = self.waiting.load(Ordering::SeqCst);
            ensure!(now == count, "{now} wait, not {count}");
            Ok(())
        })
        .await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    open: watch::Receiver<bool>,
    (waiting, came): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) {
    while let Ok((connection, _)) = listener.accept().await {
        let (open, waiting, came) = (open.clone(), Arc::clone(&waiting), Arc::clone(&came));
        tokio::spawn(async move {
            // A caller that gives up is its own matter.
            drop(answer(connection, open, (&waiting, &came)).await);
        });
    }
}

async fn answer(
    mut connection: TcpStream,
    mut open: watch::Receiver<bool>,
    (waiting, came): (&AtomicUsize, &AtomicUsize),
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let end = connection.read_buf(&mut head).await? == 0;
        if end || head.len() > HEAD {
            return Ok(());
        }
    }
    came.fetch_add(1, Ordering::SeqCst);
    let held = !*open.borrow();
    if held {
        waiting.fetch_add(1, Ordering::SeqCst);
        // The sender is gone when the test has ended.
        let released = open.wait_for(|open| *open).await.map(drop);
        waiting.fetch_sub(1, Ordering::SeqCst);
        if released.is_err() {
            return Ok(());
        }
    }
    connection.write_all(ANSWER).await?;
    connection.shutdown().await
}
