//! Bodies of the API for tenants, members, users, sessions, API tokens and the audit log.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::id::{ApiTokenId, SessionId, TenantId, TenantName, UserName};
use crate::repository::{SignaturePolicy, StorageLimit, StorageUse};
use crate::rights::{NetworkRole, Right, TenantRole};
use crate::unit::{DurationMs, Timestamp};

/// A reference to a tenant in a request: by name, or by id, which is stable when the name changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TenantRef {
    /// By id. The two cannot be confused: names have no underscore.
    Id(TenantId),
    /// By name.
    Name(TenantName),
}

impl FromStr for TenantRef {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        match s.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => s.parse().map(Self::Name),
        }
    }
}

impl TryFrom<String> for TenantRef {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<TenantRef> for String {
    fn from(value: TenantRef) -> Self {
        value.to_string()
    }
}

impl fmt::Display for TenantRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantInfo {
    /// Its id, for ever.
    pub id: TenantId,
    /// Its name, which can be changed.
    pub name: TenantName,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when its members may only look; absent if they may do what their roles say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    /// How many members it has.
    pub members: u64,
    /// How many apps it has.
    pub apps: u64,
    /// What it stores, and what it may.
    pub storage: StorageUse,
    /// Whether its uploads must be signed.
    pub signature_policy: SignaturePolicy,
    /// When it was deleted: then it has its bills and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// Counts its changes.
    pub generation: u64,
}

/// Makes a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// Its name.
    pub name: TenantName,
    /// Its first owner, if one is to be named at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserName>,
}

/// Changes a tenant. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateTenant {
    /// Its new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TenantName>,
    /// Whether it is suspended: its members may only look, and gateways refuse calls of its apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// How much it may store; what is absent inside becomes the network's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageLimit>,
}

/// A member of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberInfo {
    /// The user.
    pub user: UserName,
    /// What the user may do there.
    pub role: TenantRole,
    /// Since when.
    pub created_at: Timestamp,
    /// Who added the user.
    pub created_by: String,
    /// Counts the changes of the role.
    pub generation: u64,
}

/// Adds a member or changes one's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutMember {
    /// What the user may do.
    pub role: TenantRole,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserInfo {
    /// The name.
    pub name: UserName,
    /// What the user may do in the network as a whole, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// When the user was made.
    pub created_at: Timestamp,
    /// Since when the user can do nothing at all, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
    /// When the password was last set.
    pub password_changed_at: Timestamp,
    /// Until when an invitation lets the user choose a password, of one who has chosen none yet. It may have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_until: Option<Timestamp>,
    /// Counts the changes.
    pub generation: u64,
}

/// Makes a user.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUser {
    /// The name.
    pub name: UserName,
    /// The password; may be absent of a user with `oidc`, who then has none that anybody knows.
    #[serde(default)]
    pub password: String,
    /// Whether the first login with the identity provider under this name makes the provider's user this one.
    #[serde(default)]
    pub oidc: bool,
    /// What the user may do in the network as a whole, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
}

/// Changes a user. What is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateUser {
    /// Whether the user can do nothing at all. Sessions and API tokens end at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// What the user may do in the network as a whole: `admin`, `operator` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NewNetworkRole>,
}

/// A network role that is given or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NewNetworkRole {
    /// Everything.
    Admin,
    /// Machines.
    Operator,
    /// None.
    None,
}

impl NewNetworkRole {
    /// The role; `None` if the user has none in the network.
    #[must_use]
    pub const fn role(self) -> Option<NetworkRole> {
        match self {
            Self::Admin => Some(NetworkRole::Admin),
            Self::Operator => Some(NetworkRole::Operator),
            Self::None => None,
        }
    }
}

/// Sets a user's password.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPassword {
    /// The new password.
    pub password: String,
}

/// Changes the caller's own password.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// The present password.
    pub current: String,
    /// The new one.
    pub password: String,
}

