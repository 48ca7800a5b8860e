use super::*;

const FIVE: &str = "\
timeout: 30s
stages:
  - name: in
    function: image
    path: /?w=640
  - { name: resize, function: image, path: /?w=32, needs: [in] }
  - name: sharpen
    function: image
    version: 2
    needs: [{ stage: in, size: 200KiB }]
    retries: { count: 2, backoff: 200ms }
    timeout: 5s
  - { name: text, function: stats, needs: [in], when: always }
  - { name: join, function: bundle, needs: [resize, sharpen, text] }
";

fn third(function: &FunctionName, wanted: VersionSelector) -> FunctionLookup {
    match (function.as_str(), wanted) {
        ("ghost", _) => FunctionLookup::NoFunction,
        ("flow", _) => FunctionLookup::IsWorkflow,
        (_, VersionSelector::Number(number)) if number.get() > 3 => FunctionLookup::NoVersion,
        (_, VersionSelector::Number(number)) => FunctionLookup::Version(number),
        (_, VersionSelector::Current) => {
            FunctionLookup::Version(VersionNumber::try_from(3).expect("a number"))
        }
    }
}

fn wrong(text: &str) -> String {
    let read = Declaration::parse(text).and_then(|read| read.resolve(third));
    read.expect_err(text).to_string()
}

#[test]
fn yaml_and_json_say_the_same() {
    let yaml = Declaration::parse(FIVE).expect("YAML");
    let json = serde_json::to_string_pretty(&yaml).expect("JSON");
    assert_eq!(Declaration::parse(&json).expect("JSON"), yaml);
    let made = yaml.resolve(third).expect("a workflow");
    assert_eq!(made.workflow.entry().name.as_str(), "in");
    assert_eq!(made.timeout, DurationMs::from_secs(30));
    let versions: Vec<u32> = made
        .workflow
        .stages()
        .iter()
        .map(|s| s.version.get())
        .collect();
    assert_eq!(versions, [3, 3, 2, 3, 3]);
    let sizes: BTreeSet<u64> = made
        .workflow
        .edges()
        .iter()
        .map(|e| e.size.as_bytes())
        .collect();
    assert_eq!(sizes, BTreeSet::from([64 << 10, 200 << 10]));
    let rules = made.rules_of(&"sharpen".parse().expect("stage"));
    assert_eq!((rules.retries, rules.backoff.as_millis()), (2, 200));
    assert_eq!(rules.timeout, Some(DurationMs::from_secs(5)));
    let text = made.rules_of(&"text".parse().expect("stage"));
    assert_eq!(text.when, Condition::Always);
    assert!(
        !made
            .rules
            .contains_key(&"join".parse::<StageName>().expect("stage"))
    );
    let kept = serde_json::to_string(&made).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Definition>(&kept).expect("own"),
        made
    );
}

#[test]
fn a_text_that_is_no_workflow_is_told_with_its_line() {
    for (text, line, what) in [
        (
            "stages:\n  - name: a\n    function: f\n    colour: red\n",
            "line 4",
            "colour",
        ),
        (
            "stages:\n  - name: A_\n    function: f\n",
            "line 2",
            "stage name",
        ),
        (
            "stages:\n  - name: a\n    function: f\n    needs: [{ stage: b, size: big }]\n",
            "line 4",
            "size",
        ),
        (
            "stages:\n  - name: a\n    function: f\n    version: newest\n",
            "line 4",
            "current",
        ),
        ("stages:\n  - name: [a\n", "line", ""),
        ("{\n \"stages\": [\n  {\"name\": 7}]}", "line 3", "string"),
    ] {
        let told = wrong(text);
        assert!(told.contains(line) && told.contains(what), "{text}: {told}");
    }
    assert!(wrong(&" ".repeat(TEXT_MAX + 1)).contains("bytes long"));
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let last = n - 1;
        let nine = vec![format!("*a{last}"); 9].join(", ");
        text.push_str(&format!("a{n}: &a{n} [{nine}]\n"));
    }
    assert!(Declaration::parse(&text).is_err());
}

#[test]
fn every_mistake_names_its_stage() {
    let stages = |lines: &str| format!("stages:\n  - {{ name: a, function: f }}\n{lines}");
    for (text, what) in [
        (
            stages("  - { name: b, function: ghost, needs: [a] }\n"),
            "stage b: there is no function ghost",
        ),
        (
            stages("  - { name: b, function: flow, needs: [a] }\n"),
            "stage b: flow is a workflow",
        ),
        (
            stages("  - { name: b, function: f, version: 9, needs: [a] }\n"),
            "stage b: function f has no version v9",
        ),
        (
            stages("  - { name: b, function: f, needs: [a, a] }\n"),
            "stage b: needs a twice",
        ),
        (
            stages("  - { name: b, function: f, needs: [c] }\n"),
            "stage c, which does not exist",
        ),
        (
            stages("  - { name: a, function: f, needs: [a] }\n"),
            "stage a stands twice",
        ),
        (
            stages("  - { name: b, function: f }\n"),
            "stages a and b are both entries",
        ),
        (
            stages(
                "  - { name: b, function: f, needs: [c] }\n  - { name: c, function: f, needs: [b] }\n",
            ),
            "stage b is part of a cycle",
        ),
        (
            stages("  - { name: b, function: f, needs: [a], timeout: 2h }\n"),
            "stage b: timeout is 2h",
        ),
        (
            stages("  - { name: b, function: f, needs: [a], retries: { count: 11 } }\n"),
            "stage b: retries.count",
        ),
        (
            stages(
                "  - { name: b, function: f, needs: [a], retries: { count: 1, backoff: 2m } }\n",
            ),
            "stage b: retries.backoff",
        ),
        (
            stages("  - { name: b, function: f, needs: [a], path: x }\n"),
            "stage b: path",
        ),
        (
            stages("  - { name: b, function: f, needs: [{ stage: a, size: 2GiB }] }\n"),
            "stage b: the output of a",
        ),
        (
            "stages:\n  - { name: a, function: f, when: failure }\n".to_owned(),
            "stage a: the entry has no parents",
        ),
        (
            format!("entry: a\n{}", stages("  - { name: b, function: f }\n")),
            "stage b cannot be reached from the entry a",
        ),
        (format!("entry: z\n{}", stages("")), "there is no stage z"),
        (
            format!("timeout: 0s\n{}", stages("")),
            "the workflow's timeout",
        ),
        ("stages: []\n".to_owned(), "no stage"),
    ] {
        let told = wrong(&text);
        assert!(told.contains(what), "{text}\n{told}");
    }
    let both = wrong(&stages(
        "  - { name: b, function: ghost, needs: [a], path: x }\n",
    ));
    assert!(
        both.contains("ghost") && both.contains("path"),
        "all at once: {both}"
    );
}

#[test]
fn bounds_hold() {
    let many: String = (0..=STAGES_MAX)
        .map(|n| {
            format!(
                "  - {{ name: s{n}, function: f, needs: [{}] }}\n",
                if n == 0 { "" } else { "s0" }
            )
        })
        .collect();
    assert!(wrong(&format!("stages:\n{many}")).contains("257 stages"));
    let all: Vec<String> = (0..50).map(|n| format!("s{n}")).collect();
    let dense: String = (0..50)
        .map(|n| {
            format!(
                "  - {{ name: s{n}, function: f, needs: [{}] }}\n",
                all[..n].join(", ")
            )
        })
        .collect();
    assert!(wrong(&format!("stages:\n{dense}")).contains("1225 edges"));
}
