//! The mapping of a provider's users to users of this network, and their roles.
//!
//! A provider's user is identified by issuer and subject, which are never reassigned. The first login with a name creates the link, but only if
//! an admin has created a user of that name for it, or the name is free and anybody may log in. Users may be able to choose their name at the
//! provider: a name never opens an account that has a password.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fdn_core::account::TenantRef;
use fdn_core::{NetworkRole, TenantName, TenantRole, Timestamp, UserName};
use serde_json::{Value, json};
use sqlx::AnyConnection;
use tracing::{info, warn};

use super::OidcError;
use crate::Error;
use crate::app::actor::Actor;
use crate::app::login::hash_unknown;
use crate::app::{tenant, user};
use crate::settings::OidcSettings;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::oidc::{identity_find, identity_insert, user_invite, user_is_invited};
use crate::store::revision::revision_lock;
use crate::store::tenant::{
    member_count_owners, member_delete, member_get, member_upsert, tenant_get,
};
use crate::store::user::{UserRow, user_count_admins, user_get, user_insert, user_update};

/// The most groups that are read.
const GROUPS_MAX: usize = 10_000;

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claims {
    subject: String,
    all: serde_json::Map<String, Value>,
}

impl Claims {
    /// Reads all claims of a token that has been verified.
    pub(super) fn of_verified(subject: String, token: &str) -> Option<Self> {
        let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
        let all = serde_json::from_slice(&payload).ok()?;
        Some(Self { subject, all })
    }

    /// The user's name at the provider.
    fn name(&self, claim: &str) -> Result<UserName, OidcError> {
        let refused = |text: String| Err(OidcError::Refused(text));
        if claim == "email" && self.all.get("email_verified") != Some(&Value::Bool(true)) {
            return refused("the identity provider has not verified your address".to_owned());
        }
        let Some(name) = self.all.get(claim).and_then(Value::as_str) else {
            return refused(format!(
                "the identity provider sent no name (the claim {claim})"
            ));
        };
        name.parse()
            .or_else(|e: fdn_core::ParseError| refused(e.to_string()))
    }

    fn groups(&self, claim: &str) -> BTreeSet<&str> {
        match self.all.get(claim) {
            Some(Value::String(one)) => [one.as_str()].into(),
            Some(Value::Array(many)) => {
                let many = many.iter().take(GROUPS_MAX);
                many.filter_map(Value::as_str).collect()
            }
            _ => BTreeSet::new(),
        }
    }
}

/// The roles that the groups of a user give, for the network and tenants that the settings cover.
#[derive(Debug, Default, PartialEq, Eq)]
struct Roles {
    /// In the network. Outer `None`: the settings give no network roles; inner `None`: they do, but none to this user.
    network: Option<Option<NetworkRole>>,
    /// In each tenant that the settings name.
    tenants: BTreeMap<TenantName, Option<TenantRole>>,
}

fn roles(settings: &OidcSettings, groups: &BTreeSet<&str>) -> Roles {
    let mut roles = Roles::default();
    for rule in &settings.groups {
        let holds = groups.contains(rule.group.as_str());
        if let Some(role) = rule.network_role {
            let known = roles.network.get_or_insert(None);
            // `min` is the higher role: admin comes before operator.
            *known = match (*known, holds) {
                (Some(before), true) => Some(before.min(role)),
                (None, true) => Some(role),
                (known, false) => known,
            };
        }
        if let (Some(tenant), Some(role)) = (&rule.tenant, rule.role) {
            let known = roles.tenants.entry(tenant.clone()).or_default();
            if holds {
                *known = Some(known.map_or(role, |before| before.min(role)));
            }
        }
    }
    roles
}

