//! What a container can reach, tried from inside one in each network mode: nothing of this node, of private networks and of cloud metadata
//! services, however the address is written; and modes in which it could are refused unless the operator trusts every function.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fdn_instances::docker::Network;
use fdn_instances::{Outbound, RuntimeError, StartError};

use super::Engine;
use crate::subject::{Program, Running, Subject, ask, owner, spec};

/// A server on all addresses of this machine that counts its connections.
struct Server {
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let came = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&came);
        // Ends with the process, like the test programs' own threads.
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stream.is_ok() {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { port, came }
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }
}

/// 127.0.0.1 in the spellings that evade address filters.
const LOOPBACK: [&str; 7] = [
    "127.0.0.1",
    "[::ffff:127.0.0.1]",
    "2130706433",
    "0177.0.0.1",
    "0x7f000001",
    "127.1",
    "0.0.0.0",
];

/// Cloud metadata services, private networks, a public address, and names: of the machine itself, of a cloud, and one for which anybody's DNS
/// may answer whatever it likes, and differently the next time.
const ELSEWHERE: [&str; 11] = [
    "169.254.169.254:80",
    "2852039166:80",
    "0251.0376.0251.0376:80",
    "[::ffff:169.254.169.254]:80",
    "[fd00:ec2::254]:80",
    "10.0.0.1:80",
    "172.17.0.1:80",
    "192.168.0.1:80",
    "192.0.2.1:80",
    "metadata.google.internal:80",
    "rebind.example.com:80",
];

/// The address from which this machine would send packets out, if it has one: nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// From inside a container without a network: each address of the list twice, as a redirect or a changing DNS answer would have it
/// connect to one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_network_nothing_is_reached_however_it_is_written() {
    let engine = Engine::with(Network::Isolated).await;
    let server = Server::start();
    let own = own_address();
    let here = LOOPBACK.iter().map(|host| (*host).to_owned());
    let here = here.chain(["localhost".to_owned(), "[::1]".to_owned()]);
    let here = here.chain(own.map(|address| address.to_string()));
    let mut all: Vec<String> = here.map(|host| format!("{host}:{}", server.port)).collect();
    all.extend(ELSEWHERE.map(str::to_owned));
    for address in [Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), own] {
        let Some(address) = address else { continue };
        TcpStream::connect((address, server.port)).expect("whoever is on this machine reaches it");
    }
    let before = fdn_testkit::wait::until("the server to count", async || match server.came() {
        0 => Err("nobody"),
        came if came < 1 + usize::from(own.is_some()) => Err("not all"),
        came => Ok(came),
    })
    .await;
    let running = Running::start(&engine, Program::Hello).await;
    for round in 0..2 {
        for to in &all {
            let answer = ask(&*running.instance, &format!("/connect/{to}")).await;
            let refused = ["refused", "unreachable", "assign", "no address"];
            assert!(
                refused.iter().any(|how| answer.contains(how)),
                "{to}, round {round}: {answer}"
            );
        }
    }
    assert_eq!(server.came(), before, "nobody came from inside");
    let routes = ask(&*running.instance, "/read/proc/net/route").await;
    assert_eq!(routes.lines().count(), 1, "only the heading: {routes}");
    running.end().await;
}

/// Shows that the list would detect access: on the node's own network, each spelling of the loopback leads to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_nodes_network_which_takes_trust_the_same_list_reaches_the_node() {
    let engine = Engine::with(Network::Host).await;
    let server = Server::start();
    let running = Running::start(&engine, Program::Hello).await;
    for host in LOOPBACK {
        let to = format!("/connect/{host}:{}", server.port);
        assert_eq!(ask(&*running.instance, &to).await, "connected", "{host}");
    }
    running.end().await;
}

/// The other two modes, for an operator who has not said that all functions are trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_on_which_this_node_is_reached_are_refused_unless_functions_are_trusted() {
    for network in [Network::Bridge, Network::Host] {
        let engine = Engine::with(network).await;
        let refused = engine.refused_without_trust().await;
        assert!(matches!(refused, RuntimeError::Unusable { .. }));
        assert!(refused.to_string().contains("trusted = true"), "{refused}");
    }
}

/// A container that an agent left on a network of the node, whose operator no longer trusts its functions, is ended and not adopted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_left_on_a_network_is_ended_when_it_is_not_trusted_any_more() {
    for network in [Network::Bridge, Network::Host] {
        let owner = owner();
        let trusting = Engine::with(network).await;
        let runtime = trusting.runtime(owner.clone()).await;
        let image = trusting.image(Program::Hello);
        let left = runtime.start(spec(image, Program::Hello)).await;
        let left = left.expect("the instance starts").id();
        drop(runtime);
        let isolated = Engine::with(Network::Isolated).await;
        let runtime = isolated.runtime(owner.clone()).await;
        let adopted = runtime.adopt().await.expect("the engine answers");
        assert!(adopted.is_empty(), "{network:?}");
        let collected = runtime.collect().await.expect("the engine answers");
        assert!(collected.removed.contains(&left), "{collected:?}");
        assert_eq!(isolated.leftovers(&owner).await, 0);
    }
}

/// A container with outbound access cannot be started in any mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_with_a_way_out_is_refused_in_every_mode() {
    for network in [Network::Isolated, Network::Bridge, Network::Host] {
        let engine = Engine::with(network).await;
        let runtime = engine.runtime(owner()).await;
        let mut spec = spec(engine.image(Program::Hello), Program::Hello);
        spec.outbound = Outbound::Open;
        let error = runtime.start(spec).await.expect_err("it cannot be kept");
        assert!(matches!(error, StartError::Unsupported { .. }), "{error}");
    }
}
