//! Sample values of the API.

use fdn_cli::commands::dns::ServerAnswer;
use fdn_cli::commands::top::view::Responses;
use fdn_core::api::*;
use fdn_core::device::{DeviceKind, DeviceState, DeviceStatus, SliceStatus};
use fdn_core::figures::{FigurePoint, FigureSeries, Figures, Window};
use fdn_core::fleet::*;
use fdn_core::label::Labels;
use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::manifest::{Manifest, ManifestBounds};
use fdn_core::message::{AppObserved, AppPhase, NodeStatus, StageCounts};
use fdn_core::observe::{AddressKind, BindingDetail, ClusterDistance, DnsLookup, SteerReason};
use fdn_core::txt::TxtInfo;
use fdn_core::workflow::Workflow;
use fdn_core::*;
use fdn_dns::admin::{self, AnswerExplanation, Outcome, Steering};
use fdn_dns::policy::steer::Reason;

/// The current time, for ages.
pub(crate) const NOW: Timestamp = Timestamp(1_795_000_000_000);

pub(crate) fn ago(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1000)
}

pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect(text)
}

pub(crate) fn version(n: u32) -> VersionNumber {
    n.try_into().expect("a version")
}

pub(crate) fn network() -> NetworkInfo {
    NetworkInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        zone: parse("fn.test"),
        dns: None,
        gateway_port: 8080,
        upload_limit: 64 << 20,
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
    Labels::new(pairs.collect()).expect("labels")
}

fn step(step: &str, result: &str, took: f64) -> ValidationStep {
    ValidationStep {
        step: step.into(),
        result: result.into(),
        took: Millis::new(took),
    }
}

pub(crate) fn summary(name: &str) -> AppSummary {
    AppSummary {
        app: parse(name),
        tenant: parse("ten_00000000000000000000000000000001"),
        host: parse(&format!("{name}.fn.test")),
        version: version(2),
        digest: Digest::of(name.as_bytes()),
        revision: Revision(7),
        deployed_at: ago(7800),
        nodes_ready: 2,
        nodes_total: 3,
        labels: labels(&[("team", "shop")]),
        functions: Vec::new(),
    }
}

pub(crate) fn clusters() -> Vec<ClusterInfo> {
    let cluster = |name: &str, n: u8, lat, lon, alive| ClusterInfo {
        cluster: parse(name),
        region: parse(name),
        location: GeoPoint::new(lat, lon).expect("a position"),
        nodes_alive: alive,
        nodes_total: 2,
        speed: 1.0,
        capacity: Resources::new(MilliCpu(4000), MebiBytes(8192)),
        free: Resources::new(MilliCpu(3900), MebiBytes(8128)),
        slots: 512,
        busy: 3,
        gateways: vec![
            parse(&format!("127.0.{n}.1:8080")),
            parse(&format!("127.0.{n}.2:8080")),
        ],
    };
    vec![
        cluster("eu-west", 1, 53.35, -6.26, 2),
        cluster("us-east", 2, 39.04, -77.49, 1),
    ]
}

fn observed(phase: AppPhase, revision: u64) -> AppObserved {
    AppObserved {
        app: parse("hello"),
        revision: Revision(revision),
        phase,
        invocations: 42,
        errors: 1,
        execution_mean: Millis::new(1.5),
        instances: 0,
        degraded: None,
        versions: Vec::new(),
        stages: Vec::new(),
        figures: None,
        serves: None,
        phases: None,
        form: None,
    }
}

pub(crate) fn nodes() -> Vec<NodeInfo> {
    let node = |name: &str, k: u8, alive, seen, apps| NodeInfo {
        node: parse(name),
        cluster: parse("eu-west"),
        gateway: parse(&format!("127.0.1.{k}:8080")),
        admin: parse(&format!("127.0.1.{k}:8081")),
        version: "0.1.0".into(),
        alive,
        state: if alive {
            NodeState::Alive
        } else {
            NodeState::Lost
        },
        cordoned: !alive,
        seen_at: ago(seen),
        capacity: Resources::new(MilliCpu(2000), MebiBytes(4096)),
        free: Resources::new(MilliCpu(1900), MebiBytes(4032)),
        slots: 256,
        busy: 1,
        apps,
    };
    vec![
        node("eu-west-1", 1, true, 1, vec![observed(AppPhase::Ready, 7)]),
        node(
            "eu-west-2",
            2,
            false,
            61,
            vec![observed(AppPhase::Compiling, 7)],
        ),
    ]
}

