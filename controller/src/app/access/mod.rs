//! Who calls, and whether the caller may do something. The decision ([`Caller::allowed`]) is a pure function of what the caller is, the right
//! and the tenant; which role holds which right stands in [`fdn_core::rights`].

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use fdn_core::account::{Membership, SessionKind};
use fdn_core::rights::Scope;
use fdn_core::{ApiTokenId, Digest, NetworkRole, Right, SessionId, TenantId, Timestamp, UserName};
use fdn_service::secret::Secret;
use sqlx::AnyConnection;

use crate::Error;
use crate::state::State;
use crate::store::StoreError;
use crate::store::api_token::{api_token_find, api_token_touch};
use crate::store::enrolment::EnrolmentRow;
use crate::store::session::{Holder, SessionRow, session_find, session_touch};
use crate::store::tenant::membership_list;

/// A token's last use is noted once in this many milliseconds.
const TOUCH_MS: u128 = 60_000;

/// By what a person is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A session, begun by a login.
    Session {
        /// Its id.
        id: SessionId,
        /// How it is held.
        kind: SessionKind,
        /// What a change from a browser must bring along; for cookies alone.
        csrf: Option<Secret>,
    },
    /// A token that a person made for a tool. It never allows more than the person may do at the time.
    Token {
        /// Its id.
        id: ApiTokenId,
        /// What it may do.
        scopes: BTreeSet<Right>,
        /// The only tenant in which it counts.
        tenant: Option<TenantId>,
    },
}

/// A person, or a person's tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The name.
    pub name: UserName,
    /// The role in the network.
    pub network_role: Option<NetworkRole>,
    /// The tenants and the roles there, by name. For a token that counts in one tenant only: that one.
    pub tenants: Vec<Membership>,
    /// By what the person is known.
    pub credential: Credential,
    /// When that ends.
    pub expires_at: Timestamp,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A person or a person's tool.
    User(Box<Person>),
}

/// Whether a caller may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not.
    Refused,
    /// It may, were the tenant not suspended.
    Suspended,
    /// It may not, and must not learn that the tenant or anything in it exists.
    Hidden,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(person) => person.name.fmt(f),
        }
    }
}

impl Caller {
    /// Whether this caller has a right in `tenant`; without one, whether it has it anywhere. (Everybody may look at what is theirs, even if
    /// that is nothing.)
    #[must_use]
    pub fn allowed(&self, right: Right, tenant: Option<TenantId>) -> Verdict {
        match self {
            Self::User(person) => person.allowed(right, tenant),
        }
    }

    /// The person, if it is one.
    #[must_use]
    pub const fn person(&self) -> Option<&Person> {
        match self {
            Self::User(person) => Some(person),
        }
    }
}

impl Person {
    fn allowed(&self, right: Right, tenant: Option<TenantId>) -> Verdict {
        let verdict = match (right.scope(), tenant) {
            (Scope::Everyone, _) => Verdict::Allowed,
            (Scope::Network, _) => self.in_network(right),
            (Scope::Tenant, Some(tenant)) => self.in_tenant(right, tenant),
            (Scope::Tenant, None) => self.somewhere(right),
        };
        match verdict {
            Verdict::Allowed | Verdict::Suspended if !self.credential.covers(right) => {
                Verdict::Refused
            }
            verdict => verdict,
        }
    }

    fn by_network_role(&self, right: Right) -> bool {
        self.network_role.is_some_and(|role| role.has(right))
    }

    fn in_network(&self, right: Right) -> Verdict {
        if self.by_network_role(right) && self.credential.tenant().is_none() {
            Verdict::Allowed
        } else {
            Verdict::Refused
        }
    }

