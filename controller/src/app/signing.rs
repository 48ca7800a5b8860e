//! Signatures of uploads: a tenant's signing keys, its policy, and the validation step that checks both.

use std::time::Instant;

use fdn_core::account::{TenantInfo, TenantRef};
use fdn_core::api::ValidationStep;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::repository::{PutSigningKey, SignaturePolicy, SigningKeyInfo};
use fdn_core::{Millis, SigningKeyName, TenantId};
use serde_json::json;
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::precondition::{Precondition, tag};
use super::tenant;
use crate::Error;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::signing::{
    signature_policy_get, signature_policy_set, signing_key_delete, signing_key_exists,
    signing_key_list, signing_key_upsert,
};
use crate::upload::signature::{
    PAYLOAD_MAX, PublicKey, SIGNATURE_TEXT_MAX, Signature, SignatureError, Signer, Subject, verify,
};
use crate::upload::{Component, image};

/// Checks an upload's signature against its tenant's keys and policy.
///
/// # Errors
/// When a required signature is missing, a signature that was sent is not valid, or the store fails.
pub async fn check(
    state: &State,
    tenant: TenantId,
    manifest: &Manifest,
    component: &Component,
    signature: Option<Signature>,
) -> Result<(Option<Signer>, ValidationStep), Error> {
    let begin = Instant::now();
    let mut connection = state.store.read().await?;
    let policy = signature_policy_get(&mut connection, tenant).await?;
    let Some(signature) = signature else {
        return match policy {
            SignaturePolicy::Required => Err(SignatureError::Missing.into()),
            SignaturePolicy::Optional => Ok((None, step("none; none is asked for", begin))),
        };
    };
    check_size(&signature)?;
    let keys = signing_key_list(&mut connection, tenant).await?;
    drop(connection);
    let (path, digest) = (component.path().to_owned(), component.digest());
    let is_image = manifest.runtime == RuntimeKind::Docker;
    let checked = tokio::task::spawn_blocking(move || {
        let named = match is_image {
            true => image::reference_in(&path)?,
            false => None,
        };
        let subject = match &named {
            Some(reference) => Subject::Image(reference.digest()),
            None => Subject::File(&path, digest),
        };
        Ok::<_, Error>(verify(subject, &signature, &keys)?)
    });
    let signer = checked
        .await
        .map_err(|e| Error::Internal(format!("checking a signature broke: {e}")))??;
    let result = format!(
        "by key {} ({}, {})",
        signer.name,
        signer.algorithm.as_str(),
        signer.fingerprint.short()
    );
    Ok((Some(signer), step(result, begin)))
}

fn step(result: impl Into<String>, begin: Instant) -> ValidationStep {
    ValidationStep {
        step: "signature".to_owned(),
        result: result.into(),
        took: Millis::from(begin.elapsed()),
    }
}

fn check_size(signature: &Signature) -> Result<(), SignatureError> {
    let payload = signature.payload.as_ref().map_or(0, Vec::len);
    if signature.text.len() > SIGNATURE_TEXT_MAX {
        return Err(SignatureError::Unreadable("it is longer than 1024 bytes"));
    }
    if payload > PAYLOAD_MAX {
        return Err(SignatureError::Payload(
            "it is longer than 16 KiB".to_owned(),
        ));
    }
    Ok(())
}

/// Checks again in the transaction that writes the version: the policy may have changed, and keys may have been removed since [`check`].
///
/// # Errors
/// When the upload would now need another signature, or the store fails.
pub(super) async fn recheck(
    connection: &mut AnyConnection,
    tenant: TenantId,
    signer: Option<&Signer>,
) -> Result<(), Error> {
    let policy = signature_policy_get(&mut *connection, tenant).await?;
    let counts = match signer {
        Some(signer) => signing_key_exists(connection, tenant, &signer.fingerprint).await?,
        None => false,
    };
    if policy == SignaturePolicy::Required && !counts {
        return Err(SignatureError::Missing.into());
    }
    Ok(())
}

/// The signing keys of a tenant, by name.
///
/// # Errors
/// When the store fails.
pub async fn keys(state: &State, tenant: TenantId) -> Result<Vec<SigningKeyInfo>, Error> {
    Ok(signing_key_list(&mut *state.store.read().await?, tenant).await?)
}

fn audit(actor: &Actor, tenant: TenantId, action: &'static str, subject: String) -> AuditEntry {
    AuditEntry {
        at: fdn_service::now(),
        actor: actor.clone(),
        tenant: Some(tenant),
        action,
        subject,
        before: None,
        after: None,
    }
}

fn shown(key: &SigningKeyInfo) -> Option<String> {
    Some(json!({ "algorithm": key.algorithm, "fingerprint": key.fingerprint }).to_string())
}

