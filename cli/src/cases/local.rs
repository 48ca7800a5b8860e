//! Runs cases against a component in this process: it is validated like an upload and runs within the limits of its manifest. No network is needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fdn_core::api::{LogStream, header};
use fdn_core::manifest::Manifest;
use fdn_core::{ByteSize, Coded as _, Digest, ErrorCode, Problem};
use fdn_runtime::probe::probe;
use fdn_runtime::validate::{ValidateOptions, validate};
use fdn_runtime::{
    CallContext, CallError, CompileWorker, Compiler, Engine, EngineOptions, Function, MemoryLog,
    RequestBody, checksum_file, compiled_file_name,
};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request};

use super::{Answer, BODY_MAX, Case, whole};
use crate::environment::Environment;
use crate::error::{CliError, with_causes};

/// The number of compiled components in the cache.
const KEPT: usize = 8;
/// The most instances of the engine: cases run one after another, with at most one instance each.
const INSTANCES: u32 = 16;

/// A component that can be called.
pub struct LocalFunction {
    function: Arc<Function>,
    context: CallContext,
    host: HeaderValue,
}

/// The answer, or why there is none; and the lines that the function wrote.
pub type CallResult = (Result<Answer, String>, Vec<(LogStream, String)>);

impl LocalFunction {
    /// Validates and compiles a component as the controller does, except for its size. The compiled component is cached in the user's cache folder.
    ///
    /// # Errors
    /// When it is not a valid function, does not answer the probe, or a file cannot be read or written.
    pub async fn load(
        component: &Path,
        manifest: &Manifest,
        secrets: Vec<(String, String)>,
        host: &str,
        env: &Environment,
    ) -> Result<Self, CliError> {
        let failed = |reason: String, code| CliError::File {
            path: component.to_owned(),
            reason,
            code,
        };
        let engine = Engine::new(EngineOptions {
            max_instances: INSTANCES,
            max_memory: manifest.memory.max(ByteSize::from_mib(64)),
            ..EngineOptions::default()
        })
        .map_err(|error| failed(error.to_string(), error.code()))?;
        let context = CallContext::from_manifest(manifest, secrets, Arc::new(MemoryLog::default()));
        let bytes = std::fs::read(component)
            .map_err(|error| failed(error.to_string(), ErrorCode::BadRequest))?;
        let cache = Cache::open(env)?;
        let known = cache.folder.join(compiled_file_name(
            &Digest::of(&bytes),
            engine.compatibility_key(),
        ));
        let function = match engine.load(&known) {
            Ok(function) => {
                // The component was validated before; its answer to the probe depends on its manifest.
                probe(&function, context.clone())
                    .await
                    .map_err(|error| failed(with_causes(&error), error.code()))?;
                function
            }
            // Missing, truncated, or of another version of this program: compile it again.
            Err(_) => {
                let options = ValidateOptions {
                    size_limit: ByteSize::from_bytes(u64::MAX),
                    compiled_dir: cache.folder.clone(),
                    probe: context.clone(),
                    cache: None,
                };
                let compiler = Compiler::Worker(CompileWorker::default());
                let validated = validate(&engine, &compiler, component, &options)
                    .await
                    .map_err(|error| failed(with_causes(&error), error.code()))?;
                cache.tidy();
                validated.function
            }
        };
        Ok(Self {
            function,
            context,
            host: HeaderValue::from_str(host)
                .map_err(|error| failed(error.to_string(), ErrorCode::BadRequest))?,
        })
    }