/// A draining node, with a certificate.
pub(crate) fn node_detail() -> NodeDetail {
    let mut info = nodes().remove(0);
    (info.state, info.cordoned) = (NodeState::Draining, true);
    NodeDetail {
        status: Some(status(&info)),
        info,
        region: parse("eu"),
        enrolled_at: Some(ago(90_000)),
        certificate: Some(CertificateInfo {
            serial: "5f".repeat(16),
            issued_at: ago(90_000),
            expires_at: Timestamp(NOW.0 + 29 * 86_400_000),
        }),
    }
}

/// The status of that node.
fn status(info: &NodeInfo) -> NodeStatus {
    NodeStatus {
        node: info.node.clone(),
        cluster: info.cluster.clone(),
        region: parse("eu"),
        location: GeoPoint::new(53.35, -6.26).expect("a position"),
        gateway: info.gateway,
        admin: info.admin,
        boot: parse("msg_00000000000000000000000000000001"),
        sequence: 9,
        version: info.version.clone(),
        speed: 1.0,
        capacity: info.capacity,
        free: info.free,
        slots: info.slots,
        busy: info.busy,
        waiting: 2,
        queued_work: Millis::new(4.5),
        draining: true,
        stages: Some(StageCounts {
            local: 90,
            probe: 8,
            global: 2,
            refused: 1,
        }),
        apps: info.apps.clone(),
        devices: vec![DeviceStatus {
            id: parse("GPU-5d1c8b2e"),
            kind: DeviceKind::Gpu,
            model: "NVIDIA H200".to_owned(),
            parent: None,
            memory_mib: MebiBytes(144_384),
            bound_mib: MebiBytes(61_440),
            state: DeviceState::InService,
            slices: vec![
                SliceStatus {
                    instance: parse("ins_00000000000000000000000000000001"),
                    app: parse("hello"),
                    memory_mib: MebiBytes(40_960),
                    cores: None,
                },
                SliceStatus {
                    instance: parse("ins_00000000000000000000000000000002"),
                    app: parse("photo"),
                    memory_mib: MebiBytes(20_480),
                    cores: None,
                },
            ],
        }],
        stage_calls: None,
        controller_port: None,
        runtimes: None,
        weight: GatewayWeight::default(),
    }
}

/// The cluster of that node.
pub(crate) fn cluster_detail() -> ClusterDetail {
    let status = node_detail().status.expect("it said something");
    ClusterDetail {
        info: clusters().remove(0),
        nodes: nodes(),
        head: Some(HeadInfo {
            node: parse("eu-west-1"),
            epoch: 3,
            expires_at: Timestamp(NOW.0 + 9_000),
        }),
        waiting: 2,
        stages: status.stages,
        versions: [("0.1.0".to_owned(), 1)].into(),
        statuses: vec![status],
        links: vec![
            ClusterLink {
                cluster: parse("us-east"),
                rtt_ms: Millis::new(81.4),
                source: LatencySource::Measured,
            },
            ClusterLink {
                cluster: parse("ap-south"),
                rtt_ms: Millis::new(142.0),
                source: LatencySource::Located,
            },
        ],
    }
}

/// The data of `fdn top`: metrics of the last half minute, and points before and after it, which must be ignored.
pub(crate) fn responses() -> Responses {
    let point = |before_s: u64, calls, errors, p50, p99| FigurePoint {
        at: ago(before_s),
        calls,
        errors,
        cold_starts: 0,
        p50_ms: Some(Millis::new(p50)),
        p99_ms: Some(Millis::new(p99)),
    };
    let series = |key: &str, points: Vec<FigurePoint>| FigureSeries {
        key: key.to_owned(),
        sum: points[0].clone(),
        points,
    };
    let figures = |series: Vec<FigureSeries>| Figures {
        window: Window::Quarter,
        step_ms: 10_000,
        from: ago(900),
        to: Timestamp(NOW.0 + 4_000),
        series,
        more: false,
    };
    let busy = vec![
        point(40, 9_000, 9_000, 900.0, 9_000.0),
        point(30, 300, 0, 1.25, 8.0),
        point(10, 600, 9, 1.5, 12.5),
        point(0, 7_000, 7_000, 700.0, 7_000.0),
    ];
    Responses {
        clusters: vec![cluster_detail()],
        by_cluster: Some(figures(vec![series("eu-west", busy.clone())])),
        apps: vec![summary("hello"), summary("thumbnails"), summary("quiet")],
        by_app: Some(figures(vec![
            series("thumbnails", busy),
            series("hello", vec![point(20, 3, 0, 20.0, 81.4)]),
        ])),
    }
}

