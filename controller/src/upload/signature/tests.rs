//! The keys and signatures were made with OpenSSL, which shares no code with what verifies them.

use std::io::Write;

use ed25519_dalek::pkcs8::EncodePublicKey;
use fdn_core::Timestamp;

use super::*;

const BLOB: &[u8] = b"the octets of a component\n";
const EC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEGxAIcDowLUGZSqoU33MYk5iGcvO0
M+3F2Ic6B9d74ERP9sWFZU9LFsbUE3Ldv1hNWkJ+eI041oLUWvg0h4VRZA==
-----END PUBLIC KEY-----
";
const EC_SIGNATURE: &str = "MEUCIBQjYFSXZBl+EbJ/eBZ4i6gvFfyW0ncMj2jGhnAtLmfOAiEA4BrCbengNGPvRJv/ojFcVHUiUIJy17X3abohLxUtQqk=";
const ED_KEY: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAxyXfv7H0RrZnkcCrGxHFA2X1IfOeVWntgZV+sVQQ6zI=
-----END PUBLIC KEY-----
";
const ED_SIGNATURE: &str =
    "5uGtVESEH4lriPxEzMXi3IwoUQ201QA14Z7nU7S6lo737GROp4OSvc2knLhPDJZwDYxlTuf/YpehaWKluF+HAA==";
/// The signature of [`payload`] by the first key.
const PAYLOAD_SIGNATURE: &str = "MEQCIDxdUV/lZdUOFMdTbM82TJM5rrP/CEquye91/zMSfLFPAiBPu/JPYPXZbo8iEk8XSdpohw5+Hb7+vF1mDcH6AR4tRw==";

fn payload() -> Vec<u8> {
    let digest = format!("sha256:{}", "0".repeat(64));
    format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"ghcr.io/acme/thumbs"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
    )
    .into_bytes()
}

fn zeros() -> Digest {
    "0".repeat(64).parse().expect("a digest")
}

fn info(name: &str, pem: &str) -> SigningKeyInfo {
    let key = PublicKey::from_pem(pem).expect("a key");
    SigningKeyInfo {
        name: name.parse().expect("name"),
        algorithm: key.algorithm(),
        fingerprint: key.fingerprint().expect("a fingerprint"),
        public_key: pem.to_owned(),
        created_at: Timestamp(1),
        created_by: "ann".to_owned(),
    }
}

fn keys() -> Vec<SigningKeyInfo> {
    vec![info("old", EC_KEY), info("release", ED_KEY)]
}

fn signature(text: &str) -> Signature {
    Signature {
        text: text.to_owned(),
        payload: None,
    }
}

/// Verifies a signature of a file with these bytes.
fn over(bytes: &[u8], text: &str, keys: &[SigningKeyInfo]) -> Result<Signer, SignatureError> {
    let mut file = tempfile::NamedTempFile::new().expect("file");
    file.write_all(bytes).expect("written");
    let subject = Subject::File(file.path(), Digest::of(bytes));
    verify(subject, &signature(text), keys)
}

#[test]
fn both_kinds_of_keys_count() {
    let signer = over(BLOB, EC_SIGNATURE, &keys()).expect("good");
    assert_eq!(signer.name.as_str(), "old");
    assert_eq!(signer.algorithm, SigningAlgorithm::EcdsaP256);
    let signer = over(BLOB, &format!("{ED_SIGNATURE}\n"), &keys()).expect("good");
    assert_eq!(signer.name.as_str(), "release");
    assert_eq!(signer.fingerprint, keys()[1].fingerprint);
}

#[test]
fn other_bytes_and_other_keys_are_refused() {
    for text in [EC_SIGNATURE, ED_SIGNATURE] {
        let error = over(b"other bytes\n", text, &keys()).expect_err("other bytes");
        assert!(matches!(error, SignatureError::Wrong(2)), "{error}");
        assert_eq!(error.code(), ErrorCode::SignatureInvalid);
    }
    assert!(
        over(BLOB, EC_SIGNATURE, &keys()[1..]).is_err(),
        "another key"
    );
    assert!(
        over(BLOB, ED_SIGNATURE, &keys()[..1]).is_err(),
        "another key"
    );
    let error = over(BLOB, EC_SIGNATURE, &[]).expect_err("no key");
    assert!(matches!(error, SignatureError::NoKeys), "{error}");
    for text in ["", "!", "AAAA"] {
        let error = over(BLOB, text, &keys()).expect_err(text);
        assert_eq!(error.code(), ErrorCode::SignatureInvalid);
    }
}

