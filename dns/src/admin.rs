//! The admin routes that explain answers: `GET /lookup?name=NAME&client=ADDRESS` says what a client would be answered now, and why;
//! `GET /dnssec` lists the zone's keys and their stages.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpResponse, ResponseError};
use fdn_core::latency::LatencyEstimate;
use fdn_core::observe::AddressKind;
use fdn_core::{AppName, ClientPrefix, ClusterId, ErrorCode, HostName, Problem, Revision};
use hickory_proto::rr::{DNSClass, LowerName, RecordType};
use serde::{Deserialize, Serialize};

use crate::dnssec::Signer;
use crate::dnssec::ring::KeyState;
use crate::policy::fleet::Family;
use crate::policy::steer::{Pick, Reason};
use crate::policy::{Body, Policy, Question, zone};
use crate::published::Published;

/// The handler state of the routes.
#[derive(Clone)]
pub(crate) struct Lookup {
    /// The state that queries are answered from.
    pub(crate) published: Arc<Published>,
    /// The configured choices of the policy.
    pub(crate) policy: Policy,
    /// The signer of the zone; `None` if the zone is not signed.
    pub(crate) signer: Option<Arc<Signer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupParameters {
    name: String,
    client: String,
    #[serde(default, rename = "type")]
    kind: AddressKind,
}

/// The result of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Addresses of gateways.
    Answer,
    /// A record of the configuration, the same for all clients.
    Fixed,
    /// The name exists but has no address of this type.
    NoData,
    /// There is no such name.
    NxDomain,
    /// The name is not in the zone.
    Refused,
    /// The server cannot answer, or is configured not to.
    Failure,
}

/// The explanation of one answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerExplanation {
    /// The name asked for.
    pub name: HostName,
    /// The client prefix that the explanation is for.
    pub client: ClientPrefix,
    /// The result of the question.
    pub result: Outcome,
    /// The addresses in the answer, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// How long the answer may be cached, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    /// The scope: the answer is valid for all clients that share this many leading bits.
    pub scope: u8,
    /// How the cluster was chosen; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering: Option<Steering>,
}

/// How a cluster was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Steering {
    /// The app that has this name.
    pub app: AppName,
    /// The revision of the app's bindings.
    pub revision: Revision,
    /// Why this cluster was chosen.
    pub reason: Reason,
    /// The cluster whose gateways are in the answer; absent if there is none, or gateways of several clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ClusterId>,
    /// The cluster that the client is bound to.
    pub bound: Option<ClusterId>,
    /// The length of the bound prefix, in bits; 0 if none covers the client.
    pub matched: u8,
    /// Every cluster, nearest first.
    pub clusters: Vec<Candidate>,
}

/// A cluster as this server sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The estimated latency from the client, if known.
    pub latency: Option<LatencyEstimate>,
    /// The addresses of its gateways that pass this server's health checks.
    pub live: Vec<IpAddr>,
    /// The weights of the addresses in `live`, in the same order.
    #[serde(default)]
    pub weights: Vec<u32>,
    /// The addresses of all its gateways.
    pub all: Vec<IpAddr>,
}

/// A malformed question.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadQuestion(String);

impl ResponseError for BadQuestion {
    fn error_response(&self) -> HttpResponse {
        let problem = Problem::new(ErrorCode::BadRequest, self.0.clone());
        HttpResponse::BadRequest()
            .content_type(Problem::MEDIA_TYPE)
            .json(problem)
    }
}

impl Lookup {
    /// Adds the routes.
    pub(crate) fn route(&self, config: &mut ServiceConfig) {
        config
            .app_data(web::Data::new(self.clone()))
            .route("/lookup", web::get().to(lookup))
            .route("/dnssec", web::get().to(dnssec));
    }

    fn explain(
        &self,
        name: HostName,
        client: ClientPrefix,
        kind: AddressKind,
    ) -> AnswerExplanation {
        let (names, serving) = (self.published.names(), self.published.serving());
        let locate = self.published.locate();
        let lower = LowerName::new(&zone::name_of(&name));
        let (kind, family) = match kind {
            AddressKind::A => (RecordType::A, Family::V4),
            AddressKind::Aaaa => (RecordType::AAAA, Family::V6),
        };
        let question = Question {
            name: &lower,
            kind,
            class: DNSClass::IN,
        };
        let fleet = &serving.fleet;
        let verdict = self
            .policy
            .answer(question, client, 0, &names, fleet, locate);
        let (result, addresses, ttl) = match verdict.body {
            Body::Addresses { ttl, addresses } => (Outcome::Answer, addresses, Some(ttl)),
            Body::Records(records, _) | Body::Wildcard(records, _) => (
                Outcome::Fixed,
                Vec::new(),
                records.first().map(|record| record.ttl),
            ),
            Body::Service { ttl, .. } => (Outcome::Fixed, Vec::new(), Some(ttl)),
            Body::Any(_) | Body::NoData => (Outcome::NoData, Vec::new(), None),
            Body::NxDomain => (Outcome::NxDomain, Vec::new(), None),
            Body::Refused => (Outcome::Refused, Vec::new(), None),
            Body::Failure => (Outcome::Failure, Vec::new(), None),
        };
        let steering = verdict.steering.map(|decision| {
            let nearest = &fleet.network().nearest;
            let estimates = nearest.view(client, locate).estimates;
            let candidate = |index: &usize| {
                let (cluster, addresses) = (fleet.id(*index).clone(), fleet.cluster(*index));
                let live = addresses.live(family);
                let weights = (0..live.len()).map(|i| addresses.weight(family, i));
                Candidate {
                    latency: estimates.get(&cluster).copied(),
                    cluster,
                    live: live.to_vec(),
                    weights: weights.collect(),
                    all: addresses.all(family).to_vec(),
                }
            };
            Steering {
                app: decision.table.app.as_ref().clone(),
                revision: decision.table.revision,
                reason: decision.reason,
                chosen: match decision.pick {
                    Pick::Live(index) => Some(fleet.id(index).clone()),
                    Pick::Dead(_) | Pick::NoAddress | Pick::Refused => None,
                },
                bound: decision.bound.cloned(),
                matched: decision
                    .table
                    .bindings
                    .covering(client)
                    .map_or(0, |(_, len)| len),
                clusters: nearest
                    .around(client, locate)
                    .order
                    .iter()
                    .map(candidate)
                    .collect(),
            }
        });
        AnswerExplanation {
            name,
            client,
            result,
            addresses,
            ttl,
            scope: verdict.scope,
            steering,
        }
    }
}

async fn lookup(
    state: web::Data<Lookup>,
    parameters: web::Query<LookupParameters>,
) -> Result<HttpResponse, BadQuestion> {
    let name = HostName::parse_lenient(&parameters.name).map_err(|e| BadQuestion(e.to_string()))?;
    let client = parameters
        .client
        .parse::<ClientPrefix>()
        .map_err(|e| BadQuestion(e.to_string()))?;
    Ok(HttpResponse::Ok().json(state.explain(name, client, parameters.kind)))
}

/// The answer of `GET /dnssec`.
#[derive(Debug, Serialize)]
struct DnssecStatus {
    /// Whether the zone is signed.
    signed: bool,
    /// The keys, oldest first.
    keys: Vec<KeyState>,
}

async fn dnssec(state: web::Data<Lookup>) -> HttpResponse {
    let signer = state.signer.as_ref();
    HttpResponse::Ok().json(DnssecStatus {
        signed: signer.is_some(),
        keys: signer.map_or_else(Vec::new, |signer| signer.ring().states()),
    })
}
