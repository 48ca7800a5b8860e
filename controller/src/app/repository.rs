//! Storage limits of tenants, and errors of the code repository.

use fdn_core::account::{TenantInfo, TenantRef};
use fdn_core::{Coded, ErrorCode, FunctionName, TenantId, TenantName};
use sqlx::AnyConnection;

use crate::Error;
use crate::settings::RepositorySettings;
use crate::store::tenant::tenant_get;

/// An error of the code repository.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepositoryError {
    /// The tenant's storage is used up.
    #[error("tenant {tenant}: {reason}; delete apps that are not needed, or have the limit raised")]
    StorageFull {
        /// The tenant.
        tenant: TenantName,
        /// The present use and the limit.
        reason: String,
    },
    /// A tenant to be deleted has apps.
    #[error(
        "tenant {tenant} has {apps} apps; delete them first, or delete them with it: fdn tenant delete {tenant} --force"
    )]
    TenantNotEmpty {
        /// The tenant.
        tenant: TenantName,
        /// The number of apps.
        apps: u64,
    },
    /// A function of the catalogue is damaged.
    #[error("function {name} of the catalogue: {reason}")]
    Damaged {
        /// The function.
        name: FunctionName,
        /// What is wrong with it.
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

/// Returns the tenant with the network's limits where it has none of its own.
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

/// Checks that a tenant may store one more version of this size. In the transaction that writes the version nobody else can write one: it holds
/// the revision lock.
///
/// # Errors
/// When the tenant is gone, a limit would be exceeded, or the store fails.
pub async fn check_storage(
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
