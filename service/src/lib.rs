//! The code that every process of the network shares: configuration, logs, metrics, health, sealing, shutdown.
//!
//! Nothing here knows what a controller, a DNS server or an agent does. Each module can be used on its own:
//! [`config`] reads settings, [`logs`] writes structured logs, [`health`] and [`admin`] answer `/healthz`, `/readyz` and
//! `/metrics`, [`secret`] stores tokens and keys in files of mode 0600, [`seal`] encrypts what passes through the broker, [`pki`] issues
//! and reads the network's own certificates, [`certificate`] keeps the certificates of listeners up to date, [`tls_listener`] binds these listeners,
//! [`master`] wraps data keys, [`listen`] binds addresses with readable errors, [`http_client`] builds HTTP clients, [`address_policy`] one for
//! addresses given by tenants, [`signal`] waits for SIGTERM or Ctrl-C, [`version`] says how a program was built, [`probe`]
//! checks the health of a running process.

pub mod address_policy;
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
pub mod seal;
pub mod secret;
pub mod signal;
pub mod tls_listener;
pub mod version;

pub use error::ServiceError;
pub use tokio_util::sync::CancellationToken;

use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

use fdn_core::Timestamp;

/// A boxed future, as the type in which components are started and stopped.
///
/// The machine code of a future, with everything that it awaits, is generated in the crate that polls it. With this type that is the crate that
/// wrote it, at that crate's optimization level, and only once; otherwise it would be generated again in every program and test that starts the
/// component.
pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The machine's host name: its first label, in lower case.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let label = name.split('.').next().filter(|label| !label.is_empty())?;
    Some(label.to_ascii_lowercase())
}

/// The current time. Only the outer layers call this; decisions take the time as an argument.
#[must_use]
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
