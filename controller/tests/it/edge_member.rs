//! A machine of the network, with its own certificate and its edge connection to a controller.

use bytes::Bytes;
use fdn_core::enrol::{EnrolRequest, EnrolResponse, Role};
use fdn_core::feed::{Frame, Report};
use fdn_core::message::{Message, NodeStatus};
use fdn_core::{NodeId, Revision};
use fdn_link::join::Identity;
use fdn_link::{
    Connection, ControllerLinkSettings, FeedEvent, IdentityFiles, Link, LinkMetrics, read_body,
};
use fdn_service::CancellationToken;
use fdn_service::pki::NodeKey;
use fdn_testkit::wait;
use prometheus::Registry;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::machines::addresses;
use crate::rig::{Rig, node_at};

/// An enrolled machine.
pub(crate) struct Member {
    pub(crate) name: NodeId,
    pub(crate) cluster: String,
    pub(crate) answer: EnrolResponse,
    pub(crate) key: NodeKey,
    pub(crate) files: IdentityFiles,
    folder: TempDir,
}

impl Member {
    /// Enrols a machine.
    pub(crate) async fn join(rig: &Rig, role: Role, cluster: &str, name: &str) -> Self {
        let wish = json!({ "cluster": cluster, "role": role, "ttl": "1h", "uses": 1 });
        let token: Value = rig
            .json(rig.request(Method::POST, "/v1/join-tokens").json(&wish))
            .await;
        let folder = tempfile::tempdir().expect("a folder");
        let identity = Identity::below(folder.path());
        identity.prepare().expect("a folder");
        let key = NodeKey::read_or_create(&identity.key).expect("a key");
        let node: NodeId = name.parse().expect("a name");
        let request = EnrolRequest {
            token: token["token"].as_str().expect("a token").to_owned(),
            role,
            csr: key.request(&node).expect("a request"),
            node: node.clone(),
            addresses: addresses(1),
            cluster: None,
            region: None,
        };
        let answer: EnrolResponse = rig.json(rig.enrol(&request)).await;
        identity.write(role, &answer).expect("written");
        Self {
            name: node,
            cluster: cluster.to_owned(),
            answer,
            key,
            files: identity.files(),
            folder,
        }
    }

    /// Connects to the first of these controllers that answers.
    pub(crate) fn connect(&self, rigs: &[&Rig]) -> Wire {
        let controllers = rigs.iter().map(|rig| rig.controller.edge_address());
        self.connect_at(controllers.map(|address| address.to_string()).collect())
    }

    pub(crate) fn connect_at(&self, controllers: Vec<String>) -> Wire {
        self.connect_through(controllers, None)
    }

    pub(crate) fn connect_through(&self, controllers: Vec<String>, proxy: Option<String>) -> Wire {
        let settings = ControllerLinkSettings {
            controllers,
            proxy,
            spread: fdn_core::DurationMs::from_millis(10),
            retry_first: fdn_core::DurationMs::from_millis(10),
            retry_max: fdn_core::DurationMs::from_millis(100),
            ..ControllerLinkSettings::default()
        };
        let metrics = LinkMetrics::new(&Registry::new(), "test").expect("metrics");
        let stop = CancellationToken::new();
        let connection = Link::start(&settings, self.files.clone(), metrics, stop.clone());
        Wire {
            connection: connection.expect("a connection"),
            stop,
        }
    }

    /// The same machine with certificates of another network's authority.
    pub(crate) fn forged(&self, other: &Self) -> Self {
        let path = self.folder.path().join("forged");
        std::fs::create_dir(&path).expect("a folder");
        let copy = |from: &std::path::Path, name: &str| {
            let to = path.join(name);
            std::fs::copy(from, &to).expect("copied");
            to
        };
        let folder = tempfile::tempdir().expect("a folder");
        let key = copy(&other.files.key, "key");
        Self {
            name: self.name.clone(),
            cluster: self.cluster.clone(),
            answer: self.answer.clone(),
            key: NodeKey::read(&key).expect("a key"),
            files: IdentityFiles {
                ca: copy(&self.files.ca, "ca"),
                certificate: copy(&other.files.certificate, "certificate"),
                key,
            },
            folder,
        }
    }

    /// Its own status.
    pub(crate) fn status(&self) -> NodeStatus {
        NodeStatus {
            gateway: addresses(1).gateway,
            admin: addresses(1).admin,
            ..node_at(self.name.as_str(), &self.cluster, 53.35, -6.26)
        }
    }
}

