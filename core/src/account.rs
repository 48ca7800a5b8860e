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

/// A tenant: the owner of functions and apps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantInfo {
    /// The tenant's id, which never changes.
    pub id: TenantId,
    /// The tenant's name, unique in the network. It can be changed.
    pub name: TenantName,
    /// When the tenant was created.
    pub created_at: Timestamp,
    /// Since when the tenant is suspended: its members can only read, and calls of its apps are refused. Absent if it is not suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Timestamp>,
    /// The number of its members.
    pub members: u64,
    /// The number of its apps.
    pub apps: u64,
    /// The storage that it uses, and its limits.
    pub storage: StorageUse,
    /// Whether its uploads must be signed.
    pub signature_policy: SignaturePolicy,
    /// When the tenant was deleted; only its bills remain then. Absent if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
    /// The number of changes made to the tenant.
    pub generation: u64,
}

/// A request to create a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// The tenant's name, which must not be taken.
    pub name: TenantName,
    /// A user who becomes its first owner; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<UserName>,
}

/// A request to change a tenant. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateTenant {
    /// The tenant's new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<TenantName>,
    /// Whether the tenant is suspended: its members can only read, and gateways refuse calls of its apps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<bool>,
    /// The tenant's storage limits, as a whole: a limit that is absent inside becomes the network's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageLimit>,
}

/// A member of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MemberInfo {
    /// The user's name.
    pub user: UserName,
    /// The user's role in the tenant.
    pub role: TenantRole,
    /// When the user became a member.
    pub created_at: Timestamp,
    /// The name of the user who added the member.
    pub created_by: String,
    /// The number of changes of the role.
    pub generation: u64,
}

/// A request to add a member to a tenant, or to change the member's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutMember {
    /// The user's role in the tenant.
    pub role: TenantRole,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserInfo {
    /// The user's name.
    pub name: UserName,
    /// The user's role in the network as a whole; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// When the user was created.
    pub created_at: Timestamp,
    /// Since when the user is disabled: no login, and no session or API token is valid. Absent if the user is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
    /// When the password was last set.
    pub password_changed_at: Timestamp,
    /// When the user's invitation expires, or expired, by which the user can choose a password. Absent if the user has chosen one, or was
    /// never invited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invited_until: Option<Timestamp>,
    /// The number of changes made to the user.
    pub generation: u64,
}

/// A request to create a user.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUser {
    /// The user's name, which must not be taken.
    pub name: UserName,
    /// The user's password. May be absent or empty if `oidc` is true; then a random password is set that nobody knows.
    #[serde(default)]
    pub password: String,
    /// Whether the user logs in with the identity provider: the first login there under this name links the provider's account to this
    /// user.
    #[serde(default)]
    pub oidc: bool,
    /// The user's role in the network as a whole; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
}

/// A request to change a user. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateUser {
    /// Whether the user is disabled. Disabling ends all of the user's sessions and API tokens at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The user's role in the network as a whole: `admin`, `operator`, or `none` to take it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NewNetworkRole>,
}

/// A network role to give to a user, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NewNetworkRole {
    /// Administrator: everything, in every tenant.
    Admin,
    /// Operator: runs the network's machines.
    Operator,
    /// No role in the network.
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

/// A request to set a user's password.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPassword {
    /// The new password.
    pub password: String,
}

/// A request to change the caller's own password.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// The present password.
    pub current: String,
    /// The new password.
    pub password: String,
}

/// The caller: the user, the roles, and the session or API token of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhoAmI {
    /// The user's name.
    pub user: UserName,
    /// The user's role in the network as a whole; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// The tenants of which the user is a member, with the role in each.
    pub tenants: Vec<Membership>,
    /// The id of the API token with which the request was made; absent for a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ApiTokenId>,
    /// The CSRF token of a browser session, which every request that changes something must carry in the header `x-fdn-csrf`. Absent for
    /// other callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub csrf: Option<String>,
    /// When the session or API token expires.
    pub expires_at: Timestamp,
}

/// A user's membership in a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Membership {
    /// The tenant's id.
    pub id: TenantId,
    /// The tenant's name.
    pub tenant: TenantName,
    /// The user's role in the tenant.
    pub role: TenantRole,
    /// Whether the tenant is suspended: its members can only read.
    pub suspended: bool,
}

/// The form of a session's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// A bearer token, as used by the command line.
    Bearer,
    /// A cookie, as used by browsers.
    Cookie,
}

/// A session of a user, begun by a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    /// The session's id, which is not secret.
    pub id: SessionId,
    /// The form of its credentials.
    pub kind: SessionKind,
    /// When the session began.
    pub created_at: Timestamp,
    /// When the session expires.
    pub expires_at: Timestamp,
    /// When the session was last used, to the minute.
    pub last_used_at: Timestamp,
    /// The client address from which the session was begun; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether it is the session of this request.
    pub current: bool,
}

/// A request to create an API token for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiToken {
    /// What the token is for: 1 to 63 printable characters.
    pub name: String,
    /// The token's rights, at least one. Of these, it has those that its user has at the time it is used. `own-account` is not possible.
    pub scopes: BTreeSet<Right>,
    /// The only tenant, by name or id, in which the token is valid; absent for all tenants of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub tenant: Option<TenantRef>,
    /// The token's lifetime, from `1s` to the network's limit.
    pub ttl: DurationMs,
}

/// A created API token. The token itself is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedApiToken {
    /// The token, `fdn_ID_SECRET`: to be sent as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// The token's properties.
    pub info: ApiTokenInfo,
}

/// The properties of an API token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiTokenInfo {
    /// The token's id, which is not secret.
    pub id: ApiTokenId,
    /// What the token is for, as given by its creator.
    pub name: String,
    /// The user to whom the token belongs.
    pub user: UserName,
    /// The token's rights. Of these, it has those that its user has at the time it is used.
    pub scopes: BTreeSet<Right>,
    /// The only tenant in which the token is valid; absent for all tenants of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// When the token was created.
    pub created_at: Timestamp,
    /// When the token expires.
    pub expires_at: Timestamp,
    /// When the token was last used, to the minute; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// When the token was revoked; absent if it was not.
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

/// An entry of the audit log: one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// The entry's id; later entries have larger ones.
    pub id: String,
    /// When the change was made.
    pub at: Timestamp,
    /// Who made it: a user, a node, a join token, or the network itself.
    pub actor: String,
    /// The API token with which it was made; absent if it was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ApiTokenId>,
    /// The tenant that was changed; absent for changes outside of tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The kind of change, such as `deploy` or `member.put`.
    pub action: String,
    /// What was changed, such as `app/hello`.
    pub subject: String,
    /// The state before the change, without secrets; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub before: Option<serde_json::Value>,
    /// The state after the change, without secrets; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub after: Option<serde_json::Value>,
    /// The client's address; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The id of the request, as in the controller's log; absent if there was none.
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
