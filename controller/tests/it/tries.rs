//! Trial calls to apps: through one of the network's own gateways, and nothing else.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use fdn_core::message::NodeStatus;
use fdn_core::observe::{BodyEncoding, TryAnswer};
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::json;

use crate::nodes;
use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(an_app_is_tried_by_a_gateway);

/// A fake gateway that answers with the request.
async fn echo(request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let text = |name: &str| {
        let value = request.headers().get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    if request.path() == "/away" {
        return HttpResponse::Found()
            .insert_header(("location", "http://192.0.2.1/"))
            .finish();
    }
    if request.path() == "/large" {
        return HttpResponse::Ok().body(vec![b'x'; 5_000]);
    }
    let mut told = format!(
        "{} {} {} {} ",
        request.method(),
        request.uri().path_and_query().expect("a target"),
        text("fdn-call-host"),
        text("x-told")
    );
    told.push_str(&String::from_utf8_lossy(&body));
    HttpResponse::ImATeapot()
        .insert_header(("x-fdn-cluster", "eu-west"))
        .insert_header(("x-fdn-node", "eu-1"))
        .insert_header(("x-fdn-version", "v1"))
        .insert_header(("x-request-id", text("x-request-id")))
        .insert_header((
            "server-timing",
            "wait;dur=0.000, start;dur=0.010, exec;dur=0.020",
        ))
        .body(told)
}

async fn gateway(rig: &Rig) -> NodeStatus {
    let (listener, status) = nodes::listener("eu-1");
    let shown = nodes::shown(rig, "fdn://cluster/eu-west/node/eu-1").await;
    let server = HttpServer::new(|| App::new().default_service(web::to(echo)))
        .workers(1)
        .disable_signals()
        .listen_rustls_0_23(listener, shown)
        .expect("listens")
        .run();
    tokio::spawn(server);
    status
}

async fn an_app_is_tried_by_a_gateway(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.console.try_answer = fdn_core::ByteSize::from_bytes(1_000);
        settings.console.try_body = fdn_core::ByteSize::from_bytes(100);
    })
    .await;
    rig.deploy("hello", components::hello("hello")).await;
    let ask = |body: serde_json::Value| rig.request(Method::POST, "/v1/apps/hello/try").json(&body);
    let (_, none) = rig.refused(ask(json!({}))).await;
    assert_eq!(none.code.as_str(), "FDN-2066");
    rig.node(nodes::older()).await;
    wait::until("a gateway that cannot be called", async || {
        let (_, problem) = rig.refused(ask(json!({}))).await;
        if problem.code.as_str() == "FDN-2066" && problem.detail.contains("upgrade") {
            Ok(())
        } else {
            Err(format!("{problem:?}"))
        }
    })
    .await;
    rig.node(gateway(&rig).await).await;
    let wish = json!({ "method": "PUT", "path": "/a?b=c", "headers": [["x-told", "yes"]], "body": "aGk=", "encoding": "base64" });
    let told: TryAnswer = wait::until("the gateway to be known", async || {
        let answer = ask(wish.clone()).send().await.expect("an answer");
        match answer.status().as_u16() {
            200 => Ok(answer.json().await.expect("what was answered")),
            _ => Err(answer.text().await.expect("text")),
        }
    })
    .await;
    assert_eq!(
        (told.status, told.body.as_str()),
        (418, "PUT /a?b=c hello.fn.test yes hi")
    );
    assert_eq!((told.encoding, told.truncated), (BodyEncoding::Text, false));
    assert_eq!(
        (
            told.node.expect("told").as_str(),
            told.version.expect("told").get()
        ),
        ("eu-1", 1)
    );
    assert!(!told.request.is_empty());
    let phases: Vec<&str> = told
        .timings
        .iter()
        .map(|timing| timing.phase.as_str())
        .collect();
    assert_eq!(phases, ["wait", "start", "exec", "network", "total"]);
    let away: TryAnswer = rig.json(ask(json!({ "path": "/away" }))).await;
    assert_eq!(away.status, 302, "nobody else is called");
    let large: TryAnswer = rig.json(ask(json!({ "path": "/large" }))).await;
    assert_eq!(
        (large.body_bytes, large.truncated, large.body.len()),
        (1_000, true, 1_000)
    );
    for (bad, code) in [
        (json!({ "path": "x" }), "FDN-2065"),
        (json!({ "headers": [["host", "evil.example"]] }), "FDN-2065"),
        (json!({ "cluster": "us-east" }), "FDN-2003"),
        (json!({ "timeout": "1ms" }), "FDN-2065"),
        (json!({ "body": "x".repeat(101) }), "FDN-2007"),
        (json!({ "url": "http://evil.example/" }), "FDN-2005"),
    ] {
        assert_eq!(
            rig.refused(ask(bad.clone())).await.1.code.as_str(),
            code,
            "{bad}"
        );
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = closed.local_addr().expect("an address");
    drop(closed);
    rig.node(NodeStatus {
        admin: gone,
        controller_port: Some(gone.port()),
        ..node_at("us-1", "us-east", 39.04, -77.49)
    })
    .await;
    wait::until("a gateway that is gone", async || {
        let (_, problem) = rig.refused(ask(json!({ "cluster": "us-east" }))).await;
        if problem.code.as_str() == "FDN-2067" {
            Ok(())
        } else {
            Err(format!("{problem:?}"))
        }
    })
    .await;
    let metrics = rig.anonymous(Method::GET, "/metrics").send().await;
    let metrics = metrics.expect("an answer").text().await.expect("text");
    assert!(
        metrics.contains(r#"fdn_controller_tries_total{result="answered"}"#),
        "{metrics}"
    );
}
