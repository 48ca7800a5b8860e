//! The payload of a scaling task: the function version of the instance. What the instance runs with (variables, secrets, the image's path on
//! disk) is not transferred: the node that starts it has the app deployed as well and uses its own.

use bytes::Bytes;
use fdn_core::{AppName, Digest, FormName, FunctionName, NodeId, VersionNumber};
use fdn_instances::Description;
use serde::{Deserialize, Serialize};

/// An order to start an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// The node that requested the instance and alone may call it.
    pub(super) asker: NodeId,
    /// The version to start.
    #[serde(flatten)]
    pub(super) key: Key,
}

/// A function version, as nodes deploy it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    app: AppName,
    function: FunctionName,
    version: VersionNumber,
    digest: Digest,
    /// Distinguishes forms, since two may have the same image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    form: Option<FormName>,
}

impl Key {
    pub(super) fn of(description: &Description) -> Self {
        Self {
            app: description.app.clone(),
            function: description.function.clone(),
            version: description.version,
            digest: description.digest,
            form: description.form.clone(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} of app {}", self.function, self.version, self.app)
    }
}

impl Order {
    pub(super) fn encode(&self) -> Bytes {
        // Names and digests can always be serialized.
        Bytes::from(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use fdn_cluster::ClusterSettings;

    use super::*;

    #[test]
    fn the_longest_order_is_within_the_bound_of_payloads() {
        let longest = "a".repeat(63);
        let order = Order {
            asker: longest.parse().expect("node"),
            key: Key {
                app: longest.parse().expect("app"),
                function: longest.parse().expect("function"),
                version: VersionNumber::try_from(u32::MAX).expect("version"),
                digest: Digest::of(b"image"),
                form: Some(longest.parse().expect("form")),
            },
        };
        let bytes = order.encode();
        assert!(bytes.len() <= ClusterSettings::default().limits.payload.as_usize());
        assert_eq!(Order::decode(&bytes).expect("an order"), order);
        assert!(Order::decode(b"{}").is_err());
        let mut single = order;
        single.key.form = None;
        let text = String::from_utf8(single.encode().to_vec()).expect("text");
        assert!(!text.contains("form"), "as before: {text}");
        assert_eq!(Order::decode(text.as_bytes()), Ok(single));
    }
}
