//! Verifies tokens: jsonwebtoken parses the token, ring checks its signature.
//!
//! jsonwebtoken's own cryptography would be a second stack beside ring, which everything else here uses; the library lets a program supply its
//! own, which is what [`PROVIDER`] is. Claims are judged by `fdn_core::policy::token`, with the time as an argument.

use std::sync::Once;

use fdn_core::policy::token::{Claims, TokenFault};
use fdn_core::policy::{JwtAlgorithm, JwtRule};
use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, Validation, decode, decode_header,
};
use ring::signature as sig;

/// The longest token that is accepted, in bytes.
const TOKEN_MAX: usize = 16 * 1024;
/// The most keys of one provider.
const KEYS_MAX: usize = 64;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| {
        let verifier = RingVerifier {
            algorithm: *algorithm,
            key: key.clone(),
        };
        Ok(Box::new(verifier))
    },
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs ring as the signature verifier of this process.
fn install() {
    static ONCE: Once = Once::new();
    // It fails only if a provider is installed already.
    ONCE.call_once(|| {
        let _ = PROVIDER.install_default();
    });
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let rsa = |parameters: &'static sig::RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                sig::RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            DecodingKeyKind::SecretOrDer(_) => Err(ring::error::Unspecified),
        };
        let point = |algorithm: &'static dyn sig::VerificationAlgorithm| match self.key.kind() {
            DecodingKeyKind::SecretOrDer(bytes) => {
                sig::UnparsedPublicKey::new(algorithm, bytes).verify(message, signature)
            }
            DecodingKeyKind::RsaModulusExponent { .. } => Err(ring::error::Unspecified),
        };
        let verified = match self.algorithm {
            Algorithm::RS256 => rsa(&sig::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&sig::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&sig::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&sig::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&sig::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&sig::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => point(&sig::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => point(&sig::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => point(&sig::ED25519),
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| SignatureError::new())
    }
}

const fn algorithm(of: Algorithm) -> Option<JwtAlgorithm> {
    Some(match of {
        Algorithm::RS256 => JwtAlgorithm::RS256,
        Algorithm::RS384 => JwtAlgorithm::RS384,
        Algorithm::RS512 => JwtAlgorithm::RS512,
        Algorithm::PS256 => JwtAlgorithm::PS256,
        Algorithm::PS384 => JwtAlgorithm::PS384,
        Algorithm::PS512 => JwtAlgorithm::PS512,
        Algorithm::ES256 => JwtAlgorithm::ES256,
        Algorithm::ES384 => JwtAlgorithm::ES384,
        Algorithm::EdDSA => JwtAlgorithm::EdDSA,
        _ => return None,
    })
}

/// The keys of a provider.
#[derive(Default)]
pub(super) struct Keys {
    keys: Vec<Key>,
}

#[derive(serde::Deserialize)]
struct Set {
    keys: Vec<serde_json::Value>,
}

struct Key {
    id: Option<String>,
    /// The only algorithm that the key may be used with, if its provider says so.
    only: Option<String>,
    family: AlgorithmFamily,
    key: DecodingKey,
}

impl Keys {
    /// Parses a key set (RFC 7517). Keys of unknown kinds, secrets, and keys for encryption are skipped.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        // One invalid key must not hide the others.
        let set: Set = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let known = set.keys.into_iter().take(KEYS_MAX);
        let known = known.filter_map(|value| serde_json::from_value::<Jwk>(value).ok());
        let keys: Vec<Key> = known.filter_map(|jwk| key(&jwk)).collect();
        if keys.is_empty() {
            return Err("it has no key that signatures can be checked with".to_owned());
        }
        Ok(Self { keys })
    }

    /// Whether there are no keys.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Verifies a token with these keys and returns its claims.
    pub(super) fn verify(&self, rule: &JwtRule, token: &str) -> Result<Claims, TokenFault> {
        install();
        if token.len() > TOKEN_MAX {
            return Err(TokenFault::Malformed);
        }
        let header = decode_header(token).map_err(|_| TokenFault::Malformed)?;
        let allowed = algorithm(header.alg).is_some_and(|alg| rule.algorithms.contains(&alg));
        // Extensions named in `crit` must be understood, and none are (RFC 7515, section 4.1.11).
        if !allowed || header.crit.is_some() {
            return Err(TokenFault::Malformed);
        }
        if self.is_empty() {
            return Err(TokenFault::NoKeys);
        }
        let name = format!("{:?}", header.alg);
        let fits = |key: &&Key| {
            key.family == header.alg.family()
                && key.only.as_ref().is_none_or(|only| *only == name)
                && (header.kid.is_none() || key.id == header.kid)
        };
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        let mut fault = TokenFault::UnknownKey;
        for key in self.keys.iter().filter(fits) {
            match decode::<Claims>(token, &key.key, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(_) => fault = TokenFault::Malformed,
            }
        }
        Err(fault)
    }
}