    fn in_tenant(&self, right: Right, tenant: TenantId) -> Verdict {
        if self.credential.tenant().is_some_and(|only| only != tenant) {
            return Verdict::Hidden;
        }
        if self.by_network_role(right) {
            return Verdict::Allowed;
        }
        match self.tenants.iter().find(|member| member.id == tenant) {
            None => Verdict::Hidden,
            Some(member) if !member.role.has(right) => Verdict::Refused,
            Some(member) if member.suspended && !right.only_looks() => Verdict::Suspended,
            Some(_) => Verdict::Allowed,
        }
    }

    fn somewhere(&self, right: Right) -> Verdict {
        let held = self.tenants.iter().any(|member| member.role.has(right));
        if right == Right::Look || held || self.by_network_role(right) {
            Verdict::Allowed
        } else {
            Verdict::Refused
        }
    }

    /// Whether the person's role in the network gives the right everywhere, also in what is no tenant's.
    #[must_use]
    pub fn has_everywhere(&self, right: Right) -> bool {
        self.by_network_role(right) && self.credential.tenant().is_none()
    }

    /// Whose name limits what lists show of a tenant's things: the person's own, unless the person sees every tenant.
    #[must_use]
    pub fn list_filter(&self, right: Right) -> Option<String> {
        (!self.by_network_role(right)).then(|| self.name.to_string())
    }
}

impl Credential {
    /// Whether a person who has `right` may use it by this.
    fn covers(&self, right: Right) -> bool {
        match self {
            Self::Session { .. } => true,
            Self::Token { scopes, .. } => {
                right.for_tokens() && (right == Right::LookNetwork || scopes.contains(&right))
            }
        }
    }

    /// The only tenant in which it counts.
    #[must_use]
    pub const fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Session { .. } => None,
            Self::Token { tenant, .. } => *tenant,
        }
    }

    /// The token's id, if it is one.
    #[must_use]
    pub const fn token(&self) -> Option<ApiTokenId> {
        match self {
            Self::Session { .. } => None,
            Self::Token { id, .. } => Some(*id),
        }
    }

    /// The session's id, if it is one.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session { id, .. } => Some(*id),
            Self::Token { .. } => None,
        }
    }
}

/// The hash under which a token is stored.
#[must_use]
pub fn token_hash(token: &str) -> String {
    Digest::of(token.as_bytes()).hex()
}

