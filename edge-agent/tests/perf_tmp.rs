#![allow(warnings)]
#[path = "it/support/mod.rs"]
mod support;
use support::*;
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
#[tokio::test]
async fn serve() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let m = fdn_core::manifest::Manifest::default();
    let wasm = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../functions/hello/hello.wasm")).unwrap();
    network.deploy("fresh", 1, &wasm, m.clone()).await;
    network.deploy("reuse", 1, &wasm, fdn_core::manifest::Manifest{reuse: 1000, ..m.clone()}).await;
    
    for a in ["fresh","reuse"] { println!("{}", network.text(&agent, a).await); }
    println!("ADDR {}", agent.gateway_address());
    tokio::time::sleep(std::time::Duration::from_secs(std::env::var("SECS").unwrap().parse().unwrap())).await;
}
