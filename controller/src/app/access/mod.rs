//! Authentication and authorization: who the caller is, and what the caller may do. The decision ([`Caller::allowed`]) is a pure function of the
//! caller, the right and the tenant; [`fdn_core::rights`] defines which role has which right.

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
use crate::store::session::{Holder, SessionRow, session_find, session_holder, session_touch};
use crate::store::tenant::membership_list;

/// The least time between two updates of a token's last use, in ms.
const TOUCH_MS: u128 = 60_000;

/// What a person is authenticated by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A session, started by a login.
    Session {
        /// The session's id.
        id: SessionId,
        /// How the client holds the session's secret: as a cookie or as a bearer token.
        kind: SessionKind,
        /// The token that a change from a browser must carry; for cookies only.
        csrf: Option<Secret>,
    },
    /// An API token that a person created for a tool. It never allows more than the person may do at the time.
    Token {
        /// The token's id.
        id: ApiTokenId,
        /// The rights it is restricted to.
        scopes: BTreeSet<Right>,
        /// The only tenant in which it is valid; `None` if it is valid in all of the person's tenants.
        tenant: Option<TenantId>,
    },
}

/// A person, or a tool that acts for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The user name.
    pub name: UserName,
    /// The network-wide role, if the person has one.
    pub network_role: Option<NetworkRole>,
    /// The person's tenants and the role in each, by name. For a token that is limited to one tenant: only that one.
    pub tenants: Vec<Membership>,
    /// What the person is authenticated by.
    pub credential: Credential,
    /// When the credential expires.
    pub expires_at: Timestamp,
}

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A person or a tool that acts for one.
    User(Box<Person>),
}

/// The decision whether a caller may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The caller has the right.
    Allowed,
    /// The caller lacks the right.
    Refused,
    /// The caller has the right, but the tenant is suspended.
    Suspended,
    /// The caller lacks the right, and must not learn that the tenant or anything in it exists.
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
    /// Whether this caller has a right in `tenant`; without a tenant, whether the caller has it anywhere. (Everybody may look at their own
    /// things, even if there are none.)
    #[must_use]
    pub fn allowed(&self, right: Right, tenant: Option<TenantId>) -> Verdict {
        match self {
            Self::User(person) => person.allowed(right, tenant),
        }
    }

    /// The person behind the caller, if it is one.
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

    /// Whether the person's network role gives the right everywhere, also for things that belong to no tenant.
    #[must_use]
    pub fn has_everywhere(&self, right: Right) -> bool {
        self.by_network_role(right) && self.credential.tenant().is_none()
    }

    /// The user name that lists of tenants' things are filtered by: the person's own; `None` if the person sees every tenant.
    #[must_use]
    pub fn list_filter(&self, right: Right) -> Option<String> {
        (!self.by_network_role(right)).then(|| self.name.to_string())
    }
}

impl Credential {
    /// Whether this credential lets a person who has `right` use it.
    fn covers(&self, right: Right) -> bool {
        match self {
            Self::Session { .. } => true,
            Self::Token { scopes, .. } => {
                right.for_tokens() && (right == Right::LookNetwork || scopes.contains(&right))
            }
        }
    }

    /// The only tenant in which the credential is valid, if it is limited to one.
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

/// The credentials that a request carries.
#[derive(Clone, Copy, Debug)]
pub enum PresentedCredential<'a> {
    /// A bearer token.
    Bearer(&'a str),
    /// The cookie of a browser session.
    Cookie(&'a str),
    /// No credentials.
    Nothing,
}

/// Authenticates a caller.
///
/// Secrets of 256 bits cannot be guessed, so a known one counts whatever else comes from its address: a tool with a dead token must keep nobody out
/// who works beside it, behind the same address. Only unknown ones are throttled.
///
/// # Errors
/// When there are no credentials, they are unknown or expired, too many unknown ones came from the address, or the store fails.
pub async fn authenticate(
    state: &State,
    shown: PresentedCredential<'_>,
    address: Option<IpAddr>,
) -> Result<Caller, Error> {
    let now = fdn_service::now();
    let person = match shown {
        PresentedCredential::Nothing => {
            return Err(Error::Unauthenticated(
                "this needs credentials: send the header `authorization: Bearer TOKEN`; `fdn login` gets a token",
            ));
        }
        PresentedCredential::Bearer(token) => match token.starts_with(API_PREFIX) {
            true => api_token(state, token, now).await?,
            false => session(state, token, SessionKind::Bearer, now).await?,
        },
        PresentedCredential::Cookie(value) => {
            session(state, value, SessionKind::Cookie, now).await?
        }
    };
    match person {
        Some(person) => Ok(Caller::User(Box::new(person))),
        None => {
            state.logins.check_token_throttle(address, now)?;
            state.logins.token_failed(address, now);
            Err(Error::Unauthenticated(
                "the token is not known or has expired; `fdn login` gets a new one",
            ))
        }
    }
}

/// The prefix of API tokens.
const API_PREFIX: &str = "fdn_";

/// The prefix of node tokens.
const NODE_PREFIX: &str = "fdn-node.";

/// A machine's own token. It gives no access to a controller: agents of earlier releases recognized controllers by it, and gateways on loopback
/// that call stages without certificates recognize each other by it. It is derived from the network token, so that it need not be stored, and
/// from the enrolment, so that it ends with the enrolment.
#[must_use]
pub fn node_token(network: &Secret, enrolment: &EnrolmentRow) -> Secret {
    let EnrolmentRow { node, id, .. } = enrolment;
    let proof = network.derive(&format!("fdn-node-token\n{node}\n{id}"));
    Secret::new(format!("{NODE_PREFIX}{node}.{}", proof.expose()))
}

/// The token that a change from a browser must carry. It is derived from the session's hash, so that only the holder of the session can learn it.
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
        ignore_contention(session_touch(&mut connection, &hash, now).await)?;
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

/// Whether a browser session has been idle for too long. A command line session may be idle until it expires.
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
        // Both are hashes: the time of the comparison reveals nothing about the secret.
        row.hash == token_hash(secret) && row.info.is_open(now) && holder.disabled_at.is_none()
    }) else {
        return Ok(None);
    };
    let used = row.info.last_used_at;
    if used.is_none_or(|at| now.since(at).as_millis() >= TOUCH_MS) {
        ignore_contention(api_token_touch(&mut connection, id, now).await)?;
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

/// The caller as of `now`, with the present roles, for an answer that lasts; `None` if the session or token has ended or its user is disabled.
///
/// # Errors
/// When the store fails.
pub(super) async fn present(
    connection: &mut AnyConnection,
    caller: &Caller,
    now: Timestamp,
) -> Result<Option<Caller>, Error> {
    let Caller::User(known) = caller;
    let found = match &known.credential {
        Credential::Session { id, .. } => session_holder(&mut *connection, *id, now).await?,
        Credential::Token { id, .. } => api_token_find(&mut *connection, *id)
            .await?
            .filter(|(row, _)| row.info.is_open(now))
            .map(|(_, holder)| holder),
    };
    let Some(holder) = found.filter(|holder| holder.disabled_at.is_none()) else {
        return Ok(None);
    };
    let (name, credential) = (known.name.clone(), known.credential.clone());
    let person = person(connection, name, &holder, credential, known.expires_at).await?;
    Ok(Some(Caller::User(Box::new(person))))
}

/// Ignores contention: another request writes at the same time, and the next request updates the last use.
fn ignore_contention(noted: Result<(), StoreError>) -> Result<(), StoreError> {
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
