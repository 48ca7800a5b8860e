//! Examples of files, and of mistakes in them.

use super::*;

fn read(texts: &[&str]) -> Result<Declarations, Vec<String>> {
    let sources: Vec<Source> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| Source {
            name: format!("{n}.yaml"),
            folder: PathBuf::from("."),
            text: (*text).to_owned(),
        })
        .collect();
    let env = Environment::of([("SHOP_KEY", "5ecret".to_owned())]);
    read_declarations(&sources, &env)
        .map_err(|wrong| wrong.iter().map(ToString::to_string).collect())
}

#[test]
fn what_is_declared_is_read() {
    let text = "tenant: shop\nset: web\napps:\n  hello:\n    policy:\n      concurrency: 5\n  flow:\n    workflow:\n      stages:\n        - name: only\n          function: hello\nbudgets:\n  all: { limit: \"100\" }\nmembers:\n  ann: viewer\n";
    let declared = read(&[text]).expect("valid");
    assert_eq!(declared.tenant.expect("named").to_string(), "shop");
    assert_eq!(declared.set.expect("named").as_str(), "web");
    assert_eq!(declared.apps.len(), 2);
    let hello = &declared.apps[&"hello".parse().expect("app")];
    assert_eq!(hello.policy.as_ref().expect("policy").concurrency, Some(5));
    assert!(hello.workload.is_none(), "what is absent stays as it is");
    assert_eq!((declared.budgets.len(), declared.members.len()), (1, 1));
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let one = "apps:\n  hello:\n    component: absent.wasm\n    policy:\n      rate:\n        client: 5\n    color: red\n  UP:\n    policy: {}\n";
    let two = "budgets:\n  all:\n    limit: lots\nmembers:\n  ann: king\n";
    let three = "apps: [\n";
    let wrong = read(&[one, two, three]).expect_err("wrong");
    let has = |start: &str, word: &str| {
        let found = wrong
            .iter()
            .any(|line| line.starts_with(start) && line.contains(word));
        assert!(found, "{start} … {word}: {wrong:#?}");
    };
    has("0.yaml:3: apps.hello.component: ", "no file");
    has("0.yaml:", "apps.hello.policy.rate.client");
    has("0.yaml:7: apps.hello.color: ", "not known");
    has("0.yaml:", "apps.UP: app name");
    has("1.yaml:", "budgets.all: ");
    has("1.yaml:5: members.ann: ", "king");
    has("2.yaml:", "");
    assert_eq!(wrong.len(), 7, "{wrong:#?}");
}

#[test]
fn what_belongs_to_an_app_is_read() {
    let text = "apps:\n  hello:\n    secrets:\n      KEY: { env: SHOP_KEY }\n    schedules:\n      nightly: { cron: \"0 3 * * *\", input: x }\n    domains: [shop.example.org]\n    objective: { error_percent: 1 }\n    labels: { team: web }\n    version_labels: {}\n  plain:\n    objective: {}\n";
    let declared = read(&[text]).expect("valid");
    let hello = &declared.apps[&"hello".parse().expect("app")];
    let key = &hello.secrets[&"KEY".parse().expect("name")];
    assert_eq!(
        (key.value.expose(), key.from.as_str()),
        ("5ecret", "the environment variable SHOP_KEY")
    );
    assert!(!format!("{declared:?}").contains("5ecret"));
    assert_eq!((hello.schedules.len(), hello.domains.len()), (1, 1));
    assert!(matches!(&hello.objective, Some(Some(o)) if o.error_percent == Some(1.0)));
    assert_eq!(
        hello.labels.as_ref().and_then(|l| l.get("team")),
        Some("web")
    );
    assert!(hello.version_labels.as_ref().is_some_and(Labels::is_empty));
    let plain = &declared.apps[&"plain".parse().expect("app")];
    assert_eq!(
        (&plain.objective, &plain.labels),
        (&Some(None), &None),
        "no objective, and nothing said of labels"
    );
}

#[test]
fn the_sample_is_valid() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("deploy/tenant");
    let text = std::fs::read_to_string(folder.join("tenant.yaml")).expect("the sample");
    let source = Source {
        name: "tenant.yaml".to_owned(),
        folder,
        text,
    };
    let env = Environment::of([("FDN_SAMPLE_KEY", "x".to_owned())]);
    let declared = read_declarations(&[source], &env).expect("valid");
    assert_eq!(
        (
            declared.apps.len(),
            declared.budgets.len(),
            declared.txt.len()
        ),
        (2, 1, 1),
        "{declared:?}"
    );
}