/// The user that logs in. Creates the link, and the user if necessary, and assigns the roles that the groups give.
///
/// # Errors
/// When the user may not log in, or the store fails.
pub(super) async fn resolve(
    state: &State,
    settings: &OidcSettings,
    claims: &Claims,
    actor: &Actor,
    now: Timestamp,
) -> Result<UserName, Error> {
    let hash = hash_unknown(state).await?;
    let roles = roles(settings, &claims.groups(&settings.groups_claim));
    let actor = actor.with_name("the identity provider");
    let name: UserName = in_transaction!(state.store, tx => {
        // The lock makes counting and changing admins and owners one step across all controllers.
        revision_lock(&mut tx).await?;
        let name = linked(&mut tx, settings, claims, (&actor, &hash), now).await?;
        let user = user_get(&mut tx, name.as_str()).await?.map(|user| user.info);
        let user = user.filter(|user| user.disabled_at.is_none());
        let user = user.ok_or_else(|| OidcError::Refused(format!("user {name} is disabled")))?;
        if let Some(role) = roles.network {
            network_role(&mut tx, user, role, &actor, now).await?;
        }
        for (tenant, role) in &roles.tenants {
            tenant_role(&mut tx, &name, (tenant, *role), &actor, now).await?;
        }
        Ok::<_, Error>(name)
    })?;
    info!(user = %name, "the identity provider vouches for a user");
    Ok(name)
}

async fn linked(
    connection: &mut AnyConnection,
    settings: &OidcSettings,
    claims: &Claims,
    (actor, hash): (&Actor, &str),
    now: Timestamp,
) -> Result<UserName, Error> {
    let who = (settings.issuer.as_str(), claims.subject.as_str());
    if let Some(name) = identity_find(&mut *connection, who.0, who.1, now).await? {
        return Ok(name);
    }
    let name = claims.name(&settings.name_claim)?;
    let taken = user_get(&mut *connection, name.as_str()).await?.is_some();
    let invited = user_is_invited(&mut *connection, &name).await?;
    match (taken, invited) {
        (true, true) => {}
        (true, false) => {
            let text = format!(
                "the name {name} belongs to somebody else here; the network's administrator can make another user for you"
            );
            return Err(OidcError::Refused(text).into());
        }
        (false, _) if settings.invite_only => {
            let text = format!(
                "nobody is invited as {name}; the network's administrator can do so: fdn user create {name} --oidc"
            );
            return Err(OidcError::Refused(text).into());
        }
        (false, _) => {
            let row = UserRow::new(name.clone(), None, hash.to_owned(), now);
            user_insert(&mut *connection, &row).await?;
            user_invite(&mut *connection, &name).await?;
            let after = json!({ "oidc": true }).to_string();
            let entry = AuditEntry {
                after: Some(after),
                ..user::audit(actor, &name, "user.create", now)
            };
            audit_insert(&mut *connection, &entry).await?;
        }
    }
    identity_insert(connection, who, &name, now).await?;
    Ok(name)
}

async fn network_role(
    connection: &mut AnyConnection,
    old: fdn_core::account::UserInfo,
    role: Option<NetworkRole>,
    actor: &Actor,
    now: Timestamp,
) -> Result<(), Error> {
    if old.network_role == role {
        return Ok(());
    }
    let is_admin = old.network_role == Some(NetworkRole::Admin);
    if is_admin && user_count_admins(&mut *connection).await? == 1 {
        warn!(user = %old.name, "the last admin stays one, whatever the identity provider says");
        return Ok(());
    }
    let mut new = old.clone();
    new.network_role = role;
    user_update(&mut *connection, &new).await?;
    let state = |role: Option<NetworkRole>| Some(json!({ "network_role": role }).to_string());
    let entry = AuditEntry {
        before: state(old.network_role),
        after: state(role),
        ..user::audit(actor, &old.name, "user.update", now)
    };
    Ok(audit_insert(connection, &entry).await?)
}

