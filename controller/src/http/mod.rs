//! The HTTP API: thin handlers over the use cases in `app`, and one listener for API, console, health and metrics.
//!
//! Every handler names the right that it requires as the type of its first argument ([`auth::Authorized`]). Handlers are listed once, in
//! [`operations!`]: the list makes both the routes and the OpenAPI document, so neither can have an operation that the other lacks.

mod accounts;
mod applied;
mod auth;
mod billing;
mod bound;
mod conditional;
mod console;
mod cookie;
mod dns;
mod document;
mod domains;
mod env;
mod error;
mod events;
mod fleet;
mod invitations;
mod job;
mod listener;
mod look;
mod machines;
mod multipart;
mod observe;
mod oidc;
mod once;
mod pace;
mod page;
mod people;
mod policy;
mod preview;
mod removal;
mod repository;
mod rollout;
mod runs;
mod secrets;
mod source;
mod tenants;
mod traffic;
mod txt;
mod users;
mod workflow;

use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::http::header::STRICT_TRANSPORT_SECURITY;
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpServer, get, middleware};
use fdn_core::Right;
use fdn_service::ServiceError;
use fdn_service::tls_listener::CertificateReloader;
use utoipa::OpenApi;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::Error;
use crate::state::State;
pub use console::built_in;
use document::Common;
pub(crate) use error::problem;
pub(crate) use listener::ApiListener;

/// Lists every operation once, with the right that it requires: the one in the type of the handler's first argument (a test calls every operation
/// with and without it). `None` for operations whose callers identify themselves in the request itself.
macro_rules! operations {
    ($($module:ident::$handler:ident => $right:expr),* $(,)?) => {
        /// The API.
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Function delivery network",
                description = "Upload a function once, call one URL, and the call runs on the edge cluster that finishes it soonest.",
            ),
            modifiers(&Security, &Rights, &Common),
            paths($($module::$handler),*),
            components(schemas(fdn_core::Problem, fdn_core::event::Event)),
        )]
        struct Document;

        /// The rights, by the names of the handlers, which are the operation ids in the document.
        const RIGHTS: &[(&str, Option<Right>)] = &[$((stringify!($handler), $right)),*];

        fn operations(config: &mut ServiceConfig) {
            config$(.service($module::$handler))*;
        }
    };
}

