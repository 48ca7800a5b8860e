//! The process's single AMQP connection, made on demand and dropped when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fdn_core::message::Channel as Topic;
use lapin::options::ConfirmSelectOptions;
use lapin::{Channel, Connection, ConnectionProperties};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};
use url::Url;

use super::topology::Names;

/// The time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit for declaring what every process needs. A broker that stops answering must not keep the state locked, for everybody waits for it; new
/// queues take two seconds to be safe.
const DECLARE_TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for opening a channel, which the broker does at once. Everybody waits meanwhile, as for declaring.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failed attempt, the time during which every caller gets an error at once, without another attempt.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(500);

pub(super) struct Link {
    url: Url,
    name: String,
    handle: Handle,
    reconnects: AtomicU64,
    /// Guarded by a lock that is held while connecting and opening a channel: callers that arrive meanwhile wait for the same attempt.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    publisher: Option<Channel>,
    failed_at: Option<Instant>,
    ever_connected: bool,
}

impl Link {
    pub(super) fn new(url: Url, name: String, handle: Handle) -> Self {
        Self {
            url,
            name,
            handle,
            reconnects: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// The broker's address without credentials.
    pub(super) fn address(&self) -> String {
        format!(
            "{}:{}",
            self.url.host_str().unwrap_or("?"),
            self.url.port().unwrap_or(5672)
        )
    }

    pub(super) fn reconnects(&self) -> u64 {
        self.reconnects.load(Ordering::Relaxed)
    }

    /// The channel for publishing, in confirm mode.
    pub(super) async fn publisher(&self, names: &Names) -> Result<Channel, Option<lapin::Error>> {
        let mut state = self.state.lock().await;
        if let Some(channel) = &state.publisher
            && channel.status().connected()
        {
            return Ok(channel.clone());
        }
        self.connect(&mut state, names).await?;
        let channel = self.open(&mut state, true).await?;
        state.publisher = Some(channel.clone());
        Ok(channel)
    }

    /// A new channel on the connection.
    pub(super) async fn channel(&self, names: &Names) -> Result<Channel, Option<lapin::Error>> {
        let mut state = self.state.lock().await;
        self.connect(&mut state, names).await?;
        self.open(&mut state, false).await
    }

    /// Opens a channel on the connection, in confirm mode if it `confirms`.
    ///
    /// The connection is not in the state until the broker has answered. So one on which the broker is silent is not used again, whether the time
    /// limit ends the wait or the caller gives up before.
    async fn open(
        &self,
        state: &mut State,
        confirms: bool,
    ) -> Result<Channel, Option<lapin::Error>> {
        let connection = state.connection.take().ok_or(None)?;
        let opening = async {
            let channel = connection.create_channel().await?;
            if confirms {
                channel
                    .confirm_select(ConfirmSelectOptions::default())
                    .await?;
            }
            Ok::<_, lapin::Error>(channel)
        };
        let opened = tokio::time::timeout(CHANNEL_TIMEOUT, opening).await;
        match opened {
            Ok(opened) => {
                state.connection = Some(connection);
                Ok(opened?)
            }
            Err(_) => {
                warn!(
                    address = self.address(),
                    "the broker opens no channel within {CHANNEL_TIMEOUT:?}; connecting again"
                );
                state.publisher = None;
                state.failed_at = Some(Instant::now());
                Err(None)
            }
        }
    }

    /// Declares a consumer's queue and returns a channel for the consumer. Nobody else waits for the broker's answers, which the caller limits: a queue
    /// that elects its leader may take longer than [`CHANNEL_TIMEOUT`].
    pub(super) async fn consumer(
        &self,
        names: &Names,
        topic: Topic,
        consumer: &str,
    ) -> Result<Channel, Option<lapin::Error>> {
        let connection = {
            let mut state = self.state.lock().await;
            self.connect(&mut state, names).await?;
            state.connection.clone().ok_or(None)?
        };
        names.declare_consumer(&connection, topic, consumer).await?;
        Ok(connection.create_channel().await?)
    }

    /// Gives up the publishing channel after a failure, and the connection with it, because it is most likely the cause.
    pub(super) async fn reset(&self) {
        let mut state = self.state.lock().await;
        state.publisher = None;
        state.connection = None;
    }

    async fn connect(&self, state: &mut State, names: &Names) -> Result<(), Option<lapin::Error>> {
        if state
            .connection
            .as_ref()
            .is_some_and(|c| c.status().connected())
        {
            return Ok(());
        }
        (state.connection, state.publisher) = (None, None);
        if state
            .failed_at
            .is_some_and(|at| at.elapsed() < PAUSE_AFTER_FAILURE)
        {
            return Err(None);
        }
        match self.try_connect(names).await {
            Ok(connection) => {
                if state.ever_connected {
                    self.reconnects.fetch_add(1, Ordering::Relaxed);
                }
                info!(address = self.address(), "connected to the broker");
                state.ever_connected = true;
                state.failed_at = None;
                state.connection = Some(Arc::new(connection));
                Ok(())
            }
            Err(cause) => {
                if state.failed_at.is_none() {
                    warn!(address = self.address(), cause = ?cause, "the broker is away; trying again");
                }
                state.failed_at = Some(Instant::now());
                Err(cause)
            }
        }
    }

    async fn try_connect(&self, names: &Names) -> Result<Connection, Option<lapin::Error>> {
        let properties =
            ConnectionProperties::default().with_connection_name(self.name.as_str().into());
        let url = self.url.to_string();
        let work = async move { Connection::connect(&url, properties).await };
        // Spawned so that the connection's own tasks run on the runtime that made the broker.
        let connecting = self.handle.spawn(work);
        let connection = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(result)) => result?,
            Ok(Err(_)) | Err(_) => return Err(None),
        };
        match tokio::time::timeout(DECLARE_TIMEOUT, names.declare(&connection)).await {
            Ok(declared) => declared?,
            Err(_) => return Err(None),
        }
        Ok(connection)
    }
}
