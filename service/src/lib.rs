//! The shell every process of the network shares: configuration, logs, metrics, health, sealing, shutdown.
//!
//! Nothing here knows what a controller, a DNS server or an agent does. Each part is used on its own:
//! [`config`] reads settings, [`logs`] writes structured logs, [`health`] and [`admin`] answer `/healthz`, `/readyz` and
//! `/metrics`, [`secret`] keeps tokens and keys in files of mode 0600, [`seal`] encrypts what travels through the broker, [`pki`] makes
//! and reads nodes' certificates, [`certificate`] keeps those that listeners show, [`secure`] binds these listeners,
//! [`master`] wraps data keys, [`listen`] binds addresses and says in words why it could not, [`http_client`] makes the HTTP client, [`reach`] one for
//! addresses that tenants name, [`signal`] waits for SIGTERM or Ctrl-C, [`version`] says how a program was built, [`probe`]
//! asks one whether it is healthy.

pub mod admin;
pub mod certificate;
pub mod config;
mod error;
pub mod health;
pub mod http_client;
pub mod listen;
pub mod logs;
pub mod master;
pub mod pki;
pub mod probe;
pub mod reach;
pub mod seal;
pub mod secret;
pub mod secure;
pub mod signal;
pub mod version;

pub use error::ServiceError;
pub use tokio_util::sync::CancellationToken;

use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

use fdn_core::Timestamp;

/// What a process's parts are started and stopped with: a future on the heap.
///
/// The machine code of a future, with all that it awaits, is made in the crate that polls it. Behind this type that is the crate which
/// wrote it, at that crate's optimisation, and once; otherwise it would be made again in every program and test that starts the part.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The machine's host name: its first label in lower case.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let label = name.split('.').next().filter(|label| !label.is_empty())?;
    Some(label.to_ascii_lowercase())
}

/// The present time. Only shells call this; decisions take time as an argument.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
