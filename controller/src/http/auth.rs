//! Authentication and authorization of requests. A handler gets everything through one [`Authorized`]: first the caller is checked, then the tenant
//! that the request is about, and then the handler's input is read. (Separate arguments would be extracted concurrently, and a stranger would learn
//! what is wrong with the body.)
//!
//! The tenant of a request is determined here and nowhere else, so no handler can forget to check it: by `{tenant}` of the path, by the app
//! of `{app}`, else by `?tenant=`. A tenant that the caller is not a member of gets the same answer as one that does not exist.

use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::http::{Method, header};
use actix_web::{FromRequest, HttpMessage, HttpRequest, web};
use fdn_core::account::{SessionKind, TenantRef};
use fdn_core::api::CSRF_HEADER;
use fdn_core::rights::Scope;
use fdn_core::{AppName, JobId, Right, TenantId};
use futures::future::LocalBoxFuture;
use serde::Deserialize;

use super::error::ApiError;
use super::observe::RequestId;
use super::{conditional, cookie, once, source};
use crate::Error;
use crate::app::access::{Caller, Credential, Person, PresentedCredential, Verdict, authenticate};
use crate::app::actor::Actor;
use crate::app::precondition::Precondition;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::job::job_get;
use crate::store::tenant::tenant_get;

/// A right, as a type.
pub(crate) trait RequiredRight: 'static {
    /// The right.
    const RIGHT: Right;
    /// Whether the app in the path may be one that does not exist yet.
    const NEW_APP: bool = false;
}

/// Defines a type for each right.
macro_rules! rights {
    ($($right:ident),* $(,)?) => {
        $(
            #[doc = concat!("[`Right::", stringify!($right), "`].")]
            pub(crate) struct $right;

            impl RequiredRight for $right {
                const RIGHT: Right = Right::$right;
            }
        )*
    };
}

rights!(
    OwnAccount,
    LookNetwork,
    ManageSigning,
    Look,
    Deploy,
    RunJobs,
    ManageSecrets,
    ManageRecords,
    ManageMembers,
    ReadBilling,
    ManageBudgets,
    ReadAudit,
    LookMachines,
    OperateMachines,
    Administer,
);

/// [`Right::Deploy`], for an app that need not exist yet.
pub(crate) struct DeployNew;

impl RequiredRight for DeployNew {
    const RIGHT: Right = Right::Deploy;
    const NEW_APP: bool = true;
}

/// The precondition that an operation accepts on the state that it changes.
pub(crate) trait AcceptedPrecondition: Sized + 'static {
    /// Converts the precondition that was sent.
    ///
    /// # Errors
    /// When the operation would ignore it.
    fn of(sent: Precondition) -> Result<Self, Error>;
}

/// No precondition: a caller who sends `If-Match` must not believe that it was checked.
impl AcceptedPrecondition for () {
    fn of(sent: Precondition) -> Result<Self, Error> {
        match sent {
            Precondition::None => Ok(()),
            Precondition::Exists | Precondition::OneOf(_) => Err(Error::BadRequest(
                "if-match: this operation compares no tags; leave it out (the API document lists it where it counts)"
                    .to_owned(),
            )),
        }
    }
}

impl AcceptedPrecondition for Precondition {
    fn of(sent: Precondition) -> Result<Self, Error> {
        Ok(sent)
    }
}

/// A caller who has the right `R`, with the input `T` of the operation. `P` is [`Precondition`] for operations that compare tags.
pub(crate) struct Authorized<R: RequiredRight, T = (), P: AcceptedPrecondition = ()> {
    /// The caller.
    pub(crate) caller: Caller,
    /// The input.
    pub(crate) input: T,
    /// The caller's precondition on the state to be changed.
    pub(crate) expected: P,
    /// The idempotency key that was sent.
    pub(super) key: Option<String>,
    tenant: Option<TenantId>,
    actor: Actor,
    right: PhantomData<R>,
}

impl<R: RequiredRight, T, P: AcceptedPrecondition> Authorized<R, T, P> {
    /// The caller with token and address, for the audit log.
    #[must_use]
    pub(crate) fn actor(&self) -> Actor {
        self.actor.clone()
    }

    /// The tenant that the request is about: the named one, or the caller's only one. The caller has the right there.
    ///
    /// # Errors
    /// When the caller named none and is a member of several tenants or of none, or lacks the right in the only one.
    pub(crate) fn tenant(&self) -> Result<TenantId, Error> {
        if let Some(tenant) = self.tenant {
            return Ok(tenant);
        }
        match self.person()?.tenants.as_slice() {
            [only] => {
                authorize(&self.caller, R::RIGHT, only.id, || {
                    Error::no_tenant(&TenantRef::Id(only.id))
                })?;
                Ok(only.id)
            }
            [] => Err(Error::TenantNotNamed(
                "you are a member of no tenant; name one: ?tenant=NAME, or --tenant NAME",
            )),
            _ => Err(Error::TenantNotNamed(
                "you are a member of several tenants; name one: ?tenant=NAME, or --tenant NAME",
            )),
        }
    }

