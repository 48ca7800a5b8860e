//! An identity provider: keys that sign tokens, and a server that publishes their public halves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// A key that signs tokens.
pub(crate) struct Signer {
    id: String,
    pair: EcdsaKeyPair,
}

impl Signer {
    pub(crate) fn new(id: &str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self {
            id: id.to_owned(),
            pair: EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key"),
        }
    }

    /// The public key as a JWK.
    fn public(&self) -> Value {
        // An uncompressed point: 4, then both coordinates.
        let point = self.pair.public_key().as_ref();
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..]),
        })
    }

    /// A token with these claims in addition to issuer, audience and a distant expiry.
    pub(crate) fn token(&self, claims: Value) -> String {
        let mut all = json!({ "iss": "https://id.test", "aud": "api", "exp": 4_000_000_000_u64 });
        for (name, value) in claims.as_object().expect("an object") {
            all[name] = value.clone();
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": self.id });
        let text = format!("{}.{}", part(&header), part(&all));
        let signature = self
            .pair
            .sign(&SystemRandom::new(), text.as_bytes())
            .expect("a signature");
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

#[derive(Default)]
struct State {
    keys: Mutex<Vec<Value>>,
    away: AtomicBool,
    asked: AtomicUsize,
}

/// A provider that publishes keys.
pub(crate) struct Provider {
    state: Arc<State>,
    url: String,
    handle: ServerHandle,
}

impl Provider {
    pub(crate) async fn start(signers: &[&Signer]) -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let url = format!("http://{}/jwks", listener.local_addr().expect("address"));
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::from(Arc::clone(&shared)))
                .route("/jwks", web::get().to(jwks))
        })
        .workers(1)
        .disable_signals()
        .shutdown_timeout(0)
        .listen(listener)
        .expect("listen")
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        let provider = Self { state, url, handle };
        provider.publish(signers);
        provider
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Publishes the keys of these signers, and one of an unknown type.
    pub(crate) fn publish(&self, signers: &[&Signer]) {
        let mut keys: Vec<Value> = vec![json!({ "kty": "quantum", "kid": "future" })];
        keys.extend(signers.iter().map(|signer| signer.public()));
        *self.state.keys.lock().expect("lock") = keys;
    }

    /// Answers everything with 503, or works again.
    pub(crate) fn away(&self, away: bool) {
        self.state.away.store(away, Ordering::SeqCst);
    }

    /// How often the keys were requested.
    pub(crate) fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    /// Stops the provider for good.
    pub(crate) async fn kill(&self) {
        self.handle.stop(false).await;
    }
}

async fn jwks(state: web::Data<State>) -> HttpResponse {
    state.asked.fetch_add(1, Ordering::SeqCst);
    if state.away.load(Ordering::SeqCst) {
        return HttpResponse::ServiceUnavailable().finish();
    }
    HttpResponse::Ok().json(json!({ "keys": *state.keys.lock().expect("lock") }))
}