/// What the caller is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The name.
    pub user: UserName,
    /// What the user may do in the network as a whole, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// The tenants and what the user may do there.
    pub tenants: Vec<Membership>,
    /// The API token by which this was asked, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ApiTokenId>,
    /// For a session of the console: what every change must bring along in the header `x-fdn-csrf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
    /// When the session or token ends.
    pub expires_at: Timestamp,
}

/// A tenant and a role there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Membership {
    /// The tenant's id.
    pub id: TenantId,
    /// The tenant's name.
    pub tenant: TenantName,
    /// The role.
    pub role: TenantRole,
    /// Whether members may only look.
    pub suspended: bool,
}

/// How a session is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// As a bearer token, by the command line.
    Bearer,
    /// As a cookie, by a browser.
    Cookie,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    /// Its id, which is not secret.
    pub id: SessionId,
    /// How it is held.
    pub kind: SessionKind,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was last used, to the minute.
    pub last_used_at: Timestamp,
    /// From where it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether it is the one that asks.
    pub current: bool,
}

/// Makes an API token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiToken {
    /// What it is for, in the maker's words: 1 to 63 characters.
    pub name: String,
    /// What it may do, of what its user may do at the time it is used.
    pub scopes: BTreeSet<Right>,
    /// The only tenant in which it counts; all of its user's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<TenantRef>,
    /// For how long.
    pub ttl: DurationMs,
}

/// An API token that was made. The token is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedApiToken {
    /// The token: `fdn_ID_SECRET`.
    pub token: String,
    /// What it is good for.
    pub info: ApiTokenInfo,
}

/// What is known of an API token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiTokenInfo {
    /// Its id, which is not secret.
    pub id: ApiTokenId,
    /// What it is for.
    pub name: String,
    /// Whose it is.
    pub user: UserName,
    /// What it may do.
    pub scopes: BTreeSet<Right>,
    /// The only tenant in which it counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was last used, to the minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// When it was taken back, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

impl ApiTokenInfo {
    /// Whether the token can still be used at `now`: neither revoked nor expired.
    #[must_use]
    pub const fn is_open(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && now.0 < self.expires_at.0
    }
}

/// One write, as the audit log keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Its id; later entries have larger ones.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// Who: a user, a node, a join token, or the network itself.
    pub actor: String,
    /// The API token by which it was done, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ApiTokenId>,
    /// In which tenant, if in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// What, such as `deploy` or `member.put`.
    pub action: String,
    /// To what, such as `app/hello`.
    pub subject: String,
    /// The state before; never a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<serde_json::Value>,
    /// The state after; never a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<serde_json::Value>,
    /// The client's address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The request, as in the controller's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_is_named_by_name_or_id() {
        let id = "ten_00000000000000000000000000000001";
        assert!(matches!(
            id.parse::<TenantRef>().expect("id"),
            TenantRef::Id(_)
        ));
        let name: TenantRef = "ten".parse().expect("name");
        assert!(matches!(name, TenantRef::Name(_)));
        assert_eq!(id.parse::<TenantRef>().expect("id").to_string(), id);
        assert!("Ten".parse::<TenantRef>().is_err());
    }

    #[test]
    fn a_token_ends_by_time_or_by_hand() {
        let info = ApiTokenInfo {
            id: "fdn_00000000000000000000000000000001".parse().expect("id"),
            name: "ci".to_owned(),
            user: "ann".parse().expect("user"),
            scopes: BTreeSet::new(),
            tenant: None,
            created_at: Timestamp(1),
            expires_at: Timestamp(10),
            last_used_at: None,
            revoked_at: None,
        };
        assert!(info.is_open(Timestamp(9)) && !info.is_open(Timestamp(10)));
        let revoked = ApiTokenInfo {
            revoked_at: Some(Timestamp(2)),
            ..info
        };
        assert!(!revoked.is_open(Timestamp(9)));
    }
}