    /// The tenant that the request names, if any (or to which its token is restricted).
    pub(crate) const fn named_tenant(&self) -> Option<TenantId> {
        self.tenant
    }

    /// The calling user.
    ///
    /// # Errors
    /// When the caller is a machine, which never has a user's right.
    pub(crate) fn person(&self) -> Result<&Person, Error> {
        self.caller.person().ok_or_else(|| Error::Forbidden {
            who: self.caller.to_string(),
            right: R::RIGHT.words(),
        })
    }
}

impl<R: RequiredRight, T: FromRequest + 'static, P: AcceptedPrecondition> FromRequest
    for Authorized<R, T, P>
{
    type Error = actix_web::Error;
    type Future = LocalBoxFuture<'static, Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let (request, mut payload) = (request.clone(), payload.take());
        Box::pin(async move {
            let (caller, tenant) = check::<R>(&request).await.map_err(ApiError)?;
            let actor = actor(&request, &caller).map_err(ApiError)?;
            let expected = conditional::if_match(&request).and_then(P::of);
            let expected = expected.map_err(ApiError)?;
            let key = once::key(&request).map_err(ApiError)?;
            let input = T::from_request(&request, &mut payload)
                .await
                .map_err(Into::into)?;
            Ok(Self {
                caller,
                input,
                expected,
                key,
                tenant,
                actor,
                right: PhantomData,
            })
        })
    }
}

/// The controller's state.
pub(super) fn state(request: &HttpRequest) -> Result<Arc<State>, Error> {
    request
        .app_data::<web::Data<State>>()
        .map(|data| Arc::clone(data))
        .ok_or_else(|| Error::Internal("the state is not attached".to_owned()))
}

/// The client's address.
pub(super) fn address(request: &HttpRequest, state: &State) -> Option<IpAddr> {
    source::client(request, &state.settings.api.trusted_proxies)
}

/// An actor whose name is not known yet, with the request's id and address.
pub(super) fn anonymous_actor(request: &HttpRequest, state: &State) -> Actor {
    Actor {
        address: address(request, state),
        request: request
            .extensions()
            .get::<RequestId>()
            .map(|id| id.0.clone()),
        ..Actor::named("somebody")
    }
}

fn actor(request: &HttpRequest, caller: &Caller) -> Result<Actor, Error> {
    let anonymous_actor = anonymous_actor(request, &*state(request)?);
    let token = caller.person().and_then(|person| person.credential.token());
    Ok(Actor {
        token,
        ..anonymous_actor.with_name(caller.to_string())
    })
}

/// The caller, by the token or the cookie that was sent.
pub(super) async fn caller(state: &State, request: &HttpRequest) -> Result<Caller, Error> {
    let cookie = cookie::session(request);
    let shown = match (bearer(request), &cookie) {
        (Some(token), _) => PresentedCredential::Bearer(token),
        (None, Some(cookie)) => PresentedCredential::Cookie(cookie),
        (None, None) => PresentedCredential::Nothing,
    };
    authenticate(state, shown, address(request, state)).await
}

async fn check<R: RequiredRight>(
    request: &HttpRequest,
) -> Result<(Caller, Option<TenantId>), Error> {
    let state = state(request)?;
    let caller = caller(&state, request).await?;
    if let Some(person) = caller.person() {
        check_csrf(request, &person.credential)?;
    }
    if caller.allowed(R::RIGHT, None) != Verdict::Allowed {
        return Err(forbidden(&caller, R::RIGHT));
    }
    let tenant = match R::RIGHT.scope() {
        Scope::Tenant => tenant::<R>(&state, request, &caller).await?,
        Scope::Everyone | Scope::Network => None,
    };
    Ok((caller, tenant))
}

fn forbidden(caller: &Caller, right: Right) -> Error {
    Error::Forbidden {
        who: caller.to_string(),
        right: right.words(),
    }
}

/// CSRF protection: a change by cookie must bring a value that only the console's own page can know, since a browser sends the cookie with requests
/// of other pages too.
fn check_csrf(request: &HttpRequest, credential: &Credential) -> Result<(), Error> {
    let Credential::Session {
        kind: SessionKind::Cookie,
        csrf: Some(csrf),
        ..
    } = credential
    else {
        return Ok(());
    };
    let only_looks = matches!(*request.method(), Method::GET | Method::HEAD);
    let sent = request
        .headers()
        .get(CSRF_HEADER)
        .and_then(|value| value.to_str().ok());
    if only_looks || sent.is_some_and(|sent| csrf.matches(sent)) {
        Ok(())
    } else {
        Err(Error::Csrf)
    }
}

