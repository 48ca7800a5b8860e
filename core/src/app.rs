//! Bodies of `/v1/apps/{app}/secrets`, `/v1/apps/{app}/env` and `/v1/apps/{app}/dns`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{AppName, SecretName};
use crate::unit::{DurationMs, Revision, Timestamp};

/// A request to set a secret.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// The secret's value, without NUL characters. It is never shown again.
    pub value: String,
    /// If true, nothing is set; the answer only says in `unchanged` whether the secret has this value already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// The properties of a secret, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretInfo {
    /// The secret's name, and that of the environment variable in which functions find it.
    pub name: SecretName,
    /// The revision of desired state at which the value was set.
    pub revision: Revision,
    /// When the value was set.
    pub updated_at: Timestamp,
    /// Who set the value.
    pub updated_by: String,
    /// Whether the manifest of the app's current version names the secret.
    pub used: bool,
    /// Whether the secret already had the value. Only in the answer to a request that sets it; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<bool>,
}

/// A request to change environment variables: the app gets a new version with the same component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeEnv {
    /// By name: the values of the variables to set.
    pub set: BTreeMap<SecretName, String>,
    /// The names of the variables to remove.
    pub unset: BTreeSet<SecretName>,
}

/// The shortest time to live of an app's DNS answers.
pub const APP_TTL_MIN: DurationMs = DurationMs::from_secs(5);
/// The longest time to live of an app's DNS answers.
pub const APP_TTL_MAX: DurationMs = DurationMs::from_secs(300);

/// Why a time to live is not allowed for an app's DNS answers; `None` if it is.
#[must_use]
pub fn app_ttl_problem(ttl: DurationMs) -> Option<String> {
    let whole = ttl.as_millis().is_multiple_of(1000);
    (!whole || !(APP_TTL_MIN..=APP_TTL_MAX).contains(&ttl))
        .then(|| format!("ttl: whole seconds from {APP_TTL_MIN} to {APP_TTL_MAX}, not {ttl}"))
}

/// A request to set how DNS answers for an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutAppDns {
    /// The time to live of DNS answers: whole seconds from `5s` to `5m`; absent for the network's default. A shorter one directs clients
    /// away from a dead gateway sooner, and causes more queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
}

/// How DNS answers for an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppDns {
    /// The app's name.
    pub app: AppName,
    /// The time to live of DNS answers: how long resolvers may cache them.
    pub ttl: DurationMs,
    /// Whether `ttl` is the network's default, because the app has none of its own.
    pub default: bool,
    /// The revision of the app's bindings that DNS servers are sent.
    pub revision: Revision,
}
