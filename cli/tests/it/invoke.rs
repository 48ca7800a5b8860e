//! `fdn invoke` against a fake DNS server and a fake gateway, without a controller.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fdn_cli::exit::Exit;
use fdn_core::{ErrorCode, Problem};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};

use crate::resolver::{serve, with_addresses};
use crate::support::{Fake, Home, Ran, Recorded, Reply};

const DEAD: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 9, 1));
const ALIVE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn headers() -> Vec<(&'static str, String)> {
    vec![
        ("x-fdn-cluster", "ap-south".into()),
        ("x-fdn-node", "ap-south-1".into()),
        ("x-fdn-version", "2".into()),
        ("x-request-id", "r-9".into()),
        ("server-timing", "start;dur=0.01, exec;dur=1.2".into()),
    ]
}

struct Net {
    gateway: Fake,
    dns: SocketAddr,
    home: Home,
}

impl Net {
    async fn new(
        addresses: &'static [IpAddr],
        reply: impl Fn(&Recorded) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let gateway = Fake::start(move |request, _| reply(request)).await;
        let dns = serve(move |question, _, _| Some(with_addresses(question, addresses))).await;
        let home = Home::new();
        let config = format!(
            "current = \"x\"\n[contexts.x]\ncontroller = \"http://127.0.0.1:1\"\nzone = \"fn.test\"\ndns = \"{dns}\"\ngateway_port = {}\n",
            gateway.address.port()
        );
        home.file(".config/fdn/config.toml", config);
        Self { gateway, dns, home }
    }

    async fn invoke(&self, args: &[&str]) -> Ran {
        self.home.fdn(&[&["invoke", "hello"], args].concat()).await
    }
}

fn echo(request: &Recorded) -> Reply {
    Reply::Full(
        200,
        headers(),
        [b"hello, ", request.body.as_slice()].concat(),
    )
}

