//! Tests of reading and judging cases.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn expect(value: Value) -> Expect {
    serde_json::from_value(value).expect("valid")
}

fn answer(status: u16, body: &[u8]) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    Answer {
        status,
        headers,
        body: Bytes::copy_from_slice(body),
    }
}

fn loaded(text: &str) -> Result<Vec<Case>, CliError> {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join(FILE), text).expect("written");
    std::fs::write(folder.path().join("body.bin"), [0, 159, 146]).expect("written");
    load(folder.path())
}

#[test]
fn the_cases_of_all_ready_functions_can_be_read() {
    let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions");
    for name in ["hello", "image", "sheet", "text-stats", "json-transform"] {
        let cases = load(&functions.join(name)).expect(name);
        assert!(cases.len() > 2, "{name}");
    }
}

#[test]
fn a_case_becomes_a_request() {
    let case = |request: &str| {
        format!(r#"[{{"name":"n","request":{request},"expect":{{"status":200}}}}]"#)
    };
    let cases = loaded(&case(
        r#"{"method":"POST","path":"/a?b=c","headers":{"X-Y":"z"},"body_file":"body.bin"}"#,
    ))
    .expect("valid");
    let [only] = cases.as_slice() else {
        panic!("{cases:?}")
    };
    assert_eq!(
        (&only.method, only.path.as_str()),
        (&Method::POST, "/a?b=c")
    );
    assert_eq!(only.headers["x-y"], "z");
    assert_eq!(only.body.as_deref(), Some(&[0, 159, 146][..]));
    let encoded = loaded(&case(r#"{"method":"PUT","path":"/","body_base64":"AAE="}"#));
    assert_eq!(
        encoded.expect("valid")[0].body.as_deref(),
        Some(&[0, 1][..])
    );
    for (request, says) in [
        (r#"{"method":"G T","path":"/"}"#, "is not a method"),
        (r#"{"method":"GET","path":"a"}"#, "begin with a slash"),
        (r#"{"method":"GET","path":"/a b"}"#, "path"),
        (
            r#"{"method":"GET","path":"/","headers":{"a b":""}}"#,
            "header \"a b\"",
        ),
        (r#"{"method":"GET","path":"/","body_file":"none"}"#, "none"),
        (
            r#"{"method":"GET","path":"/","body_base64":"?"}"#,
            "body_base64",
        ),
        (
            r#"{"method":"GET","path":"/","body":"","body_base64":""}"#,
            "only one of",
        ),
        (
            r#"{"method":"GET","path":"/","bdy":""}"#,
            "unknown field `bdy`",
        ),
    ] {
        let error = loaded(&case(request)).expect_err(request).to_string();
        assert!(
            error.contains(says) && error.contains(FILE),
            "{request}: {error}"
        );
    }
    let error = loaded("[]").expect_err("no case").to_string();
    assert!(error.contains("no case"), "{error}");
    let folder = tempfile::tempdir().expect("folder");
    let error = load(folder.path()).expect_err("no file").to_string();
    assert!(error.contains("there is no such file"), "{error}");
}

#[test]
fn a_body_is_read_from_the_functions_folder_alone() {
    let parent = tempfile::tempdir().expect("folder");
    let folder = parent.path().join("function");
    std::fs::create_dir_all(folder.join("cases")).expect("made");
    std::fs::write(parent.path().join("secret"), "secret").expect("written");
    std::fs::write(folder.join("cases/body"), "body").expect("written");
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, folder.join(name)).expect("linked");
    };
    link("cases/body", "inside");
    link("../secret", "outside");
    link("/dev/zero", "endless");
    let made = std::process::Command::new("mkfifo")
        .arg(folder.join("pipe"))
        .status();
    assert!(made.expect("mkfifo runs").success());
    let large = File::create(folder.join("large")).expect("made");
    large.set_len(BODY_MAX as u64 + 1).expect("a hole");
    for good in ["cases/body", "./cases/body", "inside"] {
        let bytes = file_inside(&folder, Path::new(good));
        assert_eq!(bytes.as_deref(), Ok(&b"body"[..]), "{good}");
    }
    let secret = parent.path().join("secret").display().to_string();
    for (bad, says) in [
        (secret.as_str(), "a path in the function's folder"),
        ("../secret", "without .."),
        ("cases/../../secret", "without .."),
        ("outside", "leads out of"),
        ("endless", "leads out of"),
        ("pipe", "no regular file"),
        ("cases", "no regular file"),
        ("large", "bytes at most"),
        ("none", "No such file"),
    ] {
        let error = file_inside(&folder, Path::new(bad)).expect_err(bad);
        assert!(error.contains(says), "{bad}: {error}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_kept() {
    let body = || http_body_util::Full::new(Bytes::from_static(b"12345"));
    assert_eq!(whole(body(), 5).await.as_deref(), Ok(&b"12345"[..]));
    let error = whole(body(), 4).await.expect_err("too long");
    assert!(error.contains("length limit exceeded"), "{error}");
}

#[test]
fn long_texts_with_nothing_in_common_are_compared_all_the_same() {
    let text = |name: &str| {
        let lines = (0..100_000).map(|n| format!("{name}{n}\n"));
        lines.collect::<String>()
    };
    let found = compare(
        &expect(json!({ "status": 200, "body": text("a") })),
        &answer(200, text("b").as_bytes()),
    );
    let [Difference::Body { lines }] = found.as_slice() else {
        panic!("{} differences", found.len())
    };
    assert_eq!(lines.len(), DIFF_LINES + 1);
}

#[test]
fn null_can_be_expected() {
    let null = expect(json!({ "status": 200, "json": null }));
    assert_eq!(compare(&null, &answer(200, b"null")), []);
    let found = compare(&null, &answer(200, b"{}"));
    assert!(
        matches!(found.as_slice(), [Difference::Body { .. }]),
        "{found:?}"
    );
    let any = expect(json!({ "status": 200 }));
    assert_eq!(compare(&any, &answer(200, b"{}")), []);
}

#[test]
fn an_answer_as_expected_has_no_difference() {
    let all = expect(json!({
        "status": 200, "headers": { "Content-Type": "text/plain" }, "body": "{\"a\": 1}\n", "json": { "a": 1 }, "contains": ["a", "1"],
    }));
    assert_eq!(compare(&all, &answer(200, b"{\"a\": 1}\n")), []);
    let any = expect(json!({ "status": 204 }));
    assert_eq!(compare(&any, &answer(204, b"\xff")), []);
}

#[test]
fn everything_that_differs_is_told() {
    let all = expect(json!({
        "status": 200, "headers": { "content-type": "x", "etag": "1" }, "contains": ["gone"], "json": {},
        "image": { "format": "png", "width": 1, "height": 2 },
    }));
    let found = compare(&all, &answer(500, b"oh"));
    let header = |name: &str, expected: &str, got: Option<&str>| Difference::Header {
        name: name.into(),
        expected: expected.into(),
        got: got.map(Into::into),
    };
    assert_eq!(
        found[..4],
        [
            Difference::Status {
                expected: 200,
                got: 500
            },
            header("content-type", "x", Some("text/plain")),
            header("etag", "1", None),
            Difference::Contains {
                expected: "gone".into(),
                got: "oh".into()
            },
        ]
    );
    assert!(matches!(&found[4], Difference::Json { got, .. } if got == "oh"));
    assert!(matches!(&found[5], Difference::Image { got: None, .. }));
    assert_eq!(found.len(), 6);
}

#[test]
fn a_body_is_compared_line_by_line() {
    let lines = |expected: &str, got: &str| {
        let found = compare(
            &expect(json!({ "status": 200, "body": expected })),
            &answer(200, got.as_bytes()),
        );
        match found.as_slice() {
            [Difference::Body { lines }] => lines.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(lines("a\nb\nc\n", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
    assert_eq!(
        lines("a\n", "a"),
        ["-a", "+a (no newline at the end)"],
        "an end is seen"
    );
    assert_eq!(
        lines("a", "a\u{1b}[2J"),
        [
            "-a (no newline at the end)",
            "+a\\u{1b}[2J (no newline at the end)"
        ]
    );
    let long: String = (0..100).map(|n| format!("{n}\n")).collect();
    let shown = lines("", &long);
    assert_eq!(shown.len(), DIFF_LINES + 1);
    assert_eq!(shown.last().expect("a line"), "… 76 more lines");
    assert!(lines("", &"x".repeat(10_000))[0].chars().count() < 200);
}

#[test]
fn a_wrong_status_alone_shows_what_the_function_said() {
    let found = compare(&expect(json!({ "status": 200 })), &answer(400, b"why\n"));
    assert_eq!(
        found[1],
        Difference::Body {
            lines: vec!["+why".into()]
        }
    );
}

#[test]
fn pictures_are_known_by_their_headers() {
    let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../functions");
    for (file, format, width, height) in [("ball.png", "png", 48, 32), ("ball.jpg", "jpeg", 48, 32)]
    {
        let bytes = std::fs::read(functions.join("image/cases").join(file)).expect("a picture");
        let image = Image {
            format: format.into(),
            width,
            height,
        };
        assert_eq!(Image::of(&bytes), Some(image), "{file}");
    }
    assert_eq!(Image::of(b"\x89PNG\r\n\x1a\n"), None, "cut");
    assert_eq!(Image::of(b"GIF89a"), None);
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd_for_a_picture(start in prop::sample::select(vec![&b"\xff\xd8"[..], b"\x89PNG\r\n\x1a\n", b""]), rest in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [start, &rest].concat();
        drop(Image::of(&bytes));
    }
}
