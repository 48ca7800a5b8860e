//! The rules of the simulated API server about objects: names, defaults, selectors, grace periods, and error messages. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::store::Resource;

/// An error, as a `Status` object with its HTTP status.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) code: u16,
    pub(super) body: Value,
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Status {
    Status {
        code,
        body: json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code
        }),
    }
}

pub(super) fn not_found(resource: Resource, name: &str) -> Status {
    let message = format!("{} \"{name}\" not found", resource.plural());
    status(404, "NotFound", &message)
}

pub(super) fn taken(resource: Resource, name: &str) -> Status {
    let message = format!("{} \"{name}\" already exists", resource.plural());
    status(409, "AlreadyExists", &message)
}

pub(super) fn conflict(
    resource: Resource,
    name: &str,
    field: &str,
    wanted: &Value,
    found: &Value,
) -> Status {
    let message = format!(
        "Operation cannot be fulfilled on {} \"{name}\": the {field} in the precondition ({wanted}) does not match the {field} in \
         record ({found}). The object might have been deleted and then recreated",
        resource.plural()
    );
    status(409, "Conflict", &message)
}

pub(super) fn gone() -> Status {
    status(410, "Expired", "too old resource version")
}

pub(super) fn bad_request(message: &str) -> Status {
    status(400, "BadRequest", message)
}

pub(super) fn invalid(message: &str) -> Status {
    status(422, "Invalid", message)
}

fn is_name(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && bytes.iter().all(|b| fits(*b))
        && ends(bytes.first())
        && ends(bytes.last())
}

fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    bytes.len() <= 63 && bytes.iter().all(fits) && ends(bytes.first()) && ends(bytes.last())
}

/// The checks of a real server that the agent could run into: names, labels, one container with an image, limits not below requests,
/// variables with both a value and a reference.
pub(super) fn check(resource: Resource, name: &str, object: &Value) -> Result<(), Status> {
    if !is_name(name) {
        return Err(invalid(&format!(
            "metadata.name: Invalid value: \"{name}\""
        )));
    }
    for (key, value) in object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let name = key.rsplit('/').next().unwrap_or_default();
        if !is_label_value(name)
            || name.is_empty()
            || !is_label_value(value.as_str().unwrap_or("?!"))
        {
            return Err(invalid(&format!(
                "metadata.labels: Invalid value: {key}={value}"
            )));
        }
    }
    if resource != Resource::Pods {
        return Ok(());
    }
    let containers = object["spec"]["containers"].as_array();
    for container in containers
        .filter(|all| !all.is_empty())
        .ok_or_else(|| invalid("spec.containers: Required value"))?
    {
        if container["image"].as_str().is_none_or(str::is_empty) {
            return Err(invalid("spec.containers[0].image: Required value"));
        }
        let resources = &container["resources"];
        for (class, limit) in resources["limits"].as_object().into_iter().flatten() {
            let request = &resources["requests"][class];
            if amount(limit).is_none() || (!request.is_null() && amount(request) > amount(limit)) {
                return Err(invalid(&format!(
                    "spec.containers[0].resources: Invalid value: {class}"
                )));
            }
        }
        for variable in container["env"].as_array().into_iter().flatten() {
            if !variable["value"].is_null() && !variable["valueFrom"].is_null() {
                return Err(invalid(
                    "spec.containers[0].env: may not have both value and valueFrom",
                ));
            }
        }
    }
    Ok(())
}

/// A quantity such as `250m` or `64Mi`, in thousandths.
pub(super) fn amount(quantity: &Value) -> Option<u128> {
    let text = quantity.as_str()?;
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u128 = text[..end].parse().ok()?;
    Some(match &text[end..] {
        "m" => number,
        "" => number * 1000,
        "Ki" => number * (1000 << 10),
        "Mi" => number * (1000 << 20),
        "Gi" => number * (1000 << 30),
        _ => return None,
    })
}

/// Sets the fields of a new object that the server sets itself.
pub(super) fn fill_in(resource: Resource, namespace: &str, uid: String, object: &mut Value) {
    object["apiVersion"] = json!("v1");
    object["kind"] = json!(resource.kind());
    let meta = &mut object["metadata"];
    meta["namespace"] = json!(namespace);
    meta["uid"] = json!(uid);
    meta["creationTimestamp"] = json!(now_and(0));
    if resource == Resource::Pods {
        object["status"] = json!({ "phase": "Pending", "qosClass": "Guaranteed" });
        let grace = &mut object["spec"]["terminationGracePeriodSeconds"];
        if grace.is_null() {
            *grace = json!(30);
        }
    }
}

/// The grace period in seconds for a pod's kubelet to stop it; `None` if the object is removed at once.
pub(super) fn grace(resource: Resource, object: &Value, options: &Value) -> Option<i64> {
    let phase = object["status"]["phase"].as_str();
    let ended = matches!(phase, Some("Failed" | "Succeeded"));
    if resource != Resource::Pods || ended || object["spec"]["nodeName"].is_null() {
        return None;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    let seconds = options["gracePeriodSeconds"].as_i64().or(own).unwrap_or(30);
    (seconds > 0).then_some(seconds)
}

/// Whether an equality-based selector matches.
pub(super) fn selects(selector: &str, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    selector
        .split(',')
        .filter(|part| !part.is_empty())
        .all(|part| match part.split_once('=') {
            Some((name, value)) => labels[name] == value.trim_start_matches('='),
            None => !labels[part].is_null(),
        })
}

/// The current time plus this many seconds.
pub(super) fn now_and(seconds: i64) -> String {
    let time = SystemTime::now() + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// Expands `$(NAME)` and `$$` like Kubernetes in values of variables.
pub(super) fn expanded(value: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let name = after
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        rest = if let Some(rest) = after.strip_prefix('$') {
            out.push('$');
            rest
        } else if let Some((name, rest)) = name {
            match known.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}