async fn tenant_role(
    connection: &mut AnyConnection,
    name: &UserName,
    (tenant, role): (&TenantName, Option<TenantRole>),
    actor: &Actor,
    now: Timestamp,
) -> Result<(), Error> {
    let found = tenant_get(&mut *connection, &TenantRef::Name(tenant.clone())).await?;
    let Some(found) = found else {
        warn!(%tenant, "oidc.groups names a tenant that does not exist");
        return Ok(());
    };
    let old = member_get(&mut *connection, found.id, name).await?;
    let old = old.map(|member| member.role);
    if old == role {
        return Ok(());
    }
    let owners = member_count_owners(&mut *connection, found.id).await?;
    if old == Some(TenantRole::Owner) && owners == 1 {
        warn!(user = %name, %tenant, "the last owner stays one, whatever the identity provider says");
        return Ok(());
    }
    match role {
        Some(role) => {
            let by = (actor.name.as_str(), now);
            member_upsert(&mut *connection, found.id, name, role, by).await?;
        }
        None => {
            member_delete(&mut *connection, found.id, name).await?;
        }
    }
    let state = |role: Option<TenantRole>| role.map(|role| json!({ "role": role }).to_string());
    let action = role.map_or("member.remove", |_| "member.put");
    let entry = AuditEntry {
        subject: format!("member/{name}"),
        before: state(old),
        after: state(role),
        ..tenant::audit(actor, found.id, action, now)
    };
    Ok(audit_insert(connection, &entry).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(all: Value) -> Claims {
        Claims {
            subject: "1".to_owned(),
            all: all.as_object().expect("an object").clone(),
        }
    }

    #[test]
    fn the_highest_role_of_all_groups_counts_and_others_are_taken() {
        let settings: OidcSettings = toml::from_str(
            r#"
            issuer = "https://id.example"
            client_id = "fdn"
            redirect_url = "https://fdn.example/v1/oidc/callback"
            groups = [
                { group = "ops", network_role = "operator" },
                { group = "root", network_role = "admin" },
                { group = "dev", tenant = "shop", role = "developer" },
                { group = "lead", tenant = "shop", role = "owner" },
                { group = "dev", tenant = "lab", role = "owner" },
            ]
            "#,
        )
        .expect("valid");
        let of = |groups: &[&str]| roles(&settings, &groups.iter().copied().collect());
        let shop: TenantName = "shop".parse().expect("name");
        let lab: TenantName = "lab".parse().expect("name");
        let all = of(&["ops", "root", "dev", "lead"]);
        assert_eq!(all.network, Some(Some(NetworkRole::Admin)));
        assert_eq!(all.tenants[&shop], Some(TenantRole::Owner));
        let dev = of(&["dev"]);
        assert_eq!(
            dev.network,
            Some(None),
            "what the settings give is taken again"
        );
        assert_eq!(dev.tenants[&shop], Some(TenantRole::Developer));
        assert_eq!(dev.tenants[&lab], Some(TenantRole::Owner));
        assert_eq!(of(&[]).tenants[&lab], None);
        let silent = OidcSettings {
            groups: Vec::new(),
            ..settings
        };
        assert_eq!(roles(&silent, &BTreeSet::from(["root"])), Roles::default());
    }

    #[test]
    fn names_and_groups_are_read_with_care() {
        let some =
            claims(json!({ "preferred_username": "ann", "groups": ["a", 5, "b"], "one": "x" }));
        assert_eq!(
            some.name("preferred_username").expect("a name").as_str(),
            "ann"
        );
        assert_eq!(some.groups("groups"), BTreeSet::from(["a", "b"]));
        assert_eq!(some.groups("one"), BTreeSet::from(["x"]));
        assert!(some.groups("absent").is_empty() && some.name("absent").is_err());
        let address =
            |verified| claims(json!({ "email": "ann@example.org", "email_verified": verified }));
        assert!(address(json!(true)).name("email").is_ok());
        for verified in [json!(false), json!("true"), Value::Null] {
            assert!(
                address(verified).name("email").is_err(),
                "an address that anybody may claim"
            );
        }
        assert!(
            claims(json!({ "preferred_username": "a/b" }))
                .name("preferred_username")
                .is_err()
        );
    }
}
