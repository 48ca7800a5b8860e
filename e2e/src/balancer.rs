//! A load balancer in front of controllers: a connection goes to one that said that it is ready when it was last asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// How often it is asked who is ready.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long an answer to that may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The balancer; its connections end with it.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    tasks: [AbortHandle; 2],
}

impl Balancer {
    /// Starts one before these controllers; none needs to listen yet.
    ///
    /// # Errors
    /// When no port of this machine's loopback is free.
    pub async fn start(controllers: &[SocketAddr]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("binding the balancer")?;
        let address = listener.local_addr()?;
        let client = fdn_service::http_client::builder()?
            .timeout(PATIENCE)
            .build()?;
        let ready = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let asking = ask(client, controllers.to_vec(), Arc::clone(&ready));
        let tasks = [tokio::spawn(asking), tokio::spawn(serve(listener, ready))];
        Ok(Self {
            address,
            tasks: tasks.map(|task| task.abort_handle()),
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn ask(
    client: reqwest::Client,
    controllers: Vec<SocketAddr>,
    ready: Arc<Mutex<Vec<SocketAddr>>>,
) {
    loop {
        let mut found = Vec::new();
        for controller in &controllers {
            let url = format!("http://{controller}/readyz");
            let answer = client.get(url).header("connection", "close").send().await;
            if answer.is_ok_and(|answer| answer.status() == 200) {
                found.push(*controller);
            }
        }
        *ready.lock().unwrap_or_else(PoisonError::into_inner) = found;
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn serve(listener: TcpListener, ready: Arc<Mutex<Vec<SocketAddr>>>) {
    let mut connections = JoinSet::new();
    let mut turn = 0_usize;
    loop {
        tokio::select! {
            near = listener.accept() => {
                let Ok((near, _)) = near else { continue };
                let mut known = ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
                turn = turn.wrapping_add(1);
                let first = turn % known.len().max(1);
                known.rotate_left(first);
                connections.spawn(carry(near, known));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries a connection to the first of these that takes it.
async fn carry(mut near: TcpStream, controllers: Vec<SocketAddr>) {
    for controller in controllers {
        if let Ok(mut far) = TcpStream::connect(controller).await {
            // Whoever breaks it off knows why.
            drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
            return;
        }
    }
}