/// RFC 8032, section 7.3: what newer versions of cosign make with an Ed25519 key, over the SHA-512 of the bytes.
#[test]
fn a_prehashed_signature_counts() {
    let secret = hex::decode("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42");
    let secret: [u8; 32] = secret.expect("hex").try_into().expect("32 bytes");
    let public = ed25519_dalek::SigningKey::from_bytes(&secret).verifying_key();
    let pem = public
        .to_public_key_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF)
        .expect("PEM");
    let made = hex::decode(concat!(
        "98a70222f0b8121aa9d30f813d683f809e462b469c7ff87639499bb94e6dae41",
        "31f85042463c2a355a2003d062adf5aaa10b8c61e636062aaad11c2a26083406"
    ));
    let text = STANDARD.encode(made.expect("hex"));
    let keys = [info("rfc", &pem)];
    assert!(over(b"abc", &text, &keys).is_ok());
    assert!(over(b"abd", &text, &keys).is_err());
}

#[test]
fn a_file_of_many_pieces_is_read_to_its_end() {
    let secret = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let pem = secret
        .verifying_key()
        .to_public_key_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF)
        .expect("PEM");
    let keys = [info("big", &pem)];
    let mut bytes: Vec<u8> = (0..PIECE * 3 + 17).map(|n| n as u8).collect();
    let made = ed25519_dalek::Signer::sign(&secret, &bytes);
    let text = STANDARD.encode(made.to_bytes());
    assert!(over(&bytes, &text, &keys).is_ok());
    *bytes.last_mut().expect("bytes") ^= 1;
    assert!(over(&bytes, &text, &keys).is_err(), "the last byte counts");
}

#[test]
fn an_image_is_signed_by_its_payload() {
    let with = |payload: Option<Vec<u8>>| Signature {
        text: PAYLOAD_SIGNATURE.to_owned(),
        payload,
    };
    let check = |digest, payload| verify(Subject::Image(digest), &with(payload), &keys());
    let signer = check(zeros(), Some(payload())).expect("good");
    assert_eq!(signer.name.as_str(), "old");
    let other = Digest::of(b"another image");
    for (digest, payload, text) in [
        (zeros(), None, "needs the payload"),
        (other, Some(payload()), "it names sha256:0000"),
        (zeros(), Some(b"{}".to_vec()), "no simple signing payload"),
    ] {
        let error = check(digest, payload).expect_err(text);
        assert_eq!(error.code(), ErrorCode::SignatureInvalid);
        assert!(error.to_string().contains(text), "{error}");
    }
    // Exactly the received bytes must be signed: one more blank makes another payload.
    let mut padded = payload();
    padded.push(b' ');
    assert!(matches!(
        check(zeros(), Some(padded)),
        Err(SignatureError::Wrong(2))
    ));
    let text = String::from_utf8(payload()).expect("text");
    let strange = text.replace("cosign container image", "another");
    let error = check(zeros(), Some(strange.into_bytes())).expect_err("another type");
    assert!(error.to_string().contains("its type is"), "{error}");
}

#[test]
fn keys_that_cannot_be_used_are_named() {
    let p384 =
        "-----BEGIN PUBLIC KEY-----\nMHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE\n-----END PUBLIC KEY-----\n";
    let weak = ed25519_dalek::VerifyingKey::from_bytes(&[0; 32]).expect("a point");
    let weak = weak
        .to_public_key_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF)
        .expect("PEM");
    let long = "x".repeat(KEY_TEXT_MAX + 1);
    for (text, expected) in [
        ("", "BEGIN PUBLIC KEY"),
        (p384, "BEGIN PUBLIC KEY"),
        ("-----BEGIN PRIVATE KEY-----\n", "private key"),
        (weak.as_str(), "weak"),
        (long.as_str(), "longer"),
    ] {
        let error = PublicKey::from_pem(text).expect_err(expected);
        assert_eq!(error.code(), ErrorCode::SigningKeyInvalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
}
