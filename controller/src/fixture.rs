//! Test fixtures for unit tests.

use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
use fdn_core::{GeoPoint, MebiBytes, MessageId, MilliCpu, Millis, Resources, Revision};

/// An idle node of speed 1 with 4 slots in a cluster whose region has the same name.
pub(crate) fn status(node: &str, cluster: &str) -> NodeStatus {
    let room = Resources::new(MilliCpu(4000), MebiBytes(4096));
    NodeStatus {
        node: node.parse().expect("node"),
        cluster: cluster.parse().expect("cluster"),
        region: cluster.parse().expect("region"),
        location: GeoPoint::new(0.0, 0.0).expect("position"),
        gateway: "127.0.1.1:8080".parse().expect("address"),
        admin: "127.0.1.1:8081".parse().expect("address"),
        boot: MessageId::from_uuid(uuid::Uuid::from_u128(1)),
        sequence: 1,
        version: "0.1.0".to_owned(),
        speed: 1.0,
        capacity: room,
        free: room,
        slots: 4,
        busy: 0,
        waiting: 0,
        queued_work: Millis::ZERO,
        draining: false,
        stages: None,
        apps: Vec::new(),
        devices: Vec::new(),
        stage_calls: None,
        controller_port: None,
        runtimes: None,
        weight: fdn_core::GatewayWeight::default(),
    }
}

/// A ready app without any measurements.
pub(crate) fn observed(app: &str) -> AppObserved {
    AppObserved {
        app: app.parse().expect("app"),
        revision: Revision(1),
        phase: AppPhase::Ready,
        invocations: 0,
        errors: 0,
        execution_mean: Millis::ZERO,
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
