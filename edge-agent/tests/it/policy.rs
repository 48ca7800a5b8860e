//! Policies of apps at the gateway, over real sockets.

use fdn_core::job::JobPass;
use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_core::policy::quota::{AppQuotaUsage, QuotaUsage, Window};
use fdn_core::policy::{ApiKey, GatewaySpec, key};
use fdn_core::{Digest, DurationMs, ErrorCode, JobId, KeyId};
use fdn_edge_agent::Agent;
use fdn_testkit::{components, wait};
use reqwest::{Method, Response, StatusCode};

use crate::support::{Network, host, problem};

fn spec(policy: &str) -> GatewaySpec {
    let policy: fdn_core::policy::Policy = toml::from_str(policy).expect(policy);
    policy.check().expect("a valid policy");
    GatewaySpec {
        policy,
        ..GatewaySpec::default()
    }
}

/// A key with this id, and its text.
fn caller(n: u128) -> (ApiKey, String) {
    let id = KeyId::from_uuid(uuid::Uuid::from_u128(n));
    let text = key::text(id, "a-secret");
    let key = ApiKey {
        id,
        name: format!("caller-{n}").parse().expect("name"),
        hash: Digest::of(text.as_bytes()),
        expires_at: None,
    };
    (key, text)
}

async fn network(spec: GatewaySpec) -> (Network, Agent) {
    let network = Network::start().await;
    let agent = Box::pin(network.agent(network.settings("eu-west-1"))).await;
    let hello = components::hello("hi");
    network
        .deploy("hello", 1, &hello, Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    network.regulate("hello", spec).await;
    (network, agent)
}

async fn refused(answer: Response, status: StatusCode, code: ErrorCode) {
    assert_eq!(answer.status(), status);
    assert_eq!(problem(answer).await.code, code);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lets_in_until_it_is_taken_back() {
    let (one, text) = caller(1);
    let mut wanted = spec("authentication.kind = \"api_key\"");
    wanted.keys.push(one);
    let (network, agent) = network(wanted.clone()).await;
    let get = || network.get(&agent, "hello", "/");

    let answer = get().send().await.expect("an answer");
    assert_eq!(
        answer.headers()["www-authenticate"],
        "Bearer realm=\"hello\""
    );
    refused(
        answer,
        StatusCode::UNAUTHORIZED,
        ErrorCode::CredentialsMissing,
    )
    .await;
    let wrong = get().header("x-api-key", format!("{text}x"));
    let answer = wrong.send().await.expect("an answer");
    assert_eq!(
        answer.headers()["www-authenticate"],
        "Bearer realm=\"hello\", error=\"invalid_token\""
    );
    refused(
        answer,
        StatusCode::UNAUTHORIZED,
        ErrorCode::CredentialsInvalid,
    )
    .await;
    // Two keys at once are ambiguous.
    let two = get().header("x-api-key", &text).header("x-api-key", &text);
    let answer = two.send().await.expect("an answer");
    refused(
        answer,
        StatusCode::UNAUTHORIZED,
        ErrorCode::CredentialsMissing,
    )
    .await;
    for good in [get().header("x-api-key", &text), get().bearer_auth(&text)] {
        assert_eq!(
            good.send().await.expect("an answer").status(),
            StatusCode::OK
        );
    }
    let line = "fdn_agent_policy_refused_total{app=\"hello\",node=\"eu-west-1\",reason=\"bad_credentials\"}";
    assert_eq!(network.metric(&agent, line).await, Some(1.0));

    wanted.keys.clear();
    network.regulate("hello", wanted).await;
    let answer = get().bearer_auth(&text).send().await.expect("an answer");
    refused(
        answer,
        StatusCode::UNAUTHORIZED,
        ErrorCode::CredentialsInvalid,
    )
    .await;
    // Without a policy anybody may call again, and the counters are gone.
    network.regulate("hello", GatewaySpec::default()).await;
    assert_eq!(network.text(&agent, "hello").await, "hi");
    assert_eq!(network.metric(&agent, line).await, None);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_does_not_wait_for_a_version_that_cannot_be_made_ready() {
    let (network, agent) = network(GatewaySpec::default()).await;
    // Version 2 cannot be fetched; the policy that comes with it applies to version 1 at once.
    let gone = components::hello("never");
    let mut desired = network.desired("hello", 2, &gone, Manifest::default(), true);
    if let Some(wanted) = &mut desired.spec {
        *wanted.gateway = spec("addresses.deny = [\"127.0.0.0/8\"]");
    }
    network.demand(desired).await;
    let answer = network.get(&agent, "hello", "/").send().await;
    let answer = answer.expect("an answer");
    refused(answer, StatusCode::FORBIDDEN, ErrorCode::AddressRefused).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_and_bodies_are_bounded() {
    let (network, agent) = network(spec(
        "body_limit = \"10B\"\nrate.client = { requests = 1, per = \"1h\", burst = 2 }",
    ))
    .await;
    let get = || network.get(&agent, "hello", "/");
    let answer = get().send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["ratelimit"], "\"client\";r=1;t=3600");
    assert_eq!(
        answer.headers()["ratelimit-policy"],
        "\"client\";q=1;w=3600"
    );
    let large = network.post(&agent, "hello", "/").body("x".repeat(11));
    let answer = large.send().await.expect("an answer");
    refused(
        answer,
        StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::BodyTooLarge,
    )
    .await;
    let answer = get().send().await.expect("an answer");
    let wait: u64 = answer.headers()["retry-after"]
        .to_str()
        .expect("text")
        .parse()
        .expect("seconds");
    assert!((1..=3600).contains(&wait), "{wait}");
    assert!(
        answer.headers()["ratelimit"]
            .to_str()
            .expect("text")
            .starts_with("\"client\";r=0;t=")
    );
    refused(
        answer,
        StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::RateLimited,
    )
    .await;
    // A changed policy starts counting from zero.
    network
        .regulate("hello", spec("rate.app = { requests = 1, per = \"1h\" }"))
        .await;
    assert_eq!(
        get().send().await.expect("an answer").status(),
        StatusCode::OK
    );
    let answer = get().send().await.expect("an answer");
    refused(
        answer,
        StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::RateLimited,
    )
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_of_clients_is_bounded() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.policy.clients = 16;
    let agent = network.agent(settings).await;
    let hello = components::hello("hi");
    network
        .deploy("hello", 1, &hello, Manifest::default())
        .await;
    let mut wanted = spec(
        "authentication.kind = \"api_key\"\nrate.client = { requests = 1, per = \"1h\", burst = 1 }",
    );
    let callers: Vec<_> = (0..60).map(caller).collect();
    wanted.keys = callers.iter().map(|(key, _)| key.clone()).collect();
    network.regulate("hello", wanted).await;
    let mut admitted = 0;
    for (_, text) in &callers {
        let call = network.get(&agent, "hello", "/").bearer_auth(text);
        match call.send().await.expect("an answer").status() {
            StatusCode::OK => admitted += 1,
            status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
        }
    }
    let of = |name: &str| format!("fdn_agent_policy_{name}{{app=\"hello\",node=\"eu-west-1\"}}");
    let known = network
        .metric(&agent, &of("clients"))
        .await
        .expect("a gauge");
    let overflow = network.metric(&agent, &of("clients_overflow_total")).await;
    assert!((1.0..=16.0).contains(&known), "{known}");
    // Each tracked client had one call, and all the others together had one.
    assert_eq!(f64::from(admitted), known + 1.0);
    assert_eq!(overflow, Some(60.0 - known));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_listed_origins_may_call_and_answers_carry_headers() {
    let (network, agent) = network(spec(
        r#"
        cors = { origins = ["https://a.example"], methods = ["PUT"], credentials = true }
        authentication.kind = "api_key"
        security_headers = { nosniff = true, frame_options = "deny" }
        "#,
    ))
    .await;
    let ask = |origin: &'static str| {
        let url = format!("http://{}/", agent.gateway_address());
        let asked = network.client.request(Method::OPTIONS, url);
        let asked = asked.header("host", host("hello")).header("origin", origin);
        asked.header("access-control-request-method", "PUT").send()
    };
    // A preflight has no credentials and needs none.
    let answer = ask("https://a.example").await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    let headers = answer.headers();
    assert_eq!(headers["access-control-allow-origin"], "https://a.example");
    assert_eq!(headers["access-control-allow-methods"], "PUT");
    assert_eq!(headers["access-control-allow-credentials"], "true");
    assert_eq!(headers["access-control-max-age"], "600");
    let answer = ask("https://b.example").await.expect("an answer");
    refused(answer, StatusCode::FORBIDDEN, ErrorCode::OriginRefused).await;
    // The page may read why its call was refused.
    let call = network
        .get(&agent, "hello", "/")
        .header("origin", "https://a.example");
    let answer = call.send().await.expect("an answer");
    assert_eq!(
        answer.headers()["access-control-allow-origin"],
        "https://a.example"
    );
    assert_eq!(answer.headers()["vary"], "origin");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    refused(
        answer,
        StatusCode::UNAUTHORIZED,
        ErrorCode::CredentialsMissing,
    )
    .await;
    // A response of the function gets the headers as well.
    network
        .regulate(
            "hello",
            spec("security_headers = { nosniff = true, frame_options = \"deny\" }"),
        )
        .await;
    let answer = network.get(&agent, "hello", "/").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()["x-frame-options"], "DENY");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_may_read_that_an_app_is_not_ready() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.admission.held = 0;
    let agent = network.agent(settings).await;
    network.controller.stall(true);
    let hello = components::hello("late");
    let deployed = network.deploy("hello", 1, &hello, Manifest::default());
    let revision = deployed.await;
    network
        .until_phase("hello", revision, |phase| *phase == AppPhase::Fetching)
        .await;
    let cors = spec(r#"cors = { origins = ["https://a.example"], methods = ["PUT"] }"#);
    network.regulate("hello", cors).await;
    wait::until("the policy to apply", async || {
        let call = network.get(&agent, "hello", "/");
        let answer = call.header("origin", "https://a.example").send().await;
        let answer = answer.expect("an answer");
        let headers = answer.headers().clone();
        assert_eq!(problem(answer).await.code, ErrorCode::NotReady);
        match headers.get("access-control-allow-origin") {
            Some(origin) if origin == "https://a.example" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    network.controller.stall(false);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_counted_with_the_other_nodes_and_kept_over_a_restart() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.policy.quota_save = DurationMs::from_millis(100);
    let agent = network.agent(settings.clone()).await;
    let hello = components::hello("hi");
    network
        .deploy("hello", 1, &hello, Manifest::default())
        .await;
    network
        .regulate("hello", spec("quota.per_month = 1000"))
        .await;
    // The controller's count: all nodes together have admitted 998 calls.
    network.controller.set_used(vec![AppQuotaUsage {
        app: "hello".parse().expect("app"),
        used: QuotaUsage {
            window: Window::at(fdn_service::now()),
            day: 10,
            month: 998,
        },
    }]);
    wait::until("the quota to be known", async || {
        let answer = network.get(&agent, "hello", "/").send().await;
        let headers = answer.expect("an answer").headers().clone();
        let left = headers["ratelimit"].to_str().expect("text").to_owned();
        if left.starts_with("\"quota\";r=1;") || left.starts_with("\"quota\";r=0;") {
            Ok(())
        } else {
            Err(left)
        }
    })
    .await;
    // From now on the node counts alone.
    network.controller.kill().await;
    wait::until("the quota to be used up", async || {
        let answer = network.get(&agent, "hello", "/").send().await;
        match answer.expect("an answer").status() {
            StatusCode::TOO_MANY_REQUESTS => Ok(()),
            status => Err(status),
        }
    })
    .await;
    agent.stop().await;
    let agent = network.agent(settings).await;
    let answer = network.get(&agent, "hello", "/").send().await;
    let answer = answer.expect("an answer");
    assert!(answer.headers().contains_key("retry-after"));
    refused(
        answer,
        StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::QuotaUsedUp,
    )
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_run_are_bounded() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let slow = components::sleeping(1500);
    network.deploy("hello", 1, &slow, Manifest::default()).await;
    network.until_text(&agent, "hello", "awake").await;
    network.regulate("hello", spec("concurrency = 1")).await;
    let first = tokio::spawn(network.get(&agent, "hello", "/").send());
    wait::until("the first call to run", async || {
        match network.metric(&agent, "fdn_agent_calls_busy").await {
            Some(1.0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let answer = network.get(&agent, "hello", "/").send().await;
    let answer = answer.expect("an answer");
    refused(
        answer,
        StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::TooManyAtOnce,
    )
    .await;
    let first = first.await.expect("it ends").expect("an answer");
    assert_eq!(first.status(), StatusCode::OK);
    drop(first.bytes().await);
    wait::until("its place to be free", async || {
        let answer = network.get(&agent, "hello", "/").send().await;
        match answer.expect("an answer").status() {
            StatusCode::OK => Ok(()),
            status => Err(status),
        }
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_a_controller_sends_is_let_past_the_policy() {
    let (network, agent) = network(spec("authentication.kind = \"api_key\"")).await;
    let pass = JobPass {
        job: JobId::from_uuid(uuid::Uuid::from_u128(9)),
        attempt: 1,
    }
    .to_string();
    let ask = || {
        network
            .ask(&agent, "/")
            .header("fdn-call-host", host("hello"))
    };
    let call = || ask().header("x-fdn-job", &pass);
    let answer = call().send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.text().await.expect("text"), "hi");
    for judged in [
        // Not a job, although a controller sends it.
        ask(),
        ask().header("x-fdn-job", "x"),
        // Clients are not controllers.
        network.get(&agent, "hello", "/").header("x-fdn-job", &pass),
    ] {
        let answer = judged.send().await.expect("an answer");
        refused(
            answer,
            StatusCode::UNAUTHORIZED,
            ErrorCode::CredentialsMissing,
        )
        .await;
    }
    // Jobs of a suspended owner wait too: they must be tried again later.
    let suspended = GatewaySpec {
        suspended: true,
        ..spec("authentication.kind = \"api_key\"")
    };
    network.regulate("hello", suspended).await;
    let answer = wait::until("the job to be refused", async || {
        let answer = call().send().await.expect("an answer");
        match answer.status() {
            StatusCode::OK => Err("it is let in"),
            _ => Ok(answer),
        }
    })
    .await;
    refused(answer, StatusCode::FORBIDDEN, ErrorCode::AppSuspended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_of_a_suspended_tenant_is_refused_until_it_is_resumed() {
    let (network, agent) = network(spec("")).await;
    let get = || network.get(&agent, "hello", "/");
    assert_eq!(
        get().send().await.expect("an answer").status(),
        StatusCode::OK
    );
    let suspended = GatewaySpec {
        suspended: true,
        ..spec("")
    };
    network.regulate("hello", suspended).await;
    let answer = wait::until("the app to be refused", async || {
        let answer = get().send().await.expect("an answer");
        match answer.status() {
            StatusCode::OK => Err("it is served"),
            _ => Ok(answer),
        }
    })
    .await;
    refused(answer, StatusCode::FORBIDDEN, ErrorCode::AppSuspended).await;
    network.regulate("hello", spec("")).await;
    wait::until("the app to be served", async || {
        match get().send().await.expect("an answer").status() {
            StatusCode::OK => Ok(()),
            other => Err(other),
        }
    })
    .await;
}
