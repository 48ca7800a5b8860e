//! Settings of logins with an identity provider.

use std::path::PathBuf;

use fdn_core::{DurationMs, NetworkRole, TenantName, TenantRole};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::Error;

/// Logins with an identity provider (OpenID Connect, authorization code with PKCE).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcSettings {
    /// The provider's issuer URL, as in its discovery document.
    pub issuer: Url,
    /// The id by which the provider knows this network.
    pub client_id: String,
    /// The file with the client secret; without it, this network is a public client.
    #[serde(default)]
    pub client_secret_file: Option<PathBuf>,
    /// The URL that the provider redirects browsers to: the public URL of this controller with `/v1/oidc/callback`.
    pub redirect_url: Url,
    /// The scopes requested besides `openid`.
    #[serde(default = "scopes")]
    pub scopes: Vec<String>,
    /// The claim with the user's name in this network.
    #[serde(default = "name_claim")]
    pub name_claim: String,
    /// The claim with the user's groups, for `groups`.
    #[serde(default = "groups_claim")]
    pub groups_claim: String,
    /// Whether only users may log in whom an admin has created for this (`fdn user create NAME --oidc`); otherwise everybody whom the provider
    /// authenticates becomes a user, with the rights of the groups.
    #[serde(default = "yes")]
    pub invite_only: bool,
    /// The roles of the provider's groups. Roles listed here are granted and withdrawn at each login; others are left alone.
    #[serde(default)]
    pub groups: Vec<GroupRole>,
    /// How long the provider may take to answer.
    #[serde(default = "timeout")]
    pub timeout: DurationMs,
}

/// The roles of one of the provider's groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRole {
    /// The group.
    pub group: String,
    /// The role in the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_role: Option<NetworkRole>,
    /// A tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantName>,
    /// The role in that tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<TenantRole>,
}

fn scopes() -> Vec<String> {
    ["profile", "email"].map(str::to_owned).into()
}

fn name_claim() -> String {
    "preferred_username".to_owned()
}

fn groups_claim() -> String {
    "groups".to_owned()
}

const fn yes() -> bool {
    true
}

const fn timeout() -> DurationMs {
    DurationMs::from_secs(10)
}

/// The most groups with roles.
const GROUPS_MAX: usize = 1000;

impl OidcSettings {
    /// Checks what the types alone cannot ensure.
    pub(super) fn check(&self) -> Result<(), Error> {
        let rule = |ok: bool, text: &str| match ok {
            true => Ok(()),
            false => Err(Error::config(format!("oidc.{text}"))),
        };
        let safe = |url: &Url| {
            let here = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
            url.scheme() == "https" || url.scheme() == "http" && here
        };
        rule(safe(&self.issuer), "issuer must be an https URL")?;
        rule(
            safe(&self.redirect_url) && self.redirect_url.path().ends_with("/v1/oidc/callback"),
            "redirect_url must be an https URL that ends with /v1/oidc/callback",
        )?;
        rule(!self.client_id.is_empty(), "client_id must not be empty")?;
        rule(self.timeout.as_millis() > 0, "timeout must be positive")?;
        rule(self.groups.len() <= GROUPS_MAX, "groups: 1000 at most")?;
        let whole = |group: &GroupRole| group.tenant.is_some() == group.role.is_some();
        rule(
            self.groups.iter().all(whole),
            "groups: tenant and role stand together",
        )
    }
}
