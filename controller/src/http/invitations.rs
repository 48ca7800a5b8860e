//! `/v1/invitations`: an admin creates one, and whoever presents it sets a password and is logged in.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, post, web};
use fdn_core::Problem;
use fdn_core::account::SessionKind;
use fdn_core::invitation::{AcceptInvitation, AcceptedInvitation, CreatedInvitation, InviteUser};

use super::auth::{Administer, Authorized, anonymous_actor};
use super::error::ApiError;
use super::{cookie, once};
use crate::app::invitation;
use crate::state::State;

type Shared = web::Data<State>;

/// Invite a user, who chooses the password. The user is made if there is none of the name; an invitation that was made before ends. It is shown once.
#[utoipa::path(
    tag = "users",
    security(("session" = [])),
    params(("idempotency-key" = Option<String>, Header, description = "The same request again with the same key gets the first one's answer")),
    request_body = InviteUser,
    responses(
        (status = 200, body = CreatedInvitation),
        (status = 409, description = "FDN-2004: the user has a password, logs in with the identity provider, is disabled, or has another role", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/invitations")]
pub(crate) async fn invitation_create(
    call: Authorized<Administer, web::Json<InviteUser>>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    once::once(
        &state,
        &call,
        "invitation_create",
        async |actor, request| invitation::create(&state, actor, request).await,
    )
    .await
}

/// Accept an invitation: the password becomes the user's, and a session begins as with a login. An invitation is good once.
#[utoipa::path(
    tag = "accounts",
    security(()),
    request_body = AcceptInvitation,
    responses(
        (status = 200, description = "Logged in, with `set-cookie` if that holds the session", body = AcceptedInvitation),
        (status = 403, description = "FDN-2042: the invitation is not known; FDN-2043: it has ended", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2017: the password is not accepted; the invitation stays good", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "FDN-2006: too many failures", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/invitations/accept")]
pub(crate) async fn invitation_accept(
    state: Shared,
    request: HttpRequest,
    body: web::Json<AcceptInvitation>,
) -> Result<HttpResponse, ApiError> {
    let actor = anonymous_actor(&request, &state);
    let begun = invitation::accept(&state, body.into_inner(), &actor).await?;
    let secret = begun.secret.expose();
    let mut response = HttpResponse::Ok();
    let token = match begun.session.kind {
        SessionKind::Bearer => Some(secret.to_owned()),
        SessionKind::Cookie => {
            let lifetime = state.settings.accounts.console_lifetime;
            let cookie = cookie::set(&request, secret, lifetime);
            response.insert_header((header::SET_COOKIE, cookie));
            None
        }
    };
    Ok(response
        .insert_header(("cache-control", "no-store"))
        .json(AcceptedInvitation {
            user: begun.session.user,
            token,
            expires_at: begun.session.expires_at,
        }))
}