fn key(jwk: &Jwk) -> Option<Key> {
    let common = &jwk.common;
    if common
        .public_key_use
        .as_ref()
        .is_some_and(|purpose| *purpose != PublicKeyUse::Signature)
        || matches!(
            jwk.algorithm,
            AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_)
        )
    {
        return None;
    }
    let key: Result<DecodingKey, Error> = DecodingKey::from_jwk(jwk);
    let key = key.ok()?;
    Some(Key {
        id: common.key_id.clone(),
        only: common.key_algorithm.as_ref().map(|alg| format!("{alg:?}")),
        family: key.family(),
        key,
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::{Value, json};

    use super::*;

    fn pair(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a key")
    }

    fn jwk(pair: &Ed25519KeyPair, more: &Value) -> Value {
        let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
        let mut jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        for (name, value) in more.as_object().expect("an object") {
            jwk[name] = value.clone();
        }
        jwk
    }

    fn token(pair: &Ed25519KeyPair, header: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(header), part(&json!({ "sub": "me" })));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }

    fn rule() -> JwtRule {
        serde_json::from_value(json!({
            "jwks_url": "https://id.example/k", "issuers": ["i"], "audiences": ["a"],
        }))
        .expect("a rule")
    }

    fn keys(list: &[Value]) -> Keys {
        let set = json!({ "keys": list }).to_string();
        Keys::parse(set.as_bytes()).expect("a key set")
    }

    #[test]
    fn a_token_counts_under_a_key_of_the_set_only() {
        let (one, two) = (pair(1), pair(2));
        let none = json!({});
        let set = keys(&[jwk(&one, &json!({ "kid": "k1" })), jwk(&two, &none)]);
        let eddsa = |kid: &str| json!({ "alg": "EdDSA", "kid": kid });
        let verify = |token: &str| set.verify(&rule(), token);
        let claims = verify(&token(&one, &eddsa("k1"))).expect("good");
        assert_eq!(claims["sub"], "me");
        // Without a key id, any key of the set is tried.
        assert!(verify(&token(&two, &json!({ "alg": "EdDSA" }))).is_ok());
        assert_eq!(
            verify(&token(&two, &eddsa("k1"))),
            Err(TokenFault::Malformed)
        );
        assert_eq!(
            verify(&token(&one, &eddsa("k9"))),
            Err(TokenFault::UnknownKey)
        );
        let good = token(&one, &eddsa("k1"));
        let cut = &good[..good.len() - 2];
        for wrong in [
            "",
            "a.b",
            cut,
            &good.replace('.', ""),
            &"x".repeat(TOKEN_MAX + 1),
        ] {
            assert_eq!(verify(wrong), Err(TokenFault::Malformed), "{wrong:.40}");
        }
    }

    #[test]
    fn only_what_is_understood_and_allowed_counts() {
        let one = pair(1);
        let set = keys(&[jwk(&one, &json!({ "kid": "k1" }))]);
        let crit = json!({ "alg": "EdDSA", "kid": "k1", "crit": ["b64"], "b64": false });
        assert_eq!(
            set.verify(&rule(), &token(&one, &crit)),
            Err(TokenFault::Malformed)
        );
        let mut narrow = rule();
        narrow.algorithms = [JwtAlgorithm::RS256].into();
        let good = token(&one, &json!({ "alg": "EdDSA", "kid": "k1" }));
        assert_eq!(set.verify(&narrow, &good), Err(TokenFault::Malformed));
        // The same bytes under an algorithm with a shared secret, for which the public key would be the secret.
        let hs = token(&one, &json!({ "alg": "HS256", "kid": "k1" }));
        assert_eq!(set.verify(&rule(), &hs), Err(TokenFault::Malformed));
        assert_eq!(
            Keys::default().verify(&rule(), &good),
            Err(TokenFault::NoKeys)
        );
    }

    #[test]
    fn keys_for_other_ends_are_left_out() {
        let one = pair(1);
        let enc = jwk(&one, &json!({ "use": "enc" }));
        let secret = json!({ "kty": "oct", "k": "c2VjcmV0" });
        let rubbish = json!({ "kty": "OKP", "crv": "Ed25519", "x": 7 });
        for list in [vec![], vec![enc, secret, rubbish]] {
            let set = json!({ "keys": list }).to_string();
            assert!(Keys::parse(set.as_bytes()).is_err(), "{set}");
        }
        let other = keys(&[jwk(&one, &json!({ "kid": "k1", "alg": "ES256" }))]);
        let token = token(&one, &json!({ "alg": "EdDSA", "kid": "k1" }));
        assert_eq!(other.verify(&rule(), &token), Err(TokenFault::UnknownKey));
    }
}
