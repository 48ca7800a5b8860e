//! Tests controllers of an authority that the join token names, and networks that allow outbound connections through a proxy only.

use fdn_core::Digest;
use fdn_testkit::proxy::Proxy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::*;

/// A private authority, and the digest of its certificate.
fn own() -> (Authority, Digest) {
    let end = Timestamp(now().get() + DAY);
    let authority = Authority::create(now(), end).expect("an authority");
    let der = CertificateDer::from_pem_slice(authority.certificate().as_bytes());
    let digest = Digest::of(&der.expect("a certificate"));
    (authority, digest)
}

/// Arguments for joining with a token that names this authority.
fn told(api: &FakeApi, folder: &TempDir, authority: Digest) -> JoinArgs {
    let args = args(api, folder);
    let text = std::fs::read_to_string(&args.token_file).expect("read");
    let token: JoinToken = text.parse().expect("a token");
    let token = token.with_authority(Some(authority));
    std::fs::write(&args.token_file, token.expose() + "\n").expect("written");
    args
}

#[tokio::test]
async fn a_machine_knows_a_private_authority_by_its_token() {
    let folder = tempfile::tempdir().expect("folder");
    let (private, digest) = own();
    let api = FakeApi::open_showing(&private, &folder, private.certificate()).await;
    let args = told(&api, &folder, digest);
    join(&args, now()).await.expect("let in");
    let shown = api.asked.lock().expect("lock")[0].token.clone();
    let shown: JoinToken = shown.parse().expect("a token");
    assert_eq!(shown.authority, None, "that is the machine's own matter");
    // Renewal uses the authority that was found.
    let settings: Settings =
        fdn_service::config::load(Some(&args.config), &[]).expect("a configuration");
    let kept = settings.controller.ca_file.expect("kept");
    assert_eq!(kept, Identity::below(&args.data).api_ca);
    let kept = fdn_service::pki::pin::of_file(&kept).expect("one certificate");
    assert_eq!(kept, digest);
}

#[tokio::test]
async fn whoever_stands_between_is_not_told_the_token() {
    let ((private, digest), (other, other_digest)) = (own(), own());
    let refused = async |api: &FakeApi, folder: &TempDir, digest| {
        let args = told(api, folder, digest);
        let refused = join(&args, now()).await.expect_err("not told");
        assert_eq!(refused.code(), ErrorCode::ControllerUnreachable);
        assert_eq!(api.asked(), 0, "nothing was sent");
        assert!(!args.config.exists() && !Identity::below(&args.data).api_ca.exists());
        refused.to_string()
    };
    // The right secret with the hash of another authority.
    let folder = tempfile::tempdir().expect("folder");
    let api = FakeApi::open_showing(&private, &folder, private.certificate()).await;
    let text = refused(&api, &folder, other_digest).await;
    assert!(text.contains("hash is in the join token"), "{text}");
    // A certificate of another authority, shown together with the right one, which anybody may have seen.
    let folder = tempfile::tempdir().expect("folder");
    let both = other.certificate().to_owned() + private.certificate();
    let api = FakeApi::open_showing(&other, &folder, &both).await;
    let text = refused(&api, &folder, digest).await;
    assert!(text.contains("invalid peer certificate"), "{text}");
    // The right controller, which does not show its authority: the file serves as well.
    let folder = tempfile::tempdir().expect("folder");
    let api = FakeApi::open_secure(&private, &folder).await;
    let text = refused(&api, &folder, digest).await;
    assert!(text.contains("--ca-file"), "{text}");
    let file = folder.path().join("private.pem");
    std::fs::write(&file, private.certificate()).expect("written");
    let mut args = told(&api, &folder, digest);
    args.ca_file = Some(file);
    join(&args, now()).await.expect("let in");
}

#[tokio::test]
async fn a_machine_joins_through_a_proxy_and_goes_on_by_it() {
    let folder = tempfile::tempdir().expect("folder");
    let (private, digest) = own();
    let api = FakeApi::open_showing(&private, &folder, private.certificate()).await;
    let at = api.url.trim_start_matches("https://").to_owned();
    let mut args = told(&api, &folder, digest);
    let closed = Proxy::start(|_| false).await.expect("a proxy");
    args.proxy = Some(closed.url());
    let refused = join(&args, now()).await.expect_err("not carried");
    assert_eq!(refused.code(), ErrorCode::ControllerUnreachable);
    assert_eq!(api.asked(), 0);
    args.proxy = Some("proxy.example.org".to_owned());
    let refused = join(&args, now()).await.expect_err("no proxy");
    assert_eq!(refused.code(), ErrorCode::InputInvalid);

    let meant = at.clone();
    let proxy = Proxy::start(move |to| to == meant).await.expect("a proxy");
    args.proxy = Some(proxy.url());
    join(&args, now()).await.expect("let in");
    assert_eq!(proxy.forwarded(), [at]);
    let settings: Settings =
        fdn_service::config::load(Some(&args.config), &[]).expect("a configuration");
    settings.check().expect("it can work");
    assert_eq!(settings.centre.proxy, Some(proxy.url()));
}
