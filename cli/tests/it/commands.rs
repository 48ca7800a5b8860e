//! Commands against a fake controller: their requests, output and exit codes.

use clap::Parser as _;
use fdn_cli::args::Cli;
use fdn_cli::exit::Exit;
use fdn_core::api::{LoginRequest, LoginResponse};
use fdn_core::{ErrorCode, Timestamp};
use http::Method;

use crate::support::{Fake, Home, Reply, plans, sample};

#[tokio::test]
async fn a_problem_of_the_controller_is_shown_with_code_request_and_remedy() {
    let fake = Fake::start(|_, _| {
        Reply::problem(
            ErrorCode::UploadForeignImport,
            "imports acme:store/kv@0.2.0",
        )
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let file = home.file("hello.wasm", b"\0asm");
    let ran = home.fdn(&["deploy", "hello", &file]).await;
    assert_eq!(ran.exit, Exit::Usage);
    for expected in [
        "fdn: error FDN-1006: imports acme:store/kv@0.2.0",
        "request: req-1",
        "hint: The message names each import",
    ] {
        assert!(ran.err.contains(expected), "{expected}: {}", ran.err);
    }
    assert_eq!(ran.out, "");
}

#[tokio::test]
async fn each_kind_of_failure_has_its_exit_code() {
    for (code, exit) in [
        (ErrorCode::Unauthenticated, Exit::Denied),
        (ErrorCode::Forbidden, Exit::Denied),
        (ErrorCode::NotFound, Exit::NotFound),
        (ErrorCode::Conflict, Exit::Conflict),
        (ErrorCode::PreconditionFailed, Exit::Conflict),
        (ErrorCode::DatabaseFailed, Exit::Unreachable),
        (ErrorCode::Internal, Exit::Failed),
    ] {
        let fake = Fake::start(move |_, _| Reply::problem(code, "why")).await;
        let home = Home::logged_in(&fake.url());
        let ran = home.fdn(&["describe", "hello"]).await;
        assert_eq!(ran.exit, exit, "{code}");
    }
    let strange = Fake::start(|_, _| Reply::Full(404, vec![], b"<html>".to_vec())).await;
    let ran = Home::logged_in(&strange.url()).fdn(&["list"]).await;
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("not as a controller does"), "{}", ran.err);
    let proxy = Fake::start(|_, _| Reply::Full(502, vec![], b"<html>".to_vec())).await;
    assert_eq!(
        Home::logged_in(&proxy.url()).fdn(&["list"]).await.exit,
        Exit::Unreachable
    );
    let garbage = Fake::start(|_, _| Reply::Full(200, vec![], b"[{}]".to_vec())).await;
    let ran = Home::logged_in(&garbage.url()).fdn(&["list"]).await;
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("cannot be read"), "{}", ran.err);
    let home = Home::logged_in("http://127.0.0.1:1");
    let ran = home.fdn(&["list"]).await;
    assert_eq!(ran.exit, Exit::Unreachable, "{ran:?}");
    assert!(
        ran.err.contains("127.0.0.1:1")
            && ran.err.contains("refused")
            && ran.err.contains("fdn up"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    let fake = Fake::start(|_, _| Reply::json(&[sample::summary("hello")])).await;
    let ran = Home::new()
        .fdn(&["list", "--controller", &fake.url()])
        .await;
    assert_eq!(ran.exit, Exit::Denied);
    assert!(
        ran.err.contains(&format!("run `fdn login {}`", fake.url())),
        "{}",
        ran.err
    );
    assert_eq!(fake.requests().len(), 0);
}

#[tokio::test]
async fn lists_and_pages_come_from_the_controller() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/apps" => Reply::json(&[sample::summary("hello"), sample::summary("thumbnails")]),
        "/v1/clusters" => Reply::json(&sample::clusters()),
        "/v1/nodes" => Reply::json(&sample::nodes()),
        "/v1/apps/hello" => Reply::json(&sample::detail("hello")),
        "/v1/apps/hello/explain?client=203.0.113.7%2F32" => Reply::json(&plans::explanation()),
        "/v1/dns/lookup?name=hello.fn.test&client=2001%3Adb8%3A%3A7%2F128&type=AAAA" => {
            Reply::json(&sample::lookup())
        }
        "/v1/apps/hello/bindings" => Reply::json(&sample::bindings()),
        "/v1/dns/txt" => Reply::json(&sample::txt()),
        other => Reply::problem(ErrorCode::NotFound, other),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let of_v6 = ["dns", "lookup", "hello.fn.test", "--type", "AAAA"];
    let of_v6 = [&of_v6[..], &["--client", "2001:db8::7", "-o", "name"]].concat();
    for (args, expected) in [
        (of_v6, "127.0.3.1\n127.0.3.2\n"),
        (
            vec!["dns", "dump", "hello", "-o", "name"],
            "203.0.113.0/24\n2001:db8:40::/48\n",
        ),
        (
            vec!["dns", "txt", "list", "-o", "name"],
            "_acme-challenge.hello.fn.test\nfn.test\n",
        ),
        (vec!["list", "-o", "name"], "hello\nthumbnails\n"),
        (vec!["list", "-o", "name"], "hello\nthumbnails\n"),
        (vec!["cluster", "list", "-o", "name"], "eu-west\nus-east\n"),
        (vec!["node", "list", "-o", "name"], "eu-west-1\neu-west-2\n"),
        (vec!["describe", "hello", "-o", "name"], "hello\n"),
        (
            vec!["explain", "hello", "--client", "203.0.113.7", "-o", "name"],
            "ap-south\n",
        ),
    ] {
        let ran = home.fdn(&args).await;
        assert_eq!(
            (ran.exit, ran.out.as_str()),
            (Exit::Ok, expected),
            "{args:?}: {}",
            ran.err
        );
    }
}

#[tokio::test]
async fn a_dns_server_is_asked_itself_and_without_a_token() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/lookup?name=hello.fn.test&client=203.0.113.7%2F32&type=A" => {
            Reply::json(&sample::server_says())
        }
        "/lookup?name=hello.fn.test&client=203.0.113.0%2F24&type=AAAA" => {
            Reply::problem(ErrorCode::BadRequest, "not so")
        }
        _ => Reply::Full(404, vec![], b"nothing".to_vec()),
    })
    .await;
    let home = Home::new();
    let url = fake.url();
    let server = url.trim_start_matches("http://");
    let lookup = |name: &'static str, rest: &[&'static str]| {
        let args = ["dns", "lookup", name, "--server"]
            .map(str::to_owned)
            .into_iter();
        let rest = rest.iter().map(|one| (*one).to_owned());
        args.chain([server.to_owned()])
            .chain(rest)
            .collect::<Vec<_>>()
    };
    let ran = async |args: Vec<String>| {
        home.fdn(&args.iter().map(String::as_str).collect::<Vec<_>>())
            .await
    };
    let page = ran(lookup("hello.fn.test", &["--client", "203.0.113.7"])).await;
    assert_eq!(page.exit, Exit::Ok, "{page:?}");
    for words in [
        "203.0.113.0/24 to ap-south",
        "revision",
        "127.0.3.2",
        "/24 of the client",
    ] {
        assert!(page.out.contains(words), "{words}: {}", page.out);
    }
    let asked = ["--client", "203.0.113.0/24", "--type", "AAAA"];
    let refused = ran(lookup("hello.fn.test", &asked)).await;
    assert_eq!(refused.exit, Exit::of(ErrorCode::BadRequest), "{refused:?}");
    assert!(refused.err.contains("not so"), "{}", refused.err);
    let foreign = ran(lookup("other.fn.test", &["--client", "203.0.113.7"])).await;
    assert_eq!(foreign.exit, Exit::Unreachable, "{foreign:?}");
    assert!(
        foreign.err.contains("no DNS server answers") && foreign.err.contains("status 404"),
        "{}",
        foreign.err
    );
    for (bad, said) in [
        (&["--client", "nowhere"][..], "--client <ADDR>"),
        (
            &["--client", "203.0.113.7", "--controller", "http://a"][..],
            "cannot be used with",
        ),
    ] {
        let args = lookup("hello.fn.test", bad);
        let parsed = Cli::try_parse_from(std::iter::once("fdn".to_owned()).chain(args));
        let error = parsed.expect_err("refused").to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(fake.requests().len(), 3, "nothing else is asked");
}

