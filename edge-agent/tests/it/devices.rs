//! GPU devices of an agent: in its status and metrics, from the settings.

use fdn_core::device::{DeviceKind, bar};
use fdn_core::{ByteSize, MebiBytes};

use crate::support::Network;

#[tokio::test(flavor = "multi_thread")]
async fn simulated_devices_are_in_the_status_and_the_metrics() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.devices.simulated.count = 2;
    settings.devices.simulated.memory = ByteSize::from_mib(24 << 10);
    settings.devices.simulated.model = "NVIDIA L4".to_owned();
    let agent = network.agent(settings).await;
    let status = network
        .until_status(|status| !status.devices.is_empty())
        .await;
    assert_eq!(status.devices.len(), 2);
    assert_eq!(status.devices[0].kind, DeviceKind::Simulated);
    assert_eq!(status.capacity.gpu_memory_mib, MebiBytes(48 << 10));
    assert_eq!(status.free.gpu_memory_mib, MebiBytes(48 << 10));
    assert_eq!(bar(&status.devices[0], 8), "[········] 0/24 GiB");
    let line =
        "fdn_agent_device_memory_bytes{device=\"SIM-0\",model=\"NVIDIA L4\",node=\"eu-west-1\"}";
    let memory = network.metric(&agent, line).await.expect("shown");
    assert!((memory - f64::from(24 << 10) * f64::from(1 << 20)).abs() < 1.0);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_devices_says_so() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let status = network.until_status(|_| true).await;
    assert!(status.devices.is_empty());
    assert_eq!(status.capacity.gpu_memory_mib, MebiBytes(0));
    agent.stop().await;
}
