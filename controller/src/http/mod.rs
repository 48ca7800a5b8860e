//! HTTP: thin handlers over the use cases of `app`, one listener for API, console, health and metrics.
//!
//! Every handler names the right it needs as the type of its first argument ([`auth::Authorized`]). Handlers are listed once, in
//! [`operations!`]: the list makes both the routes and the OpenAPI document, so neither can know an operation that the other does not.

mod auth;
mod console;
mod error;
mod fleet;
mod machines;
mod multipart;
mod network;
mod observe;
mod people;

use std::net::TcpListener;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpServer, get, middleware};
use fdn_service::ServiceError;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::Error;
use crate::state::State;

/// Lists every operation once.
macro_rules! operations {
    ($($module:ident::$handler:ident),* $(,)?) => {
        /// The API.
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Function delivery network",
                description = "Upload a function once, call one URL, and the call runs on the edge cluster that finishes it soonest.",
            ),
            modifiers(&Security),
            paths($($module::$handler),*),
            components(schemas(fdn_core::Problem)),
        )]
        struct Document;

        fn operations(config: &mut ServiceConfig) {
            config$(.service($module::$handler))*;
        }
    };
}

operations! {
    people::login,
    people::network_get,
    people::app_list,
    people::app_deploy,
    people::app_get,
    people::app_rollback,
    people::app_delete,
    people::app_explain,
    people::app_logs,
    fleet::cluster_list,
    fleet::cluster_create,
    fleet::cluster_get,
    fleet::node_list,
    fleet::node_get,
    fleet::node_drain,
    fleet::node_uncordon,
    fleet::node_remove,
    fleet::join_token_create,
    fleet::join_token_list,
    fleet::join_token_revoke,
    machines::node_enrol,
    machines::node_renew,
    machines::head_lease,
    network::agent_apps,
    network::agent_artifact,
    network::agent_usage,
    network::dns_snapshot,
}

/// Adds the two kinds of credentials to the document.
struct Security;

impl utoipa::Modify for Security {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let bearer = |text: &str| {
            SecurityScheme::Http(
                HttpBuilder::new()
                    .scheme(HttpAuthScheme::Bearer)
                    .description(Some(text))
                    .build(),
            )
        };
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("session", bearer("A token from `POST /v1/login`."));
        components.add_security_scheme(
            "network",
            bearer("The token that the network's own processes share, or a node's own."),
        );
    }
}

/// The OpenAPI document as JSON.
///
/// # Errors
/// When it cannot be written, which would be a bug.
pub fn openapi_json() -> Result<String, Error> {
    let mut text = Document::openapi()
        .to_pretty_json()
        .map_err(|e| Error::Internal(format!("the API document: {e}")))?;
    text.push('\n');
    Ok(text)
}

#[get("/api/openapi.json")]
async fn serve_document() -> Result<actix_web::HttpResponse, error::ApiError> {
    Ok(actix_web::HttpResponse::Ok()
        .content_type("application/json")
        .body(openapi_json()?))
}

/// Starts serving on `listener`.
///
/// # Errors
/// When the server cannot start.
pub(crate) fn start(listener: TcpListener, state: Arc<State>) -> Result<ServerHandle, Error> {
    let address = state.settings.listen;
    let workers = state.settings.workers;
    let server = HttpServer::new(move || {
        App::new()
            .wrap(middleware::Compress::default())
            .wrap(middleware::from_fn(observe::observe))
            .app_data(web::Data::from(Arc::clone(&state)))
            .app_data(web::Data::new(state.metrics.registry.clone()))
            .app_data(web::Data::new(state.readiness.clone()))
            .configure(|config| error::configure(config, state.settings.uploads.body_limit))
            .configure(fdn_service::admin::routes)
            .configure(operations)
            .configure(console::routes)
            .service(serve_document)
            .default_service(web::to(error::nothing_here))
    })
    .workers(workers)
    .disable_signals()
    .shutdown_timeout(5)
    .listen(listener)
    .map_err(|source| ServiceError::Listen {
        address,
        setting: "listen".to_owned(),
        source,
    })?
    .run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok(handle)
}