operations! {
    accounts::login => None,
    accounts::login_info => None,
    accounts::session_create => None,
    accounts::session_get => Some(Right::LookNetwork),
    accounts::session_delete => Some(Right::OwnAccount),
    accounts::session_list => Some(Right::OwnAccount),
    accounts::session_end => Some(Right::OwnAccount),
    accounts::password_change => Some(Right::OwnAccount),
    oidc::oidc_begin => None,
    oidc::oidc_end => None,
    accounts::token_create => Some(Right::OwnAccount),
    accounts::token_list => Some(Right::OwnAccount),
    accounts::token_revoke => Some(Right::OwnAccount),
    tenants::tenant_create => Some(Right::Administer),
    tenants::tenant_list => Some(Right::Look),
    tenants::tenant_describe => Some(Right::Look),
    tenants::tenant_update => Some(Right::Administer),
    removal::tenant_delete => Some(Right::Administer),
    repository::signing_key_list => Some(Right::Look),
    repository::signing_key_put => Some(Right::ManageSigning),
    repository::signing_key_remove => Some(Right::ManageSigning),
    repository::signature_policy_set => Some(Right::ManageSigning),
    tenants::member_list => Some(Right::Look),
    tenants::member_get => Some(Right::Look),
    tenants::member_put => Some(Right::ManageMembers),
    tenants::member_remove => Some(Right::ManageMembers),
    tenants::audit_log => Some(Right::ReadAudit),
    events::event_stream => Some(Right::Look),
    users::user_create => Some(Right::Administer),
    users::user_list => Some(Right::Administer),
    users::user_get => Some(Right::Administer),
    users::user_update => Some(Right::Administer),
    users::user_password => Some(Right::Administer),
    removal::user_delete => Some(Right::Administer),
    invitations::invitation_create => Some(Right::Administer),
    invitations::invitation_accept => None,
    people::network_get => Some(Right::LookNetwork),
    people::app_list => Some(Right::Look),
    people::app_deploy => Some(Right::Deploy),
    people::app_get => Some(Right::Look),
    people::app_rollback => Some(Right::Deploy),
    people::app_delete => Some(Right::Deploy),
    people::version_delete => Some(Right::Deploy),
    people::app_explain => Some(Right::Look),
    people::app_logs => Some(Right::Look),
    look::app_calls => Some(Right::Look),
    look::call_trace => Some(Right::Look),
    look::figures_get => Some(Right::Look),
    look::traffic_map => Some(Right::Look),
    look::latency_list => Some(Right::LookMachines),
    look::dns_lookup => Some(Right::Look),
    look::binding_list => Some(Right::Look),
    txt::txt_list => Some(Right::Look),
    txt::txt_set => Some(Right::ManageRecords),
    txt::txt_add => Some(Right::ManageRecords),
    txt::txt_remove => Some(Right::ManageRecords),
    look::app_try => Some(Right::Deploy),
    runs::run_list => Some(Right::Look),
    runs::run_get => Some(Right::Look),
    preview::plan_preview => Some(Right::Look),
    repository::label_get => Some(Right::Look),
    repository::label_set => Some(Right::Deploy),
    repository::catalogue_list => Some(Right::LookNetwork),
    repository::catalogue_deploy => Some(Right::Deploy),
    workflow::workflow_put => Some(Right::Deploy),
    workflow::workflow_get => Some(Right::Look),
    applied::set_get => Some(Right::Look),
    applied::set_put => Some(Right::Deploy),
    policy::policy_get => Some(Right::Look),
    policy::policy_set => Some(Right::Deploy),
    policy::policy_clear => Some(Right::Deploy),
    policy::key_create => Some(Right::Deploy),
    policy::key_list => Some(Right::Look),
    policy::key_revoke => Some(Right::Deploy),
    dns::dns_get => Some(Right::Look),
    dns::dns_set => Some(Right::Deploy),
    traffic::traffic_get => Some(Right::Look),
    traffic::traffic_set => Some(Right::Deploy),
    job::job_submit => Some(Right::RunJobs),
    job::job_list_all => Some(Right::Look),
    job::job_list => Some(Right::Look),
    job::jobs_redrive => Some(Right::RunJobs),
    job::job_get => Some(Right::Look),
    job::job_cancel => Some(Right::RunJobs),
    job::job_redrive => Some(Right::RunJobs),
    job::job_result => Some(Right::Look),
    job::job_logs => Some(Right::Look),
    job::schedule_list_all => Some(Right::Look),
    job::schedule_list => Some(Right::Look),
    job::schedule_put => Some(Right::RunJobs),
    job::schedule_remove => Some(Right::RunJobs),
    env::env_change => Some(Right::Deploy),
    rollout::objective_get => Some(Right::Look),
    rollout::objective_set => Some(Right::Deploy),
    rollout::objective_clear => Some(Right::Deploy),
    domains::domain_list => Some(Right::Look),
    domains::domain_add => Some(Right::Deploy),
    domains::domain_verify => Some(Right::Deploy),
    domains::domain_remove => Some(Right::Deploy),
    secrets::secret_list => Some(Right::Look),
    secrets::secret_set => Some(Right::ManageSecrets),
    secrets::secret_remove => Some(Right::ManageSecrets),
    billing::statement_list => Some(Right::ReadBilling),
    billing::statement_get => Some(Right::ReadBilling),
    billing::statement_csv => Some(Right::ReadBilling),
    billing::usage_view => Some(Right::ReadBilling),
    billing::price_list => Some(Right::LookNetwork),
    billing::price_apply => Some(Right::Administer),
    billing::price_remove => Some(Right::Administer),
    billing::budget_list => Some(Right::ReadBilling),
    billing::budget_set => Some(Right::ManageBudgets),
    billing::budget_remove => Some(Right::ManageBudgets),
    billing::alert_list => Some(Right::ReadBilling),
    fleet::cluster_list => Some(Right::LookNetwork),
    fleet::cluster_create => Some(Right::OperateMachines),
    fleet::cluster_get => Some(Right::LookMachines),
    fleet::node_list => Some(Right::LookMachines),
    fleet::node_get => Some(Right::LookMachines),
    fleet::node_drain => Some(Right::OperateMachines),
    fleet::node_uncordon => Some(Right::OperateMachines),
    fleet::node_restore_device => Some(Right::OperateMachines),
    fleet::node_remove => Some(Right::OperateMachines),
    fleet::dns_server_list => Some(Right::LookMachines),
    fleet::dns_server_remove => Some(Right::OperateMachines),
    fleet::join_token_create => Some(Right::OperateMachines),
    fleet::join_token_list => Some(Right::OperateMachines),
    fleet::join_token_revoke => Some(Right::OperateMachines),
    machines::node_enrol => None,
    machines::node_renew => None,
}

