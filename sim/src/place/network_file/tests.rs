use serde_json::{Value, json};

use super::*;

fn sound() -> Value {
    json!({
        "clusters": [
            {"id": "c0", "speed": 1.0, "slots": 2, "idle": {"memory_mib": 65536}},
            {"id": "c1", "speed": 2, "slots": 1},
            {"id": "c2", "speed": 0.5, "slots": 4, "idle": {"memory_mib": 1, "cpu_milli": 2, "gpu_memory_mib": 3}}
        ],
        "links": [
            {"a": "c0", "b": "c1", "mb_per_s": 100.0, "latency_ms": 2.5},
            {"a": "c2", "b": "c0", "mb_per_s": 50},
            {"a": "c1", "b": "c2", "mb_per_s": 25}
        ],
        "clients": [{"id": "u0", "latency_ms": {"c0": 12.5, "c1": 80.0, "c2": 0}}]
    })
}

fn parse(value: &Value) -> Result<NetworkModel, Error> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), value.to_string()).expect("written");
    read(file.path())
}

/// Where the fault is, and what is said about it, after one value has been replaced.
fn refused(pointer: &str, value: Value) -> String {
    let mut file = sound();
    *file.pointer_mut(pointer).expect("the value is there") = value;
    match parse(&file).expect_err("refused") {
        Error::Input { at, expected, .. } => format!("{at}: {expected}"),
        other => panic!("{other}"),
    }
}

#[test]
fn links_serve_both_directions_and_what_is_left_out_is_without_bound() {
    let model = parse(&sound()).expect("sound");
    let time = |from, to| model.network().time(from, to, 1_000_000).get();
    assert_eq!((time(0, 1), time(1, 0)), (12.5, 12.5));
    assert_eq!((time(0, 2), time(2, 0), time(2, 1)), (20.0, 20.0, 40.0));
    let [c0, c1, c2] = model.clusters() else {
        panic!("three clusters")
    };
    assert_eq!((c0.slots.len(), c0.free.memory_mib), (2, MebiBytes(65536)));
    assert_eq!(c0.free.cpu_milli, Resources::UNLIMITED.cpu_milli);
    assert_eq!(c1.free, Resources::UNLIMITED);
    assert_eq!(
        (c2.free.cpu_milli, c2.free.gpu_memory_mib),
        (MilliCpu(2), MebiBytes(3))
    );
    assert_eq!(
        model.distance(Some("u0")).expect("there"),
        [12.5, 80.0, 0.0].map(Millis::new)
    );
    let mut without = sound();
    without
        .as_object_mut()
        .expect("an object")
        .remove("clients");
    assert!(
        parse(&without)
            .expect("sound")
            .distance(Some("u0"))
            .is_err()
    );
    let alone = json!({"clusters": [{"id": "c0", "speed": 1, "slots": 1}]});
    assert_eq!(parse(&alone).expect("sound").clusters().len(), 1);
}

#[test]
fn clusters_that_are_none_are_named_with_their_path() {
    for (pointer, value, text) in [
        (
            "/clusters/0/speed",
            json!(0),
            "clusters[0].speed: 0; expected a number above 0",
        ),
        (
            "/clusters/2/speed",
            json!(-1),
            "clusters[2].speed: -1; expected a number above 0",
        ),
        (
            "/clusters/1/speed",
            json!(null),
            "clusters[1].speed: invalid type: null",
        ),
        (
            "/clusters/1/slots",
            json!(0),
            "clusters[1].slots: 0; expected 1 to 4096",
        ),
        (
            "/clusters/1/slots",
            json!(4097),
            "clusters[1].slots: 4097; expected 1 to 4096",
        ),
        (
            "/clusters/1/slots",
            json!(1.5),
            "clusters[1].slots: invalid type: floating point",
        ),
        (
            "/clusters/1/id",
            json!("c0"),
            "clusters[1].id: c0 is there already, as clusters[0]; each id once",
        ),
        ("/clusters/1/id", json!("C 1"), "clusters[1].id: "),
        (
            "/clusters/0/idle/memory_mib",
            json!(-5),
            "clusters[0].idle.memory_mib: invalid value",
        ),
        (
            "/clusters/0/idle",
            json!({"memory": 5}),
            "clusters[0].idle.memory: unknown field `memory`",
        ),
        (
            "/clusters",
            json!([]),
            "clusters: 0 clusters; expected 1 to 1024",
        ),
        ("/links", json!({}), "links: invalid type: map"),
    ] {
        let found = refused(pointer, value);
        assert!(found.starts_with(text), "{found}");
    }
}

#[test]
fn links_and_clients_that_are_none_are_named_with_their_path() {
    for (pointer, value, text) in [
        (
            "/links/0/mb_per_s",
            json!(0.0),
            "links[0].mb_per_s: 0; expected a number above 0",
        ),
        (
            "/links/2/mb_per_s",
            json!(-3),
            "links[2].mb_per_s: -3; expected a number above 0",
        ),
        (
            "/links/0/latency_ms",
            json!(-1),
            "links[0].latency_ms: -1; expected milliseconds, 0 or more",
        ),
        (
            "/links/1/a",
            json!("c7"),
            "links[1].a: c7 is no cluster; expected the id of one",
        ),
        (
            "/links/1/b",
            json!("c2"),
            "links[1].b: c2 on both sides; expected two clusters",
        ),
        (
            "/links/1",
            json!({"a": "c1", "b": "c0", "mb_per_s": 1}),
            "links[1]: c1 and c0 are joined already; each pair once",
        ),
        (
            "/links",
            json!([]),
            "links: none joins c0 and c1; expected one for each pair",
        ),
        (
            "/clients/0/latency_ms",
            json!({"c0": 1, "c2": 1}),
            "clients[0].latency_ms: none to c1; expected one for each cluster",
        ),
        (
            "/clients/0/latency_ms/c1",
            json!(-1),
            "clients[0].latency_ms.c1: -1; expected milliseconds",
        ),
        (
            "/clients/0/latency_ms",
            json!({"c0": 1, "c1": 1, "c2": 1, "c9": 1}),
            "clients[0].latency_ms.c9: c9 is no cluster; expected the id of one",
        ),
        (
            "/clients",
            json!([{"id": "u", "latency_ms": {"c0": 1, "c1": 1, "c2": 1}}, {"id": "u", "latency_ms": {}}]),
            "clients[1].id: u is there already; each id once",
        ),
    ] {
        let found = refused(pointer, value);
        assert!(found.starts_with(text), "{found}");
    }
    let mut missing = sound();
    missing["links"].as_array_mut().expect("a list").remove(2);
    let text = parse(&missing).expect_err("no link").to_string();
    assert!(
        text.ends_with(": links: none joins c1 and c2; expected one for each pair"),
        "{text}"
    );
}

#[test]
fn numbers_beyond_all_bounds_are_no_json() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    for rate in ["NaN", "1e999", "Infinity"] {
        let text = sound().to_string().replace("100.0", rate);
        std::fs::write(file.path(), text).expect("written");
        assert!(
            matches!(read(file.path()), Err(Error::Input { .. })),
            "{rate}"
        );
    }
}
