//! Bodies of `/v1/apps/{app}/policy`, `/v1/apps/{app}/keys` and `/v1/apps/{app}/traffic`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::key::KeyName;
use super::{Policy, Traffic};
use crate::id::{AppName, KeyId, VersionNumber};
use crate::rollout::RolloutInfo;
use crate::unit::{DurationMs, Revision, Timestamp};

/// The policy of an app, with its last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyInfo {
    /// The app's name.
    pub app: AppName,
    /// The revision of desired state at which the policy was set; 0 if the app never had one.
    pub revision: Revision,
    /// When the policy was set; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Who set the policy; absent if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
    /// The policy's rules.
    pub policy: Policy,
}

/// A request to create a key for a caller of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// The caller's name: 1 to 64 letters, digits or `-_.@`, unique among the valid keys of the app.
    pub name: KeyName,
    /// The key's lifetime, at least `1m`; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
}

/// The properties of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyInfo {
    /// The key's id.
    pub id: KeyId,
    /// The caller's name.
    pub name: KeyName,
    /// When the key was created.
    pub created_at: Timestamp,
    /// Who created the key.
    pub created_by: String,
    /// When the key expires; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When the key was revoked; absent if it was not.
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

/// A created key. The key itself is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// The key, which callers send in `x-api-key` or as a bearer token.
    pub key: String,
    /// The key's properties.
    #[serde(flatten)]
    pub info: KeyInfo,
}

/// The split of an app's calls between versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficInfo {
    /// The app's name.
    pub app: AppName,
    /// The current version, which gets all calls if `traffic` has no split.
    pub current: VersionNumber,
    /// The revision of desired state at which the split was set; 0 without one.
    pub revision: Revision,
    /// When the split was set; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// Who set the split; absent if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_by: Option<String>,
    /// The split.
    pub traffic: Traffic,
    /// The newest version that is or was watched for the app's objective; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutInfo>,
}