#[test]
fn a_secret_says_where_its_value_is_and_no_mistake_shows_one() {
    let secrets = |one: &str| {
        let text = format!("apps:\n  hello:\n    secrets:\n      KEY: {one}\n");
        read(&[&text]).expect_err(one).join("\n")
    };
    for (wrong, word) in [
        ("5ecret", "never stands in a file"),
        ("{ value: 5ecret }", "never stands in a file"),
        ("{ env: SHOP_KEY, file: x }", "never stands in a file"),
        ("{ env: ABSENT }", "ABSENT is not set"),
        ("{ file: absent }", "absent"),
        ("[5ecret]", "never stands in a file"),
    ] {
        let told = secrets(wrong);
        assert!(
            told.contains("apps.hello.secrets.KEY: ") && told.contains(word),
            "{wrong}: {told}"
        );
        assert!(!told.contains("5ecret"), "{told}");
    }
    let flow = "apps:\n  flow:\n    workflow:\n      stages:\n        - name: only\n          function: hello\n    secrets:\n      KEY: { env: SHOP_KEY }\n    version_labels: { a: b }\n";
    let told = read(&[flow]).expect_err("a workflow").join("\n");
    assert!(
        told.contains("a workflow has no secrets") && told.contains("version_labels"),
        "{told}"
    );
}

#[test]
fn what_dns_answers_is_read() {
    let text = "apps:\n  hello:\n    dns: { ttl: 60s }\n  plain:\n    dns: {}\n  other:\n    policy: {}\ntxt:\n  _DMARC.hello.fn.test.:\n    values: [a, b]\n  _b.hello.fn.test: { values: [c], ttl: 5m }\n";
    let declared = read(&[text]).expect("valid");
    let ttl = |app: &str| declared.apps[&app.parse().expect("app")].dns;
    let of = |ttl: Option<u64>| {
        Some(PutAppDns {
            ttl: ttl.map(fdn_core::DurationMs::from_secs),
        })
    };
    assert_eq!(
        (ttl("hello"), ttl("plain"), ttl("other")),
        (of(Some(60)), of(None), None),
        "one's own, the network's, and nothing said"
    );
    let name: RecordName = "_dmarc.hello.fn.test".parse().expect("name");
    let records = &declared.txt[&name];
    assert_eq!(records.request.values, ["a", "b"]);
    assert_eq!(
        (records.file.as_str(), records.request.ttl),
        ("0.yaml", None)
    );
    assert_eq!(declared.txt.len(), 2);
}

#[test]
fn text_records_that_cannot_be_are_told_with_their_place() {
    let long = "x".repeat(256);
    let many: Vec<String> = (0..33).map(|n| format!("v{n}")).collect();
    for (entry, words) in [
        ("\"*.hello.fn.test\": { values: [a] }", "record name"),
        (
            "_acme-challenge.hello.fn.test: { values: [a] }",
            "fdn dns txt add _acme-challenge.hello.fn.test VALUE",
        ),
        (
            "_x._acme-challenge.hello.fn.test: { values: [a] }",
            "leave it out",
        ),
        ("_a.hello.fn.test: { values: [] }", "at least one"),
        (
            "_a.hello.fn.test: { values: [a, a] }",
            "values[1]: it is there already",
        ),
        (
            format!("_a.hello.fn.test: {{ values: [{long}] }}").as_str(),
            "values[0]: a value has 256 bytes, more than 255",
        ),
        (
            format!("_a.hello.fn.test: {{ values: [{}] }}", many.join(", ")).as_str(),
            "values: 33, more than 32",
        ),
        (
            "_a.hello.fn.test: { values: [a], ttl: 9s }",
            "ttl: whole seconds from 10s to 1h, not 9s",
        ),
        (
            "_a.hello.fn.test: { values: [a], expires_in: 1h }",
            "has no end",
        ),
        ("_a.hello.fn.test: { values: a }", "txt._a.hello.fn.test"),
        ("_a.hello.fn.test: [a]", "txt._a.hello.fn.test"),
    ] {
        let wrong = read(&[&format!("txt:\n  {entry}\n")]).expect_err(entry);
        assert_eq!(wrong.len(), 1, "{entry}: {wrong:?}");
        assert!(
            wrong[0].starts_with("0.yaml:2: txt.") && wrong[0].contains(words),
            "{entry}: {wrong:?}"
        );
    }
    let twice = "txt:\n  _a.hello.fn.test: { values: [a] }\n  _A.hello.fn.test.: { values: [a] }\n";
    let wrong = read(&[twice]).expect_err("twice");
    assert!(wrong[0].contains("declared already"), "{wrong:?}");
    let wrong = read(&["apps:\n  hello:\n    dns: { ttl: 1s }\n"]).expect_err("too short");
    assert!(
        wrong[0].starts_with("0.yaml:3: apps.hello.dns: ttl: whole seconds from 5s to 5m"),
        "{wrong:?}"
    );
}

#[test]
fn files_are_one() {
    let app = "apps:\n  hello:\n    policy: {}\n";
    let wrong = read(&[app, app]).expect_err("twice");
    assert!(
        wrong[0].starts_with("1.yaml:") && wrong[0].contains("0.yaml:"),
        "{wrong:?}"
    );
    let wrong = read(&["tenant: a\n", "tenant: b\n"]).expect_err("two tenants");
    assert!(wrong[0].contains("applied as one"), "{wrong:?}");
    assert!(read(&["tenant: a\n", "tenant: a\n"]).is_ok());
}