#[tokio::test]
async fn the_answer_goes_to_stdout_and_everything_about_it_to_stderr() {
    let net = Net::new(&[ALIVE], echo).await;
    let ran = net.invoke(&["-d", "world"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "hello, world"),
        "{}",
        ran.err
    );
    for expected in [
        "200 OK",
        "cluster ap-south",
        "node ap-south-1",
        "version 2",
        "request r-9",
        "dns ",
        "first byte",
        "exec 1.2 ms",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    let request = &net.gateway.requests()[0];
    assert_eq!(
        request.headers["host"],
        format!("hello.fn.test:{}", net.gateway.address.port())
    );
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/")
    );
    let quiet = net.invoke(&["-q", "/path?x=1"]).await;
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("hello, ", ""));
    assert_eq!(net.gateway.requests()[1].path, "/path?x=1");
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_refuses() {
    let net = Net::new(&[DEAD, ALIVE], echo).await;
    let ran = net.invoke(&[]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "hello, "),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("127.0.9.1") && ran.err.contains("trying the next address"),
        "{}",
        ran.err
    );
    let net = Net::new(&[DEAD], echo).await;
    let ran = net.invoke(&[]).await;
    assert_eq!(ran.exit, Exit::Unreachable);
    assert!(
        ran.err.contains("a gateway does not answer at 127.0.9.1"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn include_prints_the_head_and_output_writes_a_file() {
    let net = Net::new(&[ALIVE], echo).await;
    let ran = net.invoke(&["-i", "-q"]).await;
    assert!(
        ran.out.starts_with("HTTP/1.1 200 OK\n") && ran.out.contains("x-fdn-node: ap-south-1\n"),
        "{}",
        ran.out
    );
    assert!(ran.out.ends_with("\n\nhello, "), "{}", ran.out);
    let path = net.home.folder.path().join("out").display().to_string();
    let ran = net.invoke(&["-d", "file", "-o", &path]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Ok, ""));
    assert_eq!(net.home.read("out"), "hello, file");
}

#[tokio::test]
async fn a_functions_error_is_printed_and_changes_the_exit_code() {
    let net = Net::new(&[ALIVE], |_| {
        Reply::Full(404, headers(), b"no such page".to_vec())
    })
    .await;
    let ran = net.invoke(&[]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::CallFailed, "no such page")
    );
    assert!(
        ran.err.contains("status 404") && ran.err.contains("fdn logs"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn a_gateways_error_is_told_with_its_code_and_not_taken_for_an_answer() {
    let net = Net::new(&[ALIVE], |_| {
        let body = serde_json::to_vec(&Problem::new(
            ErrorCode::FunctionTimeout,
            "no answer within 2s",
        ))
        .expect("problem");
        Reply::Full(504, vec![("x-fdn-error", "FDN-3003".into())], body)
    })
    .await;
    let path = net.home.folder.path().join("out").display().to_string();
    let ran = net.invoke(&["-o", &path]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Timeout, ""), "{ran:?}");
    assert!(
        ran.err.contains("FDN-3003: no answer within 2s") && ran.err.contains("hint:"),
        "{}",
        ran.err
    );
    assert!(
        !std::path::Path::new(&path).exists(),
        "no file is made of an error"
    );
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_not_found() {
    let dns = serve(|question, _, _| {
        let mut reply = question.clone().into_response();
        reply.metadata.response_code = ResponseCode::NXDomain;
        Some(reply)
    })
    .await;
    let dns = dns.to_string();
    let flags = ["--dns", &dns, "--zone", "other.test", "--gateway-port", "9"];
    let ran = Home::new()
        .fdn(&[&["invoke", "nothing"], &flags[..]].concat())
        .await;
    assert_eq!(ran.exit, Exit::NotFound);
    assert!(
        ran.err.contains("FDN-3001") && ran.err.contains("nothing.other.test does not exist"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn the_client_subnet_is_sent_and_without_a_context_the_controller_is_asked() {
    let gateway = Fake::start(|_, _| Reply::Full(200, vec![], b"ok".to_vec())).await;
    let dns = serve(|question, _, _| {
        let subnet = question
            .edns
            .as_ref()
            .and_then(|e| e.option(EdnsCode::Subnet));
        let Some(EdnsOption::Subnet(subnet)) = subnet else {
            return None;
        };
        (subnet.source_prefix() == 24).then(|| with_addresses(question, &[ALIVE]))
    })
    .await;
    let mut network = crate::support::sample::network();
    network.dns = Some(dns);
    network.gateway_port = gateway.address.port();
    let controller = Fake::start(move |_, _| Reply::json(&network)).await;
    let args = [
        "invoke",
        "hello",
        "--controller",
        &controller.url(),
        "--client-subnet",
        "203.0.113.9/24",
    ];
    let ran = Home::new().fdn(&args).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "ok"),
        "{}",
        ran.err
    );
    assert_eq!(controller.requests()[0].path, "/v1/network");
}

#[tokio::test]
async fn a_call_has_a_time_limit() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("free port");
    let port = listener.local_addr().expect("address").port().to_string();
    let dns = serve(|question, _, _| Some(with_addresses(question, &[ALIVE])))
        .await
        .to_string();
    let flags = [
        "--dns",
        &dns,
        "--zone",
        "fn.test",
        "--gateway-port",
        &port,
        "--timeout",
        "200ms",
    ];
    let ran = Home::new()
        .fdn(&[&["invoke", "hello"], &flags[..]].concat())
        .await;
    assert_eq!(ran.exit, Exit::Timeout, "{ran:?}");
    assert!(ran.err.contains("longer than 200ms"), "{}", ran.err);
}

#[tokio::test]
async fn a_gateway_that_hangs_up_is_told() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("free port");
    let port = listener.local_addr().expect("address").port().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let net = Net::new(&[ALIVE], echo).await;
    let dns = net.dns.to_string();
    let flags = ["--dns", &dns, "--zone", "fn.test", "--gateway-port", &port];
    let ran = Home::new()
        .fdn(&[&["invoke", "hello"], &flags[..]].concat())
        .await;
    assert_eq!(ran.exit, Exit::CallFailed, "{ran:?}");
    assert!(ran.err.contains("without an answer"), "{}", ran.err);
}
