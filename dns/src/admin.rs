//! `GET /lookup?name=NAME&client=ADDRESS`: what a client would be answered now, and why. `GET /dnssec`: the zone's keys and their stages.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpResponse, ResponseError};
use fdn_core::latency::LatencyEstimate;
use fdn_core::{AppName, ClientPrefix, ClusterId, ErrorCode, HostName, Problem, Revision};
use hickory_proto::rr::{DNSClass, LowerName, RecordType};
use serde::{Deserialize, Serialize};

use crate::dnssec::Signer;
use crate::dnssec::ring::KeyState;
use crate::policy::fleet::Family;
use crate::policy::steer::Reason;
use crate::policy::{Body, Policy, Question, zone};
use crate::published::Published;

/// What the route answers from.
#[derive(Clone)]
pub(crate) struct Lookup {
    /// The state of the moment.
    pub(crate) published: Arc<Published>,
    /// The operator's choices.
    pub(crate) policy: Policy,
    /// What signs the zone, if it is signed.
    pub(crate) signer: Option<Arc<Signer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    name: String,
    client: String,
    #[serde(default, rename = "type")]
    kind: AskedType,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum AskedType {
    #[default]
    A,
    #[serde(rename = "AAAA")]
    Aaaa,
}

/// The explanation of one answer.
#[derive(Debug, Serialize)]
struct Explained {
    name: HostName,
    client: ClientPrefix,
    /// `answer`, `nodata`, `nxdomain`, `refused`, `failure` or `fixed`.
    result: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u32>,
    /// The answer holds for all clients that share this many leading bits.
    scope: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    steering: Option<Steering>,
}

#[derive(Debug, Serialize)]
struct Steering {
    app: AppName,
    /// The revision of the app's bindings.
    revision: Revision,
    reason: Reason,
    bound: Option<ClusterId>,
    /// The length of the prefix that is bound.
    matched: u8,
    /// Every cluster, nearest first.
    clusters: Vec<Candidate>,
}

#[derive(Debug, Serialize)]
struct Candidate {
    cluster: ClusterId,
    latency: Option<LatencyEstimate>,
    live: Vec<IpAddr>,
    all: Vec<IpAddr>,
}

/// A question that cannot be understood.
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
    /// Adds the route.
    pub(crate) fn route(&self, config: &mut ServiceConfig) {
        config
            .app_data(web::Data::new(self.clone()))
            .route("/lookup", web::get().to(lookup))
            .route("/dnssec", web::get().to(dnssec));
    }

    fn explain(&self, name: HostName, client: ClientPrefix, kind: AskedType) -> Explained {
        let (names, serving) = (self.published.names(), self.published.serving());
        let locate = self.published.locate();
        let lower = LowerName::new(&zone::name_of(&name));
        let (kind, family) = match kind {
            AskedType::A => (RecordType::A, Family::V4),
            AskedType::Aaaa => (RecordType::AAAA, Family::V6),
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
            Body::Addresses { ttl, addresses } => ("answer", addresses, Some(ttl)),
            Body::Records(records, _) | Body::Wildcard(records, _) => (
                "fixed",
                Vec::new(),
                records.first().map(|record| record.ttl),
            ),
            Body::Service { ttl, .. } => ("fixed", Vec::new(), Some(ttl)),
            Body::Any(_) | Body::NoData => ("nodata", Vec::new(), None),
            Body::NxDomain => ("nxdomain", Vec::new(), None),
            Body::Refused => ("refused", Vec::new(), None),
            Body::Failure => ("failure", Vec::new(), None),
        };
        let steering = verdict.steered.map(|steered| {
            let atlas = &fleet.network().atlas;
            let estimates = atlas.view(client, locate).estimates;
            let candidate = |index: &usize| {
                let (cluster, addresses) = (fleet.id(*index).clone(), fleet.cluster(*index));
                Candidate {
                    latency: estimates.get(&cluster).copied(),
                    cluster,
                    live: addresses.live(family).to_vec(),
                    all: addresses.all(family).to_vec(),
                }
            };
            Steering {
                app: steered.table.app.as_ref().clone(),
                revision: steered.table.revision,
                reason: steered.reason,
                bound: steered.bound.cloned(),
                matched: steered
                    .table
                    .bindings
                    .covering(client)
                    .map_or(0, |(_, len)| len),
                clusters: atlas
                    .around(client, locate)
                    .order
                    .iter()
                    .map(candidate)
                    .collect(),
            }
        });
        Explained {
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
    asked: web::Query<Asked>,
) -> Result<HttpResponse, BadQuestion> {
    let name = HostName::parse_lenient(&asked.name).map_err(|e| BadQuestion(e.to_string()))?;
    let client = asked
        .client
        .parse::<ClientPrefix>()
        .map_err(|e| BadQuestion(e.to_string()))?;
    Ok(HttpResponse::Ok().json(state.explain(name, client, asked.kind)))
}

/// The keys of the zone.
#[derive(Debug, Serialize)]
struct Signed {
    /// Whether the zone is signed.
    signed: bool,
    /// The keys, oldest first.
    keys: Vec<KeyState>,
}

async fn dnssec(state: web::Data<Lookup>) -> HttpResponse {
    let signer = state.signer.as_ref();
    HttpResponse::Ok().json(Signed {
        signed: signer.is_some(),
        keys: signer.map_or_else(Vec::new, |signer| signer.ring().states()),
    })
}