#[tokio::test]
async fn text_records_are_set_added_and_removed() {
    let fake = Fake::start(|request, _| match request.method {
        Method::DELETE => Reply::Full(204, vec![], vec![]),
        _ => Reply::json(&sample::txt()[0]),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let name = "_ACME-challenge.hello.fn.test.";
    let times = ["--ttl", "30s", "--expires-in", "1h"];
    let set = [&["dns", "txt", "set", name, "a", "b"][..], &times].concat();
    let add = vec!["dns", "txt", "add", name, "--", "-c"];
    let one = vec!["dns", "txt", "remove", name, "a b"];
    let all = vec!["dns", "txt", "remove", name];
    let path = "/v1/dns/txt/_acme-challenge.hello.fn.test";
    for (index, (args, method, query, body)) in [
        (
            set,
            Method::PUT,
            "",
            r#"{"values":["a","b"],"ttl":"30s","expires_in":"1h"}"#,
        ),
        (add, Method::POST, "", r#"{"value":"-c"}"#),
        (one, Method::DELETE, "?value=a+b", ""),
        (all, Method::DELETE, "", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let ran = home.fdn(&args).await;
        assert_eq!(ran.exit, Exit::Ok, "{args:?}: {}", ran.err);
        let requests = fake.requests();
        let sent = &requests[index];
        assert_eq!(sent.method, method);
        // An empty query may leave a question mark.
        assert_eq!(sent.path.trim_end_matches('?'), format!("{path}{query}"));
        assert_eq!(String::from_utf8_lossy(&sent.body), body);
    }
}

#[tokio::test]
async fn rollback_sends_the_version_and_waits() {
    let fake = Fake::start(|request, _| match request.method {
        Method::POST => Reply::json(&sample::detail("hello")),
        _ => {
            let body = serde_json::to_vec(&sample::ready("hello", 7)).expect("JSON");
            Reply::Full(200, vec![("etag", "\"2-7\"".to_owned())], body)
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["rollback", "hello", "1"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert_eq!(ran.out, "hello is now v2\nready on 3 nodes\n");
    let sent = |n: usize| String::from_utf8_lossy(&fake.requests()[n].body).into_owned();
    assert_eq!(sent(0), "{\"version\":1}");
    assert_eq!(fake.requests()[0].headers.get("if-match"), None);
    // Without a version the app is read first: which one is meant depends on what is current.
    let count = fake.requests().len();
    home.fdn(&["rollback", "hello", "--no-wait"]).await;
    assert_eq!(fake.requests()[count].path, "/v1/apps/hello");
    assert_eq!(sent(count + 1), "{}");
    let tag = fake.requests()[count + 1].headers.get("if-match").cloned();
    assert_eq!(tag.expect("a condition"), "\"2-7\"");
    assert_eq!(fake.requests().len(), count + 2);
}

#[tokio::test]
async fn a_token_that_may_not_look_can_still_roll_back() {
    let fake = Fake::start(|request, _| match request.method {
        Method::POST => Reply::json(&sample::detail("hello")),
        _ => Reply::problem(ErrorCode::Forbidden, "ci may not look"),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["rollback", "hello", "--no-wait"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "hello is now v2\n"),
        "{}",
        ran.err
    );
    assert_eq!(fake.requests()[1].headers.get("if-match"), None);
}

#[tokio::test]
async fn delete_wants_a_yes_and_waits_until_the_nodes_have_let_go() {
    let fake = Fake::start(|request, before| match request.method {
        Method::DELETE => Reply::Full(204, vec![], vec![]),
        _ if before < 3 => Reply::json(&sample::nodes()),
        _ => {
            let mut nodes = sample::nodes();
            // The lost node's last report still contains the app; it is not waited for.
            nodes[0].apps.clear();
            Reply::json(&nodes)
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["delete", "hello", "--yes"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "deleted hello\n"),
        "{}",
        ran.err
    );
    assert!(fake.requests().len() >= 4);
    assert_eq!(fake.requests()[0].path, "/v1/apps/hello");
}

/// How many times the fake controller was asked to delete something.
fn deletions(fake: &Fake) -> usize {
    let requests = fake.requests();
    let deletions = requests.iter().filter(|sent| sent.method == Method::DELETE);
    deletions.count()
}

#[tokio::test]
async fn who_may_not_look_at_nodes_deletes_without_waiting() {
    let fake = Fake::start(|request, _| match request.method {
        Method::DELETE => Reply::Full(204, vec![], vec![]),
        _ => Reply::problem(ErrorCode::Forbidden, "dev may not look at machines"),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["delete", "hello", "talking", "--yes"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "deleted hello\ndeleted talking\n"),
        "{}",
        ran.err
    );
    assert_eq!(
        ran.err,
        "not waited for: your role may not look at machines\n"
    );
    assert_eq!(deletions(&fake), 2);
}

#[tokio::test]
async fn a_node_that_is_late_keeps_no_app_from_being_deleted() {
    let fake = Fake::start(|request, _| match request.method {
        Method::DELETE => Reply::Full(204, vec![], vec![]),
        _ => Reply::json(&sample::nodes()),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let args = ["delete", "hello", "talking", "--yes", "--timeout", "1ms"];
    let late = "hello is deleted, but still on eu-west-1 after 1ms";
    let (ran, unread) = (home.fdn(&args).await, home.fdn_first_line(&args).await);
    assert_eq!(ran.out, "deleted hello\ndeleted talking\n");
    for ran in [ran, unread] {
        assert_eq!(ran.exit, Exit::Timeout, "{ran:?}");
        assert!(ran.err.contains(late), "{}", ran.err);
    }
    assert_eq!(deletions(&fake), 4);
}

#[tokio::test]
async fn all_changes_are_made_though_the_reader_of_the_output_leaves() {
    let tokens = [1, 2, 3].map(|n| format!("fdn_{n:032}"));
    let [first, second, third] = tokens.each_ref().map(String::as_str);
    for args in [
        vec!["delete", "a", "b", "c", "--yes"],
        vec!["token", "revoke", first, second, third],
        vec!["budget", "remove", "a", "b", "c"],
        vec!["price", "remove", "a", "b", "c"],
        vec!["node", "remove", "a", "b", "c", "--yes"],
    ] {
        let fake = Fake::start(|request, _| match request.method {
            Method::DELETE => Reply::Full(204, vec![], vec![]),
            _ => Reply::json(&sample::nodes()),
        })
        .await;
        let ran = Home::logged_in(&fake.url()).fdn_first_line(&args).await;
        assert_eq!(ran.exit, Exit::Ok, "{args:?}: {}", ran.err);
        assert_eq!(ran.out.lines().count(), 1, "{args:?}: {}", ran.out);
        assert_eq!(deletions(&fake), 3, "{args:?}");
    }
    // A change that is refused outweighs a reader who has left.
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/apps/c" => Reply::problem(ErrorCode::NotFound, "there is no app c"),
        _ => Reply::Full(204, vec![], vec![]),
    })
    .await;
    let args = ["delete", "a", "b", "c", "--yes"];
    let ran = Home::logged_in(&fake.url()).fdn_first_line(&args).await;
    assert_eq!(ran.exit, Exit::NotFound, "{ran:?}");
}

#[tokio::test]
async fn the_tenant_of_a_new_workflow_is_sent() {
    let fake =
        Fake::start(|_, _| Reply::problem(ErrorCode::WorkflowInvalid, "it has no stage")).await;
    let home = Home::logged_in(&fake.url());
    let file = home.file("flow.yaml", "stages: []\n");
    let file = file.as_str();
    for (index, (args, query)) in [
        (
            &["deploy", "flow", file, "--tenant", "shop"][..],
            "tenant=shop&dry_run=false",
        ),
        (
            &["validate", "flow", file, "--tenant", "shop"][..],
            "tenant=shop&dry_run=true",
        ),
        (&["deploy", "flow", file][..], "dry_run=false"),
    ]
    .into_iter()
    .enumerate()
    {
        let ran = home.fdn(&[&["workflow"][..], args].concat()).await;
        assert_eq!(ran.exit, Exit::Usage, "{ran:?}");
        let path = format!("/v1/apps/flow/workflow?{query}");
        assert_eq!(fake.requests()[index].path, path);
    }
}

#[tokio::test]
async fn login_saves_token_and_network_and_makes_the_context_current() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/login" => {
            let login: LoginRequest = serde_json::from_slice(&request.body).expect("a login");
            if login.password == "right" {
                Reply::json(&LoginResponse {
                    token: format!("token-of-{}", login.user),
                    expires_at: Timestamp(1),
                })
            } else {
                Reply::problem(ErrorCode::Unauthenticated, "user or password is wrong")
            }
        }
        "/v1/network" => Reply::json(&sample::network()),
        _ => Reply::json(&[sample::summary("hello")]),
    })
    .await;
    let home = Home::new();
    let (right, wrong) = (home.file("right", "right\n"), home.file("wrong", "wrong\n"));
    let refused = home
        .fdn(&["login", &fake.url(), "--password-file", &wrong])
        .await;
    assert_eq!(refused.exit, Exit::Denied, "{refused:?}");
    assert!(
        refused.err.contains("user or password is wrong"),
        "{}",
        refused.err
    );
    assert_eq!(
        home.read(".config/fdn/config.toml"),
        "",
        "a failed login changes nothing"
    );
    let ran = home
        .fdn(&[
            "login",
            &fake.url(),
            "--password-file",
            &right,
            "--user",
            "ada",
            "--context",
            "work",
        ])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert!(
        ran.out.contains("as ada") && ran.out.contains("context work"),
        "{}",
        ran.out
    );
    assert_eq!(home.read(".config/fdn/tokens/work"), "token-of-ada");
    let config = home.read(".config/fdn/config.toml");
    assert!(
        config.contains("current = \"work\"") && config.contains("zone = \"fn.test\""),
        "{config}"
    );
    assert!(
        !config.contains("token-of") && !config.contains("right"),
        "{config}"
    );
    let list = home.fdn(&["list", "-o", "name"]).await;
    assert_eq!(
        (list.exit, list.out.as_str()),
        (Exit::Ok, "hello\n"),
        "{}",
        list.err
    );
    let sent = fake.requests().last().and_then(|r| r.authorization.clone());
    assert_eq!(sent.as_deref(), Some("Bearer token-of-ada"));
}

#[tokio::test]
async fn version_tells_both_sides_and_does_not_need_a_controller() {
    let fake = Fake::start(|_, _| Reply::json(&sample::network())).await;
    let own = env!("CARGO_PKG_VERSION");
    let ran = Home::new()
        .fdn(&["version", "--controller", &fake.url(), "-o", "name"])
        .await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, format!("{own}\n{own}\n").as_str())
    );
    let away = Home::new()
        .fdn(&["version", "--controller", "http://127.0.0.1:1"])
        .await;
    assert_eq!(away.exit, Exit::Ok);
    assert!(away.out.contains("does not answer"), "{}", away.out);
    let mut other = sample::network();
    other.version = "9.9.9".into();
    let newer = Fake::start(move |_, _| Reply::json(&other)).await;
    let ran = Home::new()
        .fdn(&["version", "--controller", &newer.url()])
        .await;
    assert!(
        ran.err.contains("warning") && ran.err.contains("9.9.9"),
        "{}",
        ran.err
    );
    let alone = Home::new()
        .fdn(&["version", "--client", "-o", "json"])
        .await;
    let told: serde_json::Value = serde_json::from_str(&alone.out).expect("JSON");
    assert_eq!(told["client"], own);
    assert!(told.get("controller").is_none(), "{told}");
    for word in ["revision", "target", "profile"] {
        assert!(told["build"][word].is_string(), "{word}: {told}");
    }
    assert!(told["build"]["features"].is_array(), "{told}");
}

#[tokio::test]
async fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = Home::new().fdn(&["completions", shell]).await;
        assert_eq!(ran.exit, Exit::Ok);
        for word in ["deploy", "explain", "client-subnet"] {
            assert!(ran.out.contains(word), "{shell} lacks {word}");
        }
    }
}

#[tokio::test]
async fn new_makes_a_folder_once() {
    let home = Home::new();
    let folder = home.folder.path().join("thing").display().to_string();
    let ran = home
        .fdn(&["new", "thing", "--lang", "python", "--dir", &folder])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert!(
        ran.out.contains("fdn.toml") && ran.err.contains("README.md"),
        "{ran:?}"
    );
    assert!(home.read("thing/fdn.toml").contains("thing"));
    let again = home
        .fdn(&["new", "thing", "--lang", "c", "--dir", &folder])
        .await;
    assert_eq!(again.exit, Exit::Conflict);
    assert!(again.err.contains("not empty"), "{}", again.err);
    let digit = home.fdn(&["new", "3d", "--lang", "rust"]).await;
    assert_eq!(digit.exit, Exit::Usage);
}
