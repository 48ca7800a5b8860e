//! Validation of uploads.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::{ByteSize, Coded as _, ErrorCode};
use fdn_runtime::validate::{ValidateError, ValidateOptions, Validated, validate};
use fdn_runtime::{CallContext, Compiler, Limits, is_leftover};
use fdn_testkit::components;

use super::{ENGINE, context_with, generous};

async fn judge_with(
    folder: &Path,
    component: &[u8],
    size_limit: ByteSize,
    probe: CallContext,
) -> Result<Validated, ValidateError> {
    let upload = folder.join("upload");
    std::fs::write(&upload, component).expect("a file");
    let compiled_dir = folder.join("compiled");
    std::fs::create_dir_all(&compiled_dir).expect("a folder");
    let options = ValidateOptions {
        size_limit,
        compiled_dir,
        probe,
        cache: None,
    };
    validate(&ENGINE, &Compiler::InProcess, &upload, &options).await
}

async fn judge(folder: &Path, component: &[u8]) -> Result<Validated, ValidateError> {
    let limits = Limits {
        cpu_time: Duration::from_secs(1),
        ..generous()
    };
    judge_with(
        folder,
        component,
        ByteSize::from_mib(64),
        context_with(limits).0,
    )
    .await
}

fn files(folder: &Path) -> Vec<String> {
    std::fs::read_dir(folder.join("compiled"))
        .expect("a folder")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect()
}

#[tokio::test]
async fn a_function_passes_every_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let passed = judge(folder.path(), &components::hello("hi"))
        .await
        .expect("a function");
    let steps: Vec<&str> = passed.steps.iter().map(|s| s.step.as_str()).collect();
    assert_eq!(
        steps,
        ["size", "format", "exports", "imports", "compile", "probe"]
    );
    assert!(
        passed.steps[5].result.contains("answered 200 with 2 B"),
        "{:?}",
        passed.steps[5]
    );
    assert_eq!(passed.inspection.handler_version, "0.2.3");
    let mut names = files(folder.path());
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(passed.compiled.ends_with(&names[0]));
    ENGINE
        .load(&passed.compiled)
        .expect("the compiled file can be loaded again");
    // Validating the same upload again changes nothing.
    judge(folder.path(), &components::hello("hi"))
        .await
        .expect("a function");
    assert_eq!(files(folder.path()).len(), 2);
}

#[tokio::test]
async fn each_bad_upload_has_its_own_code_and_says_what_to_do_and_leaves_nothing() {
    for (component, code, text) in [
        (Vec::new(), ErrorCode::UploadEmpty, "upload the .wasm file"),
        (
            b"\x7fELF\x02\x01\x01".to_vec(),
            ErrorCode::UploadNotWasm,
            "an ELF executable",
        ),
        (
            components::core_module(),
            ErrorCode::UploadCoreModule,
            "wasm-tools component new",
        ),
        (
            components::truncated(),
            ErrorCode::UploadMalformed,
            "truncated or malformed at byte",
        ),
        (
            components::no_handler(),
            ErrorCode::UploadNoHandler,
            "fdn:fixtures/shape",
        ),
        (
            components::foreign_import(),
            ErrorCode::UploadForeignImport,
            "fdn:foreign/things@1.0.0, acme:store/kv@0.2.0;",
        ),
        (
            components::trapping(),
            ErrorCode::UploadProbeFailed,
            "unreachable",
        ),
        (
            components::looping(),
            ErrorCode::UploadProbeFailed,
            "CPU time",
        ),
        (components::hog(), ErrorCode::UploadProbeFailed, "memory"),
        (
            components::no_response(),
            ErrorCode::UploadProbeFailed,
            "without setting a response",
        ),
        (
            components::status(500),
            ErrorCode::UploadProbeFailed,
            "status 500",
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let error = judge(folder.path(), &component)
            .await
            .map(drop)
            .expect_err(code.as_str());
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(files(folder.path()), Vec::<String>::new(), "{code}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    judge(folder.path(), &components::status(404))
        .await
        .map(drop)
        .expect("less than 500 is an answer");
}

#[tokio::test]
async fn a_large_upload_is_not_even_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let limit = ByteSize::from_bytes(100);
    let error = judge_with(folder.path(), &[0; 101], limit, context_with(generous()).0)
        .await
        .map(drop)
        .expect_err("too large");
    assert_eq!(error.code(), ErrorCode::UploadTooLarge);
    assert!(error.to_string().contains("101 bytes"), "{error}");
}

#[tokio::test]
async fn a_failed_probe_quotes_what_the_function_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits {
        response: ByteSize::from_bytes(1),
        ..generous()
    };
    let said = format!("cannot find the moon{}", "\nf@moon.js:1:2".repeat(15));
    let component = components::logging(&format!("{said}\n"), "");
    let error = judge_with(
        folder.path(),
        &component,
        ByteSize::from_mib(1),
        context_with(limits).0,
    )
    .await
    .map(drop)
    .expect_err("too large an answer");
    assert!(error.to_string().contains("FDN-3006"), "{error}");
    assert!(
        error
            .to_string()
            .ends_with(&format!("its last output:\n{said}")),
        "{error}"
    );
}

#[tokio::test]
async fn the_probe_has_no_network_and_does_not_hold_that_against_a_function() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("a listener");
    let authority = listener.local_addr().expect("an address").to_string();
    let folder = tempfile::tempdir().expect("a folder");
    // The permissions of manifest and operator apply to calls, but not to the probe.
    let (mut context, _) = context_with(generous());
    context.allowed_hosts = Arc::new([authority.parse().expect("a host")].into());
    let component = components::outbound(&authority);
    let passed = judge_with(folder.path(), &component, ByteSize::from_mib(1), context)
        .await
        .expect("an error for want of a network is an answer");
    assert!(passed.probe.asked_network);
    assert_eq!(passed.probe.status, 502);
    let told = &passed.steps[5].result;
    assert!(told.contains("without the network"), "{told}");
    let reached = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(reached, Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn remains_of_a_killed_compilation_are_recognised() {
    assert!(is_leftover(".compiling-x1y2z3"));
    assert!(!is_leftover("0123-abcd.cwasm"));
}
