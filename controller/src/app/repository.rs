//! How much a tenant stores, and what the code repository refuses.

use fdn_core::account::{TenantInfo, TenantRef};
use fdn_core::{Coded, ErrorCode, FunctionName, TenantId, TenantName};
use sqlx::AnyConnection;

use crate::Error;
use crate::settings::RepositorySettings;
use crate::store::tenant::tenant_get;

/// A refusal of the code repository.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// The tenant stores as much as it may.
    #[error("tenant {tenant}: {reason}; delete apps that are not needed, or have the limit raised")]
    StorageFull {
        /// The tenant.
        tenant: TenantName,
        /// What is used and what the limit is.
        reason: String,
    },
    /// A tenant that is to be deleted has apps.
    #[error(
        "tenant {tenant} has {apps} apps; delete them first, or delete them with it: fdn tenant delete {tenant} --force"
    )]
    TenantNotEmpty {
        /// The tenant.
        tenant: TenantName,
        /// How many apps.
        apps: u64,
    },
    /// A function of the catalogue cannot be read as it was meant.
    #[error("function {name} of the catalogue: {reason}")]
    Damaged {
        /// The function.
        name: FunctionName,
        /// What is wrong.
        reason: String,
    },
}

impl Coded for RepositoryError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::StorageFull { .. } => ErrorCode::StorageFull,
            Self::TenantNotEmpty { .. } => ErrorCode::TenantNotEmpty,
            Self::Damaged { .. } => ErrorCode::CatalogueDamaged,
        }
    }
}

/// The same tenant with the network's limits where it has none of its own.
#[must_use]
pub fn limited(mut tenant: TenantInfo, settings: &RepositorySettings) -> TenantInfo {
    let storage = &mut tenant.storage;
    if storage.bytes_limit == u64::MAX {
        storage.bytes_limit = settings.tenant_bytes.as_bytes();
    }
    if storage.versions_limit == u64::MAX {
        storage.versions_limit = settings.tenant_versions;
    }
    tenant
}

/// Whether a tenant may store one more version of this size. In the transaction that writes the version nobody else can write one: the
/// revision is taken.
///
/// # Errors
/// When the tenant is gone, a limit would be passed, or the store fails.
pub async fn admit(
    connection: &mut AnyConnection,
    settings: &RepositorySettings,
    tenant: TenantId,
    size: u64,
) -> Result<(), Error> {
    let by_id = TenantRef::Id(tenant);
    let found = tenant_get(connection, &by_id).await?;
    let found = found.filter(|tenant| tenant.deleted_at.is_none());
    let found = limited(found.ok_or_else(|| Error::no_tenant(&by_id))?, settings);
    found.storage.admit(size).map_err(|reason| {
        RepositoryError::StorageFull {
            tenant: found.name,
            reason,
        }
        .into()
    })
}