/// Join tokens in every state.
pub(crate) fn join_tokens() -> Vec<JoinTokenInfo> {
    let token = |n: u8, uses_left, ends: u64, revoked_at| JoinTokenInfo {
        role: fdn_core::enrol::Role::Node,
        id: parse(&format!("jtk_{n:032}")),
        cluster: parse("eu-west"),
        region: parse("eu"),
        uses: 2,
        uses_left,
        created_at: ago(600),
        created_by: "admin".into(),
        expires_at: Timestamp(ends),
        revoked_at,
    };
    let later = NOW.0 + 3_000_000;
    vec![
        token(1, 1, later, None),
        token(2, 0, later, None),
        token(3, 2, NOW.0, None),
        token(4, 2, later, Some(ago(5))),
    ]
}

pub(crate) fn detail(name: &str) -> AppDetail {
    let manifest = "memory = \"32MiB\"\nsecrets = [\"KEY\"]\nallowed_hosts = [\"api.example.com\"]\n[env]\nGREETING = \"hi\"\n";
    let manifest = Manifest::from_toml(manifest, &ManifestBounds::default()).expect("a manifest");
    let entry = |n: u32, seconds, size, manifest| VersionInfo {
        version: version(n),
        digest: Digest::of(&n.to_be_bytes()),
        size,
        created_at: ago(seconds),
        manifest,
        bad: None,
        labels: labels(&[("commit", "4c1f2aa")]),
        validation: vec![
            step(
                "signature",
                "by key release (ecdsa-p256, 4c1f2aa07b55)",
                0.4,
            ),
            step("size", "48.0 KiB", 0.1),
        ],
        forms: Vec::new(),
    };
    let progress = |node: &str, observed| NodeProgress {
        node: parse(node),
        cluster: parse("eu-west"),
        observed,
    };
    let failed = AppPhase::Failed {
        reason: "the disk is full".into(),
    };
    AppDetail {
        summary: summary(name),
        workflow: Workflow::single(parse(name), version(2)),
        versions: vec![
            entry(2, 7800, 86_118, manifest),
            entry(1, 90_000, 12_000_000, Manifest::default()),
        ],
        traffic: fdn_core::policy::Traffic::default(),
        rollout: None,
        domains: std::collections::BTreeSet::new(),
        bindings: vec![BindingInfo {
            prefix: parse("203.0.113.0/24"),
            cluster: parse("ap-south"),
            revision: Revision(6),
        }],
        nodes: vec![
            progress("eu-west-1", Some(observed(AppPhase::Ready, 7))),
            progress("eu-west-2", Some(observed(failed, 6))),
            progress("us-east-1", None),
        ],
        forms: Default::default(),
    }
}

/// An app with all nodes ready at a revision.
pub(crate) fn ready(name: &str, revision: u64) -> AppDetail {
    let mut detail = detail(name);
    detail.summary.revision = Revision(revision);
    detail.summary.nodes_ready = 3;
    for node in &mut detail.nodes {
        node.observed = Some(observed(AppPhase::Ready, revision));
    }
    detail
}

pub(crate) fn deployed(name: &str) -> DeployResponse {
    let step = |step: &str, result: &str, ms| ValidationStep {
        step: step.into(),
        result: result.into(),
        took: Millis::new(ms),
    };
    DeployResponse {
        app: parse(name),
        version: version(3),
        digest: Digest::of(b"x"),
        size: 86_118,
        host: parse(&format!("{name}.fn.test")),
        revision: Revision(9),
        unchanged: false,
        validation: vec![
            step("size", "84.0 KiB of 64 MiB", 0.01),
            step("format", "a component", 1.2),
            step("probe", "status 200", 3.25),
        ],
    }
}

