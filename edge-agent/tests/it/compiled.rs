//! Machine code from the controller: used if an authority of the network has signed it; otherwise the component is compiled here.

use fdn_core::compiled::{CompiledHead, EngineKey};
use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_core::{Digest, Revision, Timestamp};
use fdn_edge_agent::Agent;
use fdn_runtime::{Engine, EngineOptions, compile_in_process};
use fdn_service::pki::Authority;
use fdn_testkit::{components, wait};

use crate::support::Network;

const APP: &str = "hello";
const YEAR_MS: u64 = 365 * 24 * 3_600_000;

/// A component, its machine code, and the network's signer.
struct Case {
    network: Network,
    agent: Agent,
    authority: Authority,
    component: Vec<u8>,
    engine: EngineKey,
    code: Vec<u8>,
}

fn authority() -> Authority {
    let now = fdn_service::now();
    Authority::create(now, Timestamp(now.get() + YEAR_MS)).expect("an authority")
}

impl Case {
    async fn start() -> Self {
        let network = Network::start().await;
        let authority = authority();
        network.controller.set_fleet(FleetDesired {
            revision: Revision(1),
            authorities: vec![authority.certificate().to_owned()],
            ..FleetDesired::default()
        });
        let agent = network.agent(network.settings("eu-west-1")).await;
        let known = network.folder.path().join("eu-west-1/state/fleet.json");
        wait::until("the agent to know the authority", async || {
            let text = std::fs::read_to_string(&known).map_err(|error| error.to_string())?;
            // In the JSON form of the certificate, line breaks are escaped.
            let first = authority.certificate().lines().nth(1).expect("a line");
            if text.contains(first) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        let component = components::hello("hi there");
        let folder = network.folder.path();
        let (wasm, native) = (folder.join("hello.wasm"), folder.join("hello.cwasm"));
        std::fs::write(&wasm, &component).expect("written");
        compile_in_process(&wasm, &native).expect("compiled");
        let engine = Engine::new(EngineOptions {
            max_instances: 1,
            ..EngineOptions::default()
        });
        Self {
            engine: engine
                .expect("an engine")
                .compatibility_key()
                .parse()
                .expect("a name"),
            code: std::fs::read(&native).expect("read"),
            network,
            agent,
            authority,
            component,
        }
    }

    fn head(&self) -> CompiledHead {
        self.signed_by(&self.authority, Digest::of(&self.code), self.code.len())
    }

    fn signed_by(&self, authority: &Authority, code: Digest, size: usize) -> CompiledHead {
        let (component, size) = (Digest::of(&self.component), size as u64);
        let text = CompiledHead::signed_text(&component, &self.engine, &code, size);
        CompiledHead {
            component,
            engine: self.engine.clone(),
            code,
            size,
            signature: authority.sign(&text).expect("signed"),
        }
    }

    /// Has the controller answer with this head and this code.
    fn offer(&self, head: &CompiledHead, code: &[u8]) {
        let mut bytes = serde_json::to_vec(head).expect("encoded");
        bytes.push(b'\n');
        bytes.extend_from_slice(code);
        self.network
            .controller
            .offer_compiled(&self.component, self.engine.as_str(), bytes);
    }

    /// Deploys and calls; returns what became of the offered machine code, and how often the node compiled.
    async fn deployed(self, what: &str, result: &str) -> (f64, f64) {
        let revision = self
            .network
            .deploy(APP, 1, &self.component, Manifest::default())
            .await;
        self.network
            .until_phase(APP, revision, |phase| *phase == AppPhase::Ready)
            .await;
        assert_eq!(
            self.network.text(&self.agent, APP).await,
            "hi there",
            "{what}"
        );
        let metric = async |line: &str| self.network.metric(&self.agent, line).await.unwrap_or(0.0);
        let line =
            format!("fdn_agent_compiled_taken_total{{node=\"eu-west-1\",result=\"{result}\"}}");
        let told = metric(&line).await;
        let compiled = metric("fdn_agent_compiles_total").await;
        let folder = self.network.folder.path().join("eu-west-1/cache/compiled");
        let left = std::fs::read_dir(folder).expect("a folder").count();
        assert_eq!(left, 2, "{what}: the machine code and its checksum");
        self.agent.stop().await;
        (told, compiled)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_machine_code_is_taken_instead_of_compiling() {
    let case = Case::start().await;
    case.offer(&case.head(), &case.code);
    assert_eq!(case.deployed("signed", "taken").await, (1.0, 0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_controller_has_none_the_component_is_compiled() {
    let case = Case::start().await;
    assert_eq!(case.deployed("absent", "absent").await, (1.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_code_that_nobody_vouches_for_is_never_loaded() {
    for what in [
        "another authority's signature",
        "another text's signature",
        "changed code",
        "code that is longer than signed",
        "code that is shorter than signed",
        "no head",
        "a head without an end",
        "another component's code",
    ] {
        let case = Case::start().await;
        let code = case.code.clone();
        let (mut head, mut sent) = (case.head(), code.clone());
        match what {
            "another authority's signature" => {
                head = case.signed_by(&authority(), Digest::of(&code), code.len());
            }
            "another text's signature" => {
                head.signature = case.authority.sign("fdn compiled v1\n").expect("signed");
            }
            "changed code" => sent[code.len() / 2] ^= 1,
            "code that is longer than signed" => sent.push(0),
            "code that is shorter than signed" => drop(sent.pop()),
            "another component's code" => head.component = Digest::of(b"another"),
            _ => {}
        }
        match what {
            "no head" => case.network.controller.offer_compiled(
                &case.component,
                case.engine.as_str(),
                code.clone(),
            ),
            "a head without an end" => case.network.controller.offer_compiled(
                &case.component,
                case.engine.as_str(),
                vec![b'{'; 1 << 20],
            ),
            _ => case.offer(&head, &sent),
        }
        assert_eq!(
            case.deployed(what, "distrusted").await,
            (1.0, 1.0),
            "{what}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_next_version_only_what_is_new_is_compiled_here() {
    const ENGINE: u32 = 1000;
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let functions = async |result: &str| {
        let name = "fdn_agent_compile_cache_functions_total";
        let line = format!("{name}{{node=\"eu-west-1\",result=\"{result}\"}}");
        network.metric(&agent, &line).await.unwrap_or(0.0)
    };
    let deploy = async |version: u32, text: &str| {
        let component = components::with_engine(ENGINE, text);
        let manifest = Manifest::default();
        network.deploy(APP, version, &component, manifest).await;
        network.until_text(&agent, APP, text).await;
    };
    deploy(1, "v1").await;
    let first = functions("miss").await;
    let all = f64::from(ENGINE);
    assert!(first >= all, "{first}");
    deploy(2, "v2").await;
    let (hits, misses) = (functions("hit").await, functions("miss").await - first);
    // A few have another key, depending on what a thread compiled before them (ADR 0027).
    assert!(hits >= all && misses < all / 5.0, "{hits} and {misses}");
    let bytes = network
        .metric(&agent, "fdn_agent_compile_cache_bytes")
        .await;
    assert!(bytes.is_some_and(|bytes| bytes > 0.0), "{bytes:?}");
    agent.stop().await;
}
