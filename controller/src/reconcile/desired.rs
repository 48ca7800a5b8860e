//! What nodes and DNS servers are told of an app, made from its rows.

use fdn_core::message::{AppBindings, AppDesired, AppSpec, BindingsDesired, FunctionSpec, Message};
use fdn_core::{Revision, Timestamp};
use sqlx::AnyConnection;

use crate::store::StoreError;
use crate::store::app::AppRow;
use crate::store::binding::BindingRow;
use crate::store::outbox::outbox_push;
use crate::store::version::{VersionRow, version_get};

/// What nodes are told. `versions` holds those that the workflow names.
#[must_use]
pub fn app_desired(app: &AppRow, versions: &[VersionRow]) -> AppDesired {
    let functions = versions
        .iter()
        .map(|version| FunctionSpec {
            function: version.function.clone(),
            version: version.number,
            digest: version.digest,
            size: version.size,
            manifest: version.manifest.clone(),
            secrets: version.secrets.clone(),
        })
        .collect();
    AppDesired {
        app: app.name.clone(),
        revision: app.revision,
        spec: Some(AppSpec {
            host: app.host.clone(),
            workflow: app.workflow.clone(),
            functions,
            primary: app.primaries.clone(),
        }),
    }
}

/// What DNS servers are told.
#[must_use]
pub fn bindings_desired(app: &AppRow, bindings: &[BindingRow], ttl_s: u32) -> BindingsDesired {
    BindingsDesired {
        app: app.name.clone(),
        revision: app.bindings_revision,
        state: Some(AppBindings {
            host: app.host.clone(),
            ttl_s,
            bindings: bindings
                .iter()
                .map(|binding| (binding.prefix, binding.cluster.clone()))
                .collect(),
        }),
    }
}

/// The versions that an app's workflow names, each once, in the order of the stages.
///
/// # Errors
/// When the database fails or one of them is missing.
pub async fn versions_of(
    connection: &mut AnyConnection,
    app: &AppRow,
) -> Result<Vec<VersionRow>, StoreError> {
    let mut versions: Vec<VersionRow> = Vec::new();
    for stage in app.workflow.stages() {
        if versions
            .iter()
            .any(|known| known.function == stage.function && known.number == stage.version)
        {
            continue;
        }
        let found = version_get(connection, &stage.function, stage.version).await?;
        versions.push(found.ok_or_else(|| {
            StoreError::corrupt(
                "apps.workflow",
                format!(
                    "{} {} of app {} is missing",
                    stage.function, stage.version, app.name
                ),
            )
        })?);
    }
    Ok(versions)
}

/// Tells nodes what an app should be.
///
/// # Errors
/// When the database fails.
pub async fn tell_nodes(
    connection: &mut AnyConnection,
    app: &AppRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    let versions = versions_of(connection, app).await?;
    outbox_push(
        connection,
        app.revision,
        Message::AppDesired(app_desired(app, &versions)),
        now,
    )
    .await
}

/// Tells DNS servers what to answer for an app.
///
/// # Errors
/// When the database fails.
pub async fn tell_dns(
    connection: &mut AnyConnection,
    app: &AppRow,
    bindings: &[BindingRow],
    ttl_s: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    let message = Message::BindingsDesired(bindings_desired(app, bindings, ttl_s));
    outbox_push(connection, app.bindings_revision, message, now).await
}

/// Tells everybody that an app is gone.
///
/// # Errors
/// When the database fails.
pub async fn tell_gone(
    connection: &mut AnyConnection,
    app: &fdn_core::AppName,
    revision: Revision,
    now: Timestamp,
) -> Result<(), StoreError> {
    let nodes = AppDesired {
        app: app.clone(),
        revision,
        spec: None,
    };
    outbox_push(connection, revision, Message::AppDesired(nodes), now).await?;
    let dns = BindingsDesired {
        app: app.clone(),
        revision,
        state: None,
    };
    outbox_push(connection, revision, Message::BindingsDesired(dns), now).await
}