/// Adds a key, or replaces the one of the same name. Adding the same key again changes nothing.
///
/// # Errors
/// When the key cannot be used, there are too many, or the store fails.
pub async fn put_key(
    state: &State,
    actor: &Actor,
    (tenant, name): (TenantId, &SigningKeyName),
    request: &PutSigningKey,
) -> Result<SigningKeyInfo, Error> {
    let key = PublicKey::from_pem(&request.public_key)?;
    let info = SigningKeyInfo {
        name: name.clone(),
        algorithm: key.algorithm(),
        fingerprint: key.fingerprint()?,
        public_key: format!("{}\n", request.public_key.trim()),
        created_at: fdn_service::now(),
        created_by: actor.to_string(),
    };
    let most = state.settings.repository.signing_keys_max;
    let kept: SigningKeyInfo = in_transaction!(state.store, tx => {
        // Locks the tenant's row, so that counting and inserting keys is one step.
        let policy = signature_policy_get(&mut tx, tenant).await?;
        signature_policy_set(&mut tx, tenant, policy).await?;
        let keys = signing_key_list(&mut tx, tenant).await?;
        let old = keys.iter().find(|key| key.name == *name);
        if let Some(same) = old.filter(|old| old.fingerprint == info.fingerprint) {
            return Ok(same.clone());
        }
        if old.is_none() && keys.len() >= most {
            return Err(Error::Conflict(format!(
                "the tenant has {most} signing keys, more are not allowed; remove some: fdn signing-key remove TENANT NAME"
            )));
        }
        signing_key_upsert(&mut tx, tenant, &info).await?;
        let entry = AuditEntry {
            before: old.and_then(shown),
            after: shown(&info),
            ..audit(actor, tenant, "signing-key.put", format!("signing-key/{name}"))
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(info.clone())
    })?;
    info!(%tenant, key = %name, fingerprint = %kept.fingerprint, %actor, "a signing key counts");
    Ok(kept)
}

/// Removes a key: new uploads signed with it are rejected. Versions that were accepted stay.
///
/// # Errors
/// When there is no such key, it is the last one and signatures are required, or the store fails.
pub async fn remove_key(
    state: &State,
    actor: &Actor,
    (tenant, name): (TenantId, &SigningKeyName),
) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        let policy = signature_policy_get(&mut tx, tenant).await?;
        signature_policy_set(&mut tx, tenant, policy).await?;
        let keys = signing_key_list(&mut tx, tenant).await?;
        let Some(old) = keys.iter().find(|key| key.name == *name) else {
            return Err(Error::NotFound {
                what: format!("signing key {name}"),
                hint: "`fdn signing-key list TENANT` shows what exists",
            });
        };
        if keys.len() == 1 && policy == SignaturePolicy::Required {
            return Err(Error::Conflict(format!(
                "{name} is the last signing key and uploads must be signed; add another one first, or: fdn signing-key policy TENANT optional"
            )));
        }
        signing_key_delete(&mut tx, tenant, name).await?;
        let entry = AuditEntry {
            before: shown(old),
            ..audit(actor, tenant, "signing-key.remove", format!("signing-key/{name}"))
        };
        Ok::<_, Error>(audit_insert(&mut tx, &entry).await?)
    })?;
    info!(%tenant, key = %name, %actor, "a signing key was removed");
    Ok(())
}

/// Sets whether uploads must be signed. Setting the same again changes nothing.
///
/// # Errors
/// When signatures are to be required and there is no key, the precondition fails, or the store fails.
pub async fn set_policy(
    state: &State,
    actor: &Actor,
    id: TenantId,
    policy: SignaturePolicy,
    expected: &Precondition,
) -> Result<TenantInfo, Error> {
    let by_id = TenantRef::Id(id);
    let info: TenantInfo = in_transaction!(state.store, tx => {
        let old = tenant::existing(state, &mut tx, &by_id).await?;
        expected.holds(&tag(old.generation))?;
        if old.signature_policy == policy {
            return Ok(old);
        }
        signature_policy_set(&mut tx, id, policy).await?;
        if policy == SignaturePolicy::Required && signing_key_list(&mut tx, id).await?.is_empty() {
            return Err(Error::Conflict(
                "there is no signing key, so nothing could be uploaded any more; add one first: fdn signing-key add TENANT NAME FILE".to_owned(),
            ));
        }
        let state_of = |policy: SignaturePolicy| Some(json!({ "policy": policy }).to_string());
        let entry = AuditEntry {
            before: state_of(old.signature_policy),
            after: state_of(policy),
            ..audit(actor, id, "signature-policy.set", format!("tenant/{id}"))
        };
        audit_insert(&mut tx, &entry).await?;
        tenant::existing(state, &mut tx, &by_id).await
    })?;
    info!(tenant = %info.name, policy = policy.as_str(), %actor, "the signature policy is set");
    Ok(info)
}
