//! Bodies of `/v1/apps/{app}/secrets`, `/v1/apps/{app}/env` and `/v1/apps/{app}/dns`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{AppName, SecretName};
use crate::unit::{DurationMs, Revision, Timestamp};

/// The value of a secret.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSecret {
    /// The value, without NUL characters. It is never shown again.
    pub value: String,
    /// Only say whether it has this value already; nothing is set.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// What is known of a secret: everything but its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretInfo {
    /// The secret, and the variable that functions find it in.
    pub name: SecretName,
    /// The revision of desired state that brought the value.
    pub revision: Revision,
    /// When it was set.
    pub updated_at: Timestamp,
    /// Who set it.
    pub updated_by: String,
    /// Whether the current version names it.
    pub used: bool,
    /// Only in the answer to setting it: whether it had that value already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchanged: Option<bool>,
}

/// Variables that are set and taken away: the app gets a new version of the same component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeEnv {
    /// Variables that are set.
    pub set: BTreeMap<SecretName, String>,
    /// Variables that are taken away.
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

/// How DNS is to answer for an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutAppDns {
    /// For how long resolvers may keep an answer: whole seconds from 5 s to 5 m; the network's time if absent. A dead gateway's address is kept for as
    /// long, and each question comes again after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
}

/// How DNS answers for an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AppDns {
    /// The app.
    pub app: AppName,
    /// For how long resolvers may keep an answer.
    pub ttl: DurationMs,
    /// Whether that is the network's time, because the app has none of its own.
    pub default: bool,
    /// The revision that DNS servers are told.
    pub revision: Revision,
}