/// What somebody shows to be known by.
#[derive(Clone, Copy, Debug)]
pub enum Shown<'a> {
    /// A bearer token.
    Bearer(&'a str),
    /// The cookie of a session in a browser.
    Cookie(&'a str),
    /// Nothing.
    Nothing,
}

/// Who it is.
///
/// # Errors
/// When nothing is shown, it is not known or has ended, too many unknown ones came from the address, or the store fails.
pub async fn authenticate(
    state: &State,
    shown: Shown<'_>,
    address: Option<IpAddr>,
) -> Result<Caller, Error> {
    let now = fdn_service::now();
    let person = match shown {
        Shown::Nothing => {
            return Err(Error::Unauthenticated(
                "this needs credentials: send the header `authorization: Bearer TOKEN`; `fdn login` gets a token",
            ));
        }
        Shown::Bearer(token) => {
            state.logins.token_may_come(address, now)?;
            match token.starts_with(API_PREFIX) {
                true => api_token(state, token, now).await?,
                false => session(state, token, SessionKind::Bearer, now).await?,
            }
        }
        Shown::Cookie(value) => {
            state.logins.token_may_come(address, now)?;
            session(state, value, SessionKind::Cookie, now).await?
        }
    };
    match person {
        Some(person) => Ok(Caller::User(Box::new(person))),
        None => {
            state.logins.token_failed(address, now);
            Err(Error::Unauthenticated(
                "the token is not known or has expired; `fdn login` gets a new one",
            ))
        }
    }
}

/// What an API token begins with.
const API_PREFIX: &str = "fdn_";

/// What the token of a node begins with.
const NODE_PREFIX: &str = "fdn-node.";

/// A machine's own token, which opens nothing in the centre: agents of releases before knew controllers by it, and gateways on loopback that call
/// stages without certificates know each other by it. It follows from the network token, so that it need not be kept, and from the enrolment, so
/// that it ends with it.
#[must_use]
pub fn node_token(network: &Secret, enrolment: &EnrolmentRow) -> Secret {
    let EnrolmentRow { node, id, .. } = enrolment;
    let proof = network.derive(&format!("fdn-node-token\n{node}\n{id}"));
    Secret::new(format!("{NODE_PREFIX}{node}.{}", proof.expose()))
}

/// What a change from a browser must bring along: it follows from the session's secret, so that only who holds the session can know it.
#[must_use]
pub fn csrf_token(network: &Secret, session_hash: &str) -> Secret {
    network.derive(&format!("fdn-csrf\n{session_hash}"))
}

async fn session(
    state: &State,
    token: &str,
    kind: SessionKind,
    now: Timestamp,
) -> Result<Option<Person>, Error> {
    let hash = token_hash(token);
    let mut connection = state.store.read().await?;
    let found = session_find(&mut connection, &hash, now).await?;
    let Some((row, holder)) = found.filter(|(row, holder)| {
        row.kind == kind && holder.disabled_at.is_none() && !idle(state, row, now)
    }) else {
        return Ok(None);
    };
    if now.since(row.last_used_at).as_millis() >= TOUCH_MS {
        lenient(session_touch(&mut connection, &hash, now).await)?;
    }
    let csrf = (kind == SessionKind::Cookie).then(|| csrf_token(&state.token, &hash));
    let credential = Credential::Session {
        id: row.id,
        kind,
        csrf,
    };
    let person = person(
        &mut connection,
        row.user,
        &holder,
        credential,
        row.expires_at,
    )
    .await?;
    Ok(Some(person))
}

/// Whether a browser's session was left alone for too long. A command line's may rest until it ends.
fn idle(state: &State, row: &SessionRow, now: Timestamp) -> bool {
    let most = state.settings.accounts.console_idle.as_duration();
    row.kind == SessionKind::Cookie && now.since(row.last_used_at) > most
}

async fn api_token(state: &State, token: &str, now: Timestamp) -> Result<Option<Person>, Error> {
    let Some((id, secret)) = token
        .rsplit_once('_')
        .and_then(|(id, secret)| Some((id.parse::<ApiTokenId>().ok()?, secret)))
    else {
        return Ok(None);
    };
    let mut connection = state.store.read().await?;
    let found = api_token_find(&mut connection, id).await?;
    let Some((row, holder)) = found.filter(|(row, holder)| {
        // Both are hashes: how long they are alike tells nothing of the secret.
        row.hash == token_hash(secret) && row.info.is_open(now) && holder.disabled_at.is_none()
    }) else {
        return Ok(None);
    };
    let used = row.info.last_used_at;
    if used.is_none_or(|at| now.since(at).as_millis() >= TOUCH_MS) {
        lenient(api_token_touch(&mut connection, id, now).await)?;
    }
    let info = row.info;
    let credential = Credential::Token {
        id,
        scopes: info.scopes,
        tenant: info.tenant,
    };
    let person = person(
        &mut connection,
        info.user,
        &holder,
        credential,
        info.expires_at,
    )
    .await?;
    Ok(Some(person))
}

/// Somebody else writes at the same time; the next request notes it.
fn lenient(noted: Result<(), StoreError>) -> Result<(), StoreError> {
    match noted {
        Err(StoreError::Contended(_)) => Ok(()),
        other => other,
    }
}

async fn person(
    connection: &mut AnyConnection,
    name: UserName,
    holder: &Holder,
    credential: Credential,
    expires_at: Timestamp,
) -> Result<Person, Error> {
    let mut tenants = membership_list(connection, name.as_str()).await?;
    if let Some(only) = credential.tenant() {
        tenants.retain(|member| member.id == only);
    }
    Ok(Person {
        name,
        network_role: holder.network_role,
        tenants,
        credential,
        expires_at,
    })
}

#[cfg(test)]
mod tests;
