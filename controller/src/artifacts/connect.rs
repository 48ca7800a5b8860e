//! Connections to the two kinds of artifact store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, RetryConfig};

use super::ArtifactError;
use crate::settings::S3Settings;

/// The longest silence of the service before a request fails.
const SILENCE: Duration = Duration::from_secs(30);

/// How often a request to the service is retried after a transient failure.
const RETRIES: usize = 3;
/// The time within which a request is retried.
const RETRY_TIME: Duration = Duration::from_secs(20);

fn settings_error(error: impl std::fmt::Display) -> ArtifactError {
    ArtifactError::Settings(error.to_string())
}

/// A local folder; files are first written beside their final name, flushed to disk, then renamed.
pub(super) fn local(folder: &Path) -> Result<Arc<dyn ObjectStore>, ArtifactError> {
    std::fs::create_dir_all(folder)
        .map_err(|e| settings_error(format!("{} cannot be made: {e}", folder.display())))?;
    let store = LocalFileSystem::new_with_prefix(folder).map_err(settings_error)?;
    Ok(Arc::new(
        store.with_fsync(true).with_automatic_cleanup(true),
    ))
}

/// An S3-compatible service.
pub(super) fn s3(settings: &S3Settings) -> Result<Arc<dyn ObjectStore>, ArtifactError> {
    let secret = |path| fdn_service::secret::read(path).map_err(settings_error);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_access_key_id(secret(&settings.access_key_file)?.expose())
        .with_secret_access_key(secret(&settings.secret_key_file)?.expose())
        .with_allow_http(settings.allow_http)
        // Not every compatible service supports the request that deletes many objects at once.
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
            ..RetryConfig::default()
        })
        .with_http_connector(Connector);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    Ok(Arc::new(builder.build().map_err(settings_error)?))
}

/// Connects with the network's own HTTP client: the default one would need a process-wide TLS provider.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = fdn_service::http_client::build(SILENCE).map_err(|source| {
            object_store::Error::Generic {
                store: "S3",
                source: Box::new(source),
            }
        })?;
        Ok(HttpClient::new(client))
    }
}
