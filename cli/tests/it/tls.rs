//! A controller with a certificate of a private authority: `--ca-file`, `FDN_CA_FILE`, and what `fdn login` saves.

use std::sync::Arc;

use clap::Parser as _;
use fdn_bus::{Limits, MemoryBroker};
use fdn_cli::args::Cli;
use fdn_cli::exit::Exit;
use fdn_controller::{Controller, Settings};
use fdn_core::Timestamp;
use fdn_runtime::Compiler;
use fdn_service::certificate::CertificateFiles;
use fdn_service::pki::{Authority, Bearer, NodeKey, Subject};
use fdn_service::secret;

use crate::support::{Home, Ran};

/// A controller with a certificate for 127.0.0.1, with all files in the home directory.
async fn start(home: &Home) -> (Controller, Authority) {
    let (settings, authority) = prepare(home);
    let broker = Arc::new(MemoryBroker::new(Limits::default()));
    let started = Controller::start_with(settings, broker, Compiler::InProcess);
    (started.await.expect("started"), authority)
}

/// Its settings, and the authority that signed its certificate.
fn prepare(home: &Home) -> (Settings, Authority) {
    let now = fdn_service::now();
    let end = Timestamp(now.get() + 86_400_000);
    let authority = Authority::create(now, end).expect("an authority");
    let key = NodeKey::fresh().expect("a key");
    let subject = Subject {
        bearer: Bearer::Controller("fdn://controller/api".parse().expect("a name")),
        addresses: vec![[127, 0, 0, 1].into()],
        names: Vec::new(),
    };
    let issued = authority.issue(&subject, &key.public(), now, end);
    let folder = home.folder.path().join("controller");
    let key_file = folder.join("api.key");
    secret::write(&key_file, &key.to_pem()).expect("written");
    let certificate_file = folder.join("api.crt");
    let certificate = issued.expect("a certificate").certificate;
    std::fs::write(&certificate_file, certificate).expect("written");
    let mut settings = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        workers: 1,
        ..Settings::default()
    };
    settings.edge.listen = ([127, 0, 0, 1], 0).into();
    settings.network.token_file = folder.join("token");
    settings.network.key_file = folder.join("key");
    settings.database.url = format!("sqlite://{}", folder.join("controller.db").display());
    settings.artifacts.local = folder.join("artifacts");
    settings.uploads.folder = Some(folder.join("uploads"));
    settings.accounts.initial_password_file = Some(folder.join("password"));
    settings.api.tls.certificates = vec![CertificateFiles {
        certificate_file,
        key_file,
    }];
    (settings, authority)
}

fn fails(ran: &Ran, exit: Exit, words: &[&str]) {
    assert_eq!(ran.exit, exit, "{}", ran.err);
    for word in words {
        assert!(ran.err.contains(word), "{word}: {}", ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_authority_is_believed_where_it_is_named_and_kept_by_a_login() {
    let mut home = Home::new();
    let (controller, authority) = start(&home).await;
    let url = format!("https://{}", controller.address());
    let ca = home.file("own-ca.pem", authority.certificate());
    let folder = home.folder.path().join("controller");
    let password = folder.join("password").display().to_string();
    let login = ["login", url.as_str(), "--password-file", password.as_str()];
    let trusting = |file| [&login[..], &["--ca-file", file]].concat();
    let unknown = home.fdn(&login).await;
    fails(&unknown, Exit::Unreachable, &["UnknownIssuer", "--ca-file"]);
    let broken = home.file("broken.pem", "nothing of the kind");
    let refused = home.fdn(&trusting(&broken)).await;
    fails(&refused, Exit::Usage, &["broken.pem", "PEM"]);
    assert_eq!(home.read(".config/fdn/config.toml"), "");

    let ran = home.fdn(&trusting(&ca)).await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    let kept = home.read(".config/fdn/config.toml");
    assert!(kept.contains(&format!("ca_file = \"{ca}\"")), "{kept}");
    // Later commands need neither flag nor variable, and another login keeps the setting.
    for args in [&["list"][..], &login[..], &["list"][..]] {
        let ran = home.fdn(args).await;
        assert_eq!(ran.exit, Exit::Ok, "{args:?}: {}", ran.err);
    }
    let other = home.fdn(&["list", "--ca-file", &broken]).await;
    fails(&other, Exit::Usage, &["broken.pem"]);

    let token = home.file("token", home.read(&token_of(&controller)));
    let mut stranger = Home::new();
    stranger.set("FDN_CONTROLLER", &url);
    stranger.set("FDN_TOKEN_FILE", &token);
    let ran = stranger.fdn(&["list"]).await;
    fails(&ran, Exit::Unreachable, &["UnknownIssuer"]);
    stranger.set("FDN_CA_FILE", &ca);
    let ran = stranger.fdn(&["list"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    home.set("FDN_CA_FILE", &broken);
    fails(&home.fdn(&["list"]).await, Exit::Usage, &["broken.pem"]);
    // The public authorities do not know the certificate; a failed login keeps the saved setting.
    home.set("FDN_CA_FILE", &ca);
    let webs = [&login[..], &["--no-ca-file"]].concat();
    fails(
        &home.fdn(&webs).await,
        Exit::Unreachable,
        &["UnknownIssuer"],
    );
    assert_eq!(home.read(".config/fdn/config.toml"), kept);
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_drops_the_authority_that_was_kept_if_that_is_said() {
    let home = Home::new();
    let (mut settings, authority) = prepare(&home);
    // Use plain HTTP, so that no certificate is checked.
    settings.api.tls.certificates.clear();
    let broker = Arc::new(MemoryBroker::new(Limits::default()));
    let controller = Controller::start_with(settings, broker, Compiler::InProcess);
    let controller = controller.await.expect("started");
    let url = format!("http://{}", controller.address());
    let ca = home.file("own-ca.pem", authority.certificate());
    let password = home.folder.path().join("controller/password");
    let password = password.display().to_string();
    let login = ["login", url.as_str(), "--password-file", password.as_str()];
    for (more, is_kept) in [
        (&["--ca-file", ca.as_str()][..], true),
        (&[], true),
        (&["--no-ca-file"], false),
        (&[], false),
    ] {
        let ran = home.fdn(&[&login[..], more].concat()).await;
        assert_eq!(ran.exit, Exit::Ok, "{more:?}: {}", ran.err);
        let kept = home.read(".config/fdn/config.toml");
        assert_eq!(kept.contains("ca_file"), is_kept, "{more:?}: {kept}");
    }
    let both = ["fdn", "login", "--no-ca-file", "--ca-file", &ca];
    assert!(Cli::try_parse_from(both).is_err());
    controller.stop().await;
}

/// The file of the token saved by the login, in the home directory.
fn token_of(controller: &Controller) -> String {
    let address = controller.address();
    format!(".config/fdn/tokens/{}-{}", address.ip(), address.port())
}