pub(crate) fn lookup() -> DnsLookup {
    let distance = |name: &str, rtt: f64, live: u32| ClusterDistance {
        cluster: parse(name),
        rtt_ms: Millis::new(rtt),
        source: LatencySource::Located,
        gateways_live: Some(live),
        gateways: Some(2),
    };
    DnsLookup {
        name: parse("hello.fn.test"),
        app: parse("hello"),
        client: parse("203.0.113.7"),
        kind: AddressKind::A,
        addresses: vec![parse("127.0.3.1"), parse("127.0.3.2")],
        ttl_s: 20,
        scope: 24,
        cluster: Some(parse("ap-south")),
        why: SteerReason::Bound,
        reason: "its prefix is bound there".into(),
        matched: Some(parse("203.0.113.0/24")),
        bound: Some(parse("ap-south")),
        revision: Some(Revision(6)),
        clusters: vec![distance("ap-south", 60.0, 2), distance("eu-west", 165.5, 0)],
    }
}

/// The answer of a DNS server on the wire.
pub(crate) fn dns_answer() -> ServerAnswer {
    ServerAnswer {
        name: parse("hello.fn.test"),
        client: parse("203.0.113.7"),
        server: parse("127.0.0.1:5300"),
        addresses: vec![parse("127.0.3.2"), parse("127.0.3.1")],
        ttl: Some(20),
        scope: Some(24),
        revision: Some(Revision(6)),
    }
}

/// The explanation by a DNS server: one gateway is dead, and so is one cluster.
pub(crate) fn server_says() -> AnswerExplanation {
    let seen = |name: &str, rtt: f64, live: &[&str], all: &[&str]| admin::Candidate {
        cluster: parse(name),
        latency: Some(LatencyEstimate {
            rtt: Millis::new(rtt),
            source: LatencySource::Located,
        }),
        live: live.iter().map(|one| parse(one)).collect(),
        weights: live.iter().map(|_| 250).collect(),
        all: all.iter().map(|one| parse(one)).collect(),
    };
    let south = ["127.0.3.1", "127.0.3.2"];
    AnswerExplanation {
        name: parse("hello.fn.test"),
        client: parse("203.0.113.7"),
        result: Outcome::Answer,
        addresses: vec![parse("127.0.3.2")],
        ttl: Some(20),
        scope: 24,
        steering: Some(Steering {
            app: parse("hello"),
            revision: Revision(6),
            reason: Reason::Bound,
            chosen: Some(parse("ap-south")),
            bound: Some(parse("ap-south")),
            matched: 24,
            clusters: vec![
                seen("ap-south", 60.0, &south[1..], &south),
                seen("eu-west", 165.5, &[], &["127.0.1.1"]),
            ],
        }),
    }
}

pub(crate) fn bindings() -> Vec<BindingDetail> {
    let binding = |prefix: &str, queries: Option<u64>| BindingDetail {
        prefix: parse(prefix),
        cluster: parse("ap-south"),
        group: "ap-south=30".into(),
        revision: Revision(6),
        location: None,
        queries,
        last_seen: queries.map(|_| ago(90)),
    };
    vec![
        binding("203.0.113.0/24", Some(12)),
        binding("2001:db8:40::/48", None),
    ]
}

/// Text records of an app and of the network itself.
pub(crate) fn txt() -> Vec<TxtInfo> {
    let acme = TxtInfo {
        name: parse("_acme-challenge.hello.fn.test"),
        values: vec!["LHDhK3oG".into(), "-9aU3TlB".into()],
        ttl: DurationMs::from_secs(60),
        app: Some(parse("hello")),
        revision: Revision(7),
        updated_at: ago(90),
        updated_by: "ann".into(),
        expires_at: Some(Timestamp(NOW.0 + 3_510_000)),
    };
    let own = TxtInfo {
        name: parse("fn.test"),
        values: vec!["v=spf1 -all".into()],
        ttl: DurationMs::from_secs(3600),
        app: None,
        expires_at: None,
        ..acme.clone()
    };
    vec![acme, own]
}