/// Permits a caller who has the right in the tenant. A caller who may not know of the tenant gets the error `hidden`.
fn authorize(
    caller: &Caller,
    right: Right,
    tenant: TenantId,
    hidden: impl FnOnce() -> Error,
) -> Result<(), Error> {
    match caller.allowed(right, Some(tenant)) {
        Verdict::Allowed => Ok(()),
        Verdict::Refused => Err(forbidden(caller, right)),
        Verdict::Suspended => Err(Error::Suspended),
        Verdict::Hidden => Err(hidden()),
    }
}

/// Requires a further right in the tenant, for operations where only some requests need it.
pub(super) fn require(caller: &Caller, right: Right, tenant: TenantId) -> Result<(), Error> {
    authorize(caller, right, tenant, || forbidden(caller, right))
}

/// The query parameter of every operation in a tenant.
#[derive(Deserialize)]
struct TenantQuery {
    tenant: Option<TenantRef>,
}

/// The tenant that a request is about; the caller has the right there.
async fn tenant<R: RequiredRight>(
    state: &State,
    request: &HttpRequest,
    caller: &Caller,
) -> Result<Option<TenantId>, Error> {
    let query = web::Query::<TenantQuery>::from_query(request.query_string())
        .map_err(|e| Error::BadRequest(e.to_string()))?;
    let named = match request.match_info().get("tenant") {
        Some(text) => Some(text.parse()?),
        None => query.into_inner().tenant,
    };
    let named = match &named {
        Some(named) => Some(by_name::<R>(state, caller, named).await?),
        None => caller
            .person()
            .and_then(|person| person.credential.tenant()),
    };
    if let Some(job) = request.match_info().get("job") {
        return of_job::<R>(state, caller, job.parse()?, named).await;
    }
    match request.match_info().get("app") {
        Some(app) => of_app::<R>(state, caller, &app.parse()?, named).await,
        None => Ok(named),
    }
}

async fn by_name<R: RequiredRight>(
    state: &State,
    caller: &Caller,
    named: &TenantRef,
) -> Result<TenantId, Error> {
    let found = tenant_get(&mut *state.store.read().await?, named).await?;
    // A deleted tenant can be looked at, for its bills, but not changed.
    let found = found.filter(|found| found.deleted_at.is_none() || R::RIGHT.only_looks());
    let tenant = found.ok_or_else(|| Error::no_tenant(named))?.id;
    authorize(caller, R::RIGHT, tenant, || Error::no_tenant(named))?;
    Ok(tenant)
}

/// The tenant of a job. A job of another tenant than the named one counts as missing; for a missing job the handler gives the same error.
async fn of_job<R: RequiredRight>(
    state: &State,
    caller: &Caller,
    job: JobId,
    named: Option<TenantId>,
) -> Result<Option<TenantId>, Error> {
    let found = job_get(&mut *state.store.read().await?, job).await?;
    let Some(row) = found else { return Ok(named) };
    if named.is_some_and(|named| named != row.tenant) {
        return Err(Error::no_job(job));
    }
    authorize(caller, R::RIGHT, row.tenant, || Error::no_job(job))?;
    Ok(Some(row.tenant))
}

/// The tenant of an app. An app of another tenant than the named one counts as missing.
async fn of_app<R: RequiredRight>(
    state: &State,
    caller: &Caller,
    app: &AppName,
    named: Option<TenantId>,
) -> Result<Option<TenantId>, Error> {
    let hidden = || match R::NEW_APP {
        // That the name is taken is no secret: DNS resolves it.
        true => Error::name_taken(app),
        false => Error::no_app(app),
    };
    let found = app_get(&mut *state.store.read().await?, app).await?;
    let Some(row) = found else {
        return if R::NEW_APP { Ok(named) } else { Err(hidden()) };
    };
    if named.is_some_and(|named| named != row.tenant) {
        return Err(hidden());
    }
    authorize(caller, R::RIGHT, row.tenant, hidden)?;
    Ok(Some(row.tenant))
}

/// The token of `Authorization: Bearer TOKEN` (RFC 6750, section 2.1; the scheme's case does not matter).
fn bearer(request: &HttpRequest) -> Option<&str> {
    let value = request
        .headers()
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn only_bearer_tokens_count() {
        let token = |value: &str| {
            let request = TestRequest::default()
                .insert_header((header::AUTHORIZATION, value))
                .to_http_request();
            bearer(&request).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("Bearer "), None);
        assert_eq!(token("abc"), None);
    }
}