/// A machine's connection, closed when this is dropped.
pub(crate) struct Wire {
    pub(crate) connection: Connection,
    stop: CancellationToken,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Wire {
    pub(crate) async fn up(&mut self) {
        let up = self.connection.feed.connected.wait_for(|up| *up);
        tokio::time::timeout(wait::PATIENCE, up)
            .await
            .expect("a connection in time")
            .expect("the link lives");
    }

    /// The response to a request: status, content range, body.
    pub(crate) async fn get(&self, path: &str, range: Option<&str>) -> (u16, String, Bytes) {
        let mut request = http::Request::get(path);
        if let Some(range) = range {
            request = request.header("range", range);
        }
        let request = request.body(Bytes::new()).expect("a request");
        self.ask(request).await
    }

    pub(crate) async fn post<T: Serialize>(&self, path: &str, body: &T) -> (u16, Value) {
        let body = serde_json::to_vec(body).expect("JSON");
        let (status, bytes) = self.post_bytes(path, body).await;
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (status, value)
    }

    pub(crate) async fn post_bytes(&self, path: &str, body: Vec<u8>) -> (u16, Bytes) {
        let request = http::Request::post(path).body(Bytes::from(body));
        let (status, _, bytes) = self.ask(request.expect("a request")).await;
        (status, bytes)
    }

    async fn ask(&self, request: http::Request<Bytes>) -> (u16, String, Bytes) {
        let answer = self
            .connection
            .controllers
            .send(request)
            .await
            .expect("an answer");
        let status = answer.status().as_u16();
        let range = answer.headers().get("content-range");
        let range = range
            .map_or("", |value| value.to_str().expect("text"))
            .to_owned();
        let body = read_body(answer.into_body(), 64 << 20)
            .await
            .expect("a body");
        (status, range, body)
    }

    /// The response status of a report.
    pub(crate) async fn report(&self, message: Message) -> u16 {
        let report = Report {
            messages: vec![message],
        };
        self.post("/edge/v1/report", &report).await.0
    }

    /// The next thing that the feed tells.
    pub(crate) async fn told(&mut self) -> FeedEvent {
        tokio::time::timeout(wait::PATIENCE, self.connection.feed.events.recv())
            .await
            .expect("something in time")
            .expect("the link lives")
    }

    /// Everything told up to `revision`: the frames, and the number of snapshots.
    pub(crate) async fn until(&mut self, revision: Revision) -> (Vec<Frame>, u32) {
        let (mut frames, mut snapshots) = (Vec::new(), 0);
        // The timeout is for the whole, since heartbeats never stop.
        let all = async {
            loop {
                match self.told().await {
                    FeedEvent::Snapshot(_, all) => {
                        frames.extend(all);
                        snapshots += 1;
                    }
                    FeedEvent::Change(frame) => frames.push(frame),
                    FeedEvent::At(at) if at >= revision => return,
                    FeedEvent::At(_) => {}
                    FeedEvent::Removed => panic!("removed"),
                }
            }
        };
        tokio::time::timeout(wait::PATIENCE, all)
            .await
            .expect("all of it in time");
        (frames, snapshots)
    }

    /// Waits until a change tells that an app exists, or does not; returns the values of its secrets.
    pub(crate) async fn hears_of(&mut self, app: &str, there: bool) -> Vec<String> {
        let heard = async {
            loop {
                let FeedEvent::Change(frame) = self.told().await else {
                    continue;
                };
                match Self::app(&[frame], app) {
                    Some((is, secrets)) if is == there => return secrets,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(wait::PATIENCE, heard)
            .await
            .expect("the change in time")
    }

    /// Waits until it is told that it was removed.
    pub(crate) async fn removed(&mut self) {
        let heard = async { while !matches!(self.told().await, FeedEvent::Removed) {} };
        tokio::time::timeout(wait::PATIENCE, heard)
            .await
            .expect("the removal in time");
    }

    /// The last state of an app in these frames: whether it exists, and the values of its secrets.
    pub(crate) fn app(frames: &[Frame], app: &str) -> Option<(bool, Vec<String>)> {
        let of_app = frames.iter().rev().find_map(|frame| match frame {
            Frame::App(one) if one.desired.app.as_str() == app => Some(one),
            _ => None,
        })?;
        let values = of_app.secrets.iter().flat_map(|values| values.values());
        let values = values.map(|value| value.0.clone()).collect();
        Some((of_app.desired.spec.is_some(), values))
    }
}
