//! Bodies of `/v1/apps/{app}/policy`, `/v1/apps/{app}/keys` and `/v1/apps/{app}/traffic`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::key::KeyName;
use super::{Policy, Traffic};
use crate::id::{AppName, KeyId, VersionNumber};
use crate::rollout::RolloutInfo;
use crate::unit::{DurationMs, Revision, Timestamp};

/// The policy of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyInfo {
    /// The app.
    pub app: AppName,
    /// The revision of desired state that brought it; 0 if the app never had a policy.
    pub revision: Revision,
    /// When it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
    /// The rules.
    pub policy: Policy,
}

/// A key that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// Who will call with it: 1 to 64 letters, digits or `-_.@`, once among the keys that count.
    pub name: KeyName,
    /// How long it counts, at least 1 min; without end if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
}

/// What is known of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyInfo {
    /// Which key.
    pub id: KeyId,
    /// Who calls with it.
    pub name: KeyName,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// When it ends, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was taken back, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl KeyInfo {
    /// Whether the key is valid at `now`: neither revoked nor expired.
    #[must_use]
    pub fn counts(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A key that was made.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// What callers send, in `x-api-key` or as a bearer token. Shown this once.
    pub key: String,
    /// What the network keeps of it, beside its hash.
    #[serde(flatten)]
    pub info: KeyInfo,
}

/// Which versions an app's calls go to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficInfo {
    /// The app.
    pub app: AppName,
    /// The current version: all calls go to it if `traffic` has no split.
    pub current: VersionNumber,
    /// The revision of desired state that brought the split; 0 without one.
    pub revision: Revision,
    /// When it was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Who set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
    /// The split.
    pub traffic: Traffic,
    /// The newest version that was or is held to the app's objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutInfo>,
}