    /// Calls the component. An error of the call results in the answer that a gateway would give.
    pub async fn call(&self, case: &Case) -> CallResult {
        let log = Arc::new(MemoryLog::default());
        let context = CallContext {
            log: log.clone(),
            ..self.context.clone()
        };
        let response = self.function.call(context, self.request(case)).response();
        let answer = match response.await {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                whole(body, BODY_MAX).await.map(|body| Answer {
                    status: parts.status.as_u16(),
                    headers: parts.headers,
                    body,
                })
            }
            Err(error) => Ok(refusal(&error)),
        };
        (answer, log.lines())
    }

    fn request(&self, case: &Case) -> Request<RequestBody> {
        let body = case.body.clone();
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.host.clone());
        if let Some(body) = &body {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        for (name, value) in &case.headers {
            headers.insert(name.clone(), value.clone());
        }
        let mut request = Request::new(body.map_or_else(RequestBody::empty, RequestBody::full));
        *request.method_mut() = case.method.clone();
        *request.uri_mut() = http::Uri::from(case.path.clone());
        *request.headers_mut() = headers;
        request
    }
}

/// The answer of a gateway to a failed call.
fn refusal(error: &CallError) -> Answer {
    let code = error.code();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(Problem::MEDIA_TYPE));
    if let Ok(code) = HeaderValue::from_str(&code.to_string()) {
        headers.insert(header::ERROR, code);
    }
    let problem = Problem::new(code, error.to_string());
    Answer {
        status: code.http_status(),
        headers,
        body: Bytes::from(serde_json::to_vec(&problem).unwrap_or_default()),
    }
}

/// A cache of compiled components: compiling a whole language runtime takes many seconds.
struct Cache {
    folder: PathBuf,
}

impl Cache {
    fn open(env: &Environment) -> Result<Self, CliError> {
        let folder = env
            .cache_folder()
            .ok_or_else(|| {
                CliError::Config(
                    "there is no place for compiled components: set HOME or XDG_CACHE_HOME"
                        .to_owned(),
                )
            })?
            .join("compiled");
        std::fs::create_dir_all(&folder).map_err(|error| CliError::File {
            path: folder.clone(),
            reason: error.to_string(),
            code: ErrorCode::BadRequest,
        })?;
        Ok(Self { folder })
    }

    /// Removes all but the newest entries. Failures are ignored: it is a cache.
    fn tidy(&self) {
        let Ok(entries) = self.folder.read_dir() else {
            return;
        };
        let mut compiled: Vec<(SystemTime, PathBuf)> = entries
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let is_compiled = path.extension().is_some_and(|end| end == "cwasm");
                is_compiled.then_some((path.metadata().ok()?.modified().ok()?, path))
            })
            .collect();
        compiled.sort();
        let many = compiled.len().saturating_sub(KEPT);
        for (_, path) in compiled.drain(..many) {
            drop(std::fs::remove_file(checksum_file(&path)));
            drop(std::fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_compiled_components_are_kept() {
        let folder = tempfile::tempdir().expect("folder");
        let env = Environment::of([("XDG_CACHE_HOME", folder.path().display().to_string())]);
        let cache = Cache::open(&env).expect("a cache");
        for n in 0..KEPT + 2 {
            let path = cache.folder.join(format!("{n}.cwasm"));
            std::fs::write(checksum_file(&path), "").expect("written");
            let file = std::fs::File::create(&path).expect("written");
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n as u64 + 1);
            file.set_modified(at).expect("a time");
        }
        cache.tidy();
        let mut left: Vec<String> = std::fs::read_dir(&cache.folder)
            .expect("folder")
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        left.sort();
        assert_eq!(left.len(), 2 * KEPT, "{left:?}");
        assert!(!left.contains(&"1.cwasm".to_owned()), "{left:?}");
        assert!(left.contains(&"2.cwasm.sha256".to_owned()), "{left:?}");
    }

    #[test]
    fn a_failed_call_is_answered_as_by_a_gateway() {
        let error = CallError::Trapped {
            reason: "unreachable".into(),
        };
        let answer = refusal(&error);
        assert_eq!(answer.status, ErrorCode::FunctionTrapped.http_status());
        assert_eq!(
            answer.headers[header::ERROR],
            ErrorCode::FunctionTrapped.to_string()
        );
        let problem: Problem = serde_json::from_slice(&answer.body).expect("a problem");
        assert!(problem.detail.contains("unreachable"), "{problem:?}");
    }
}