/// Adds the right that each operation requires to the document, as `x-fdn-right`.
struct Rights;

impl utoipa::Modify for Rights {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            let operations = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.delete,
                &mut item.patch,
            ];
            for operation in operations.into_iter().flatten() {
                let id = operation.operation_id.as_deref().unwrap_or_default();
                let right = RIGHTS.iter().find(|(handler, _)| *handler == id);
                if let Some((_, Some(right))) = right {
                    let extension = Extensions::builder().add("x-fdn-right", right.as_str());
                    operation
                        .extensions
                        .get_or_insert_default()
                        .merge(extension.build());
                }
            }
        }
    }
}

/// Adds the security scheme to the document.
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
        components.add_security_scheme(
            "session",
            bearer(
                "A token from `POST /v1/login`, or an API token; browsers send a cookie instead.",
            ),
        );
    }
}

/// The OpenAPI document as JSON.
///
/// # Errors
/// When it cannot be serialized, which would be a bug.
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

/// The running server. Certificates are reloaded as long as this lives.
pub(crate) struct Serving {
    handle: ServerHandle,
    _shown: Option<CertificateReloader>,
}

impl Serving {
    /// Stops accepting connections, and lets running requests finish.
    pub(crate) async fn stop(&self) {
        self.handle.stop(true).await;
    }
}

/// Starts serving on `listener`.
///
/// # Errors
/// When the server cannot start.
pub(crate) fn start(listener: ApiListener, state: Arc<State>) -> Result<Serving, Error> {
    let address = state.settings.listen;
    let workers = state.settings.workers;
    let connections = state.settings.api.max_connections.div_ceil(workers);
    let handshake = state.settings.api.tls.handshake.as_duration();
    let unread = state.metrics.certificate_errors.clone();
    let requests = bound::RequestPermits::new(
        state.settings.api.max_connections,
        state.settings.uploads.idle_timeout.as_duration(),
    );
    let (secure, hsts) = (
        matches!(listener, ApiListener::Secure(_)),
        state.settings.api.tls.hsts.as_duration().as_secs(),
    );
    let server = HttpServer::new(move || {
        App::new()
            .wrap(middleware::from_fn(bound::bound))
            .wrap(middleware::from_fn(observe::observe))
            // Outermost: the body is compressed as it is sent, request id included.
            .wrap(middleware::Compress::default())
            .wrap(middleware::Condition::new(
                secure,
                middleware::DefaultHeaders::new()
                    .add((STRICT_TRANSPORT_SECURITY, format!("max-age={hsts}"))),
            ))
            .app_data(web::Data::from(Arc::clone(&state)))
            .app_data(web::Data::new(state.metrics.registry.clone()))
            .app_data(web::Data::new(state.readiness.clone()))
            .app_data(web::Data::new(requests.clone()))
            .configure(|config| error::configure(config, state.settings.uploads.body_limit))
            .configure(fdn_service::admin::routes)
            .configure(operations)
            .service(serve_document)
            .configure(console::routes)
    })
    .workers(workers)
    .max_connections(connections)
    .disable_signals()
    .shutdown_timeout(5);
    let (server, shown) = match listener {
        ApiListener::Plain(listener) => (server.listen(listener), None),
        ApiListener::Secure(secure) => {
            let (listener, config, shown) = secure.split(unread);
            // Concurrent handshakes: with fewer than connections, clients that send nothing would keep a worker from accepting.
            let server = server
                .tls_handshake_timeout(handshake)
                .max_connection_rate(connections);
            (server.listen_rustls_0_23(listener, config), Some(shown))
        }
    };
    let failed = |source| ServiceError::Listen {
        address,
        setting: listener::SETTING.to_owned(),
        source,
    };
    let server = server.map_err(failed)?.run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok(Serving {
        handle,
        _shown: shown,
    })
}
