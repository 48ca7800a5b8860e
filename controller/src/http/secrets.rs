//! `/v1/apps/{app}/secrets`: secret values, which only functions can read, in their environment.

use actix_web::{HttpResponse, delete, get, put, web};
use fdn_core::app::{SecretInfo, SetSecret};
use fdn_core::{AppName, Problem, SecretName};
use fdn_service::now;
use fdn_service::secret::Secret;

use super::auth::{Authorized, Look, ManageSecrets};
use super::error::ApiError;
use crate::Error;
use crate::app::secrets::manage;
use crate::state::State;

type Shared = web::Data<State>;
type One = web::Path<(AppName, SecretName)>;

/// The secrets of an app by name, without their values.
#[utoipa::path(
    tag = "secrets",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    responses(
        (status = 200, body = [SecretInfo]),
        (status = 409, description = "FDN-2004: the app is a workflow", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[get("/v1/apps/{app}/secrets")]
pub(crate) async fn secret_list(
    call: Authorized<Look, web::Path<AppName>>,
    state: Shared,
) -> Result<web::Json<Vec<SecretInfo>>, ApiError> {
    Ok(web::Json(
        manage::list(&state, call.tenant()?, &call.input).await?,
    ))
}

/// Set a secret, or only say whether it has the value already. Running functions get the value without a deploy.
#[utoipa::path(
    tag = "secrets",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("secret" = String, Path, description = "The secret's name")),
    request_body = SetSecret,
    responses(
        (status = 200, body = SecretInfo),
        (status = 409, description = "FDN-2004: the app is a workflow, or has as many secrets as it may", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "FDN-2021: the value cannot be used", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[put("/v1/apps/{app}/secrets/{secret}")]
pub(crate) async fn secret_set(
    call: Authorized<ManageSecrets, (One, web::Bytes)>,
    state: Shared,
) -> Result<web::Json<SecretInfo>, ApiError> {
    let (one, body) = &call.input;
    let (app, name) = &**one;
    let (value, dry_run) = value(body)?;
    let which = (app, name);
    let (tenant, actor) = (call.tenant()?, call.actor());
    let set = match dry_run {
        true => manage::dry_run(&state, tenant, &actor, which, &value).await?,
        false => manage::set(&state, tenant, &actor, which, &value).await?,
    };
    Ok(web::Json(set))
}

/// The value in a body, and whether it is a dry run. The parser's message is not passed on: it may quote the value.
fn value(body: &[u8]) -> Result<(Secret, bool), Error> {
    let sent: SetSecret = serde_json::from_slice(body).map_err(|error| {
        Error::BadRequest(format!(
            "the body must be JSON with a field value that is a text, and no other but dry_run (line {}, column {})",
            error.line(),
            error.column()
        ))
    })?;
    Ok((Secret::new(sent.value), sent.dry_run))
}

/// Remove a secret that no version names.
#[utoipa::path(
    tag = "secrets",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), ("secret" = String, Path, description = "The secret's name")),
    responses(
        (status = 204, description = "Removed"),
        (status = 409, description = "FDN-2004: a version names it", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[delete("/v1/apps/{app}/secrets/{secret}")]
pub(crate) async fn secret_remove(
    call: Authorized<ManageSecrets, One>,
    state: Shared,
) -> Result<HttpResponse, ApiError> {
    let (app, name) = &*call.input;
    manage::remove(&state, call.tenant()?, &call.actor(), (app, name), now()).await?;
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_wrong_is_not_quoted() {
        assert_eq!(
            value(br#"{"value":"5ecret"}"#).expect("good"),
            (Secret::new("5ecret"), false)
        );
        let asked = value(br#"{"value":"x","dry_run":true}"#).expect("good");
        assert!(asked.1);
        for bad in [
            r#""5ecret""#,
            r#"{"value":["5ecret"]}"#,
            r#"{"value":"x","5ecret":1}"#,
            r#"{"value":"5ecret"#,
            r#"{"value":53}"#,
            "5ecret",
        ] {
            let error = value(bad.as_bytes()).expect_err(bad).to_string();
            assert!(
                !error.contains("5ecret") && !error.contains("53"),
                "{error}"
            );
        }
    }
}
