//! Text records set through the API, together with everything else in the zone.

use hickory_proto::rr::Name;

use super::*;
use crate::policy::records::{NamedRecords, caa, text};

fn name(text: &str) -> Name {
    let mut name = Name::from_labels(text.split('.').map(str::as_bytes)).expect("a name");
    name.set_fqdn(true);
    name
}

fn set(owner: &str, ttl: u32, values: &[&str]) -> NamedRecords {
    NamedRecords {
        name: name(owner),
        ttl,
        data: values.iter().map(|value| text(value)).collect(),
    }
}

fn of_app(app: &str) -> Arc<AppTable> {
    table(app, &format!("{app}.fn.test"), &[])
}

fn names(records: Vec<NamedRecords>, apps: &[&str], texts: &[NamedRecords]) -> Names {
    let zone = ZoneData { records, ..zone() };
    let tables: Vec<_> = apps.iter().map(|app| of_app(app)).collect();
    let mut names = Names::new(&zone, &tables, Revision(7), true).expect("names");
    names.add_texts(texts);
    names
}

fn body<'a>(names: &'a Names, fleet: &'a Fleet, owner: &str, kind: RecordType) -> Body<'a> {
    let owner = LowerName::new(&name(owner));
    let question = Question {
        name: &owner,
        kind,
        class: DNSClass::IN,
    };
    let verdict = POLICY.answer(question, prefix("192.0.2.1"), 0, names, fleet, None);
    if kind == RecordType::TXT {
        assert_eq!(verdict.scope, 0, "the same for everybody");
    }
    verdict.body
}

/// The values of the text records of a name with their TTLs; `None` if the name does not exist.
fn values(names: &Names, owner: &str) -> Option<Vec<(u32, String)>> {
    let fleet = Fleet::default();
    match body(names, &fleet, owner, RecordType::TXT) {
        Body::Records(records, _) | Body::Wildcard(records, _) => Some(
            records
                .iter()
                .map(|record| (record.ttl, record.data.to_string()))
                .collect(),
        ),
        Body::NoData => Some(Vec::new()),
        Body::NxDomain => None,
        other => panic!("{other:?}"),
    }
}

fn told(ttl: u32, values: &[&str]) -> Vec<(u32, String)> {
    let fleet = Fleet::default();
    let names = names(vec![], &[], &[set("told.fn.test", ttl, values)]);
    let Body::Records(records, _) = body(&names, &fleet, "told.fn.test", RecordType::TXT) else {
        panic!("no records")
    };
    let told = records.iter().map(|r| (r.ttl, r.data.to_string()));
    told.collect()
}

#[test]
fn they_stand_below_apps_and_make_the_names_between_exist() {
    let texts = [
        set("_acme-challenge.hello.fn.test", 60, &["one", "two"]),
        set("_acme-challenge.deep.away.fn.test", 60, &["three"]),
        set("elsewhere.test", 60, &["not ours"]),
    ];
    let names = names(vec![], &["hello"], &texts);
    let fleet = Fleet::default();
    assert_eq!(
        values(&names, "_acme-challenge.hello.fn.test"),
        Some(told(60, &["one", "two"]))
    );
    // Another type of an existing name; empty non-terminals; and names that do not exist.
    for (owner, exists) in [
        ("_acme-challenge.hello.fn.test", true),
        ("deep.away.fn.test", true),
        ("away.fn.test", true),
        ("x._acme-challenge.hello.fn.test", false),
        ("other.hello.fn.test", false),
        ("x.away.fn.test", false),
    ] {
        let body = body(&names, &fleet, owner, RecordType::A);
        match exists {
            true => assert!(matches!(body, Body::NoData), "{owner}: {body:?}"),
            false => assert!(matches!(body, Body::NxDomain), "{owner}: {body:?}"),
        }
    }
    let types = |owner: &str| types_at(&LowerName::new(&name(owner)), &names, &fleet);
    assert_eq!(
        types("_acme-challenge.hello.fn.test"),
        Some(vec![RecordType::TXT])
    );
    assert_eq!(types("away.fn.test"), Some(vec![]));
    assert_eq!(names.apps(), 1);
    assert!(names.refused().is_empty());
}

#[test]
fn they_stand_beside_the_operators_own() {
    let mut own = set("both.fn.test", 300, &["own", "same"]);
    own.data.push(caa(false, "issue", "ca.example.org"));
    let wildcard = set("*.wild.fn.test", 30, &["from a wildcard"]);
    let texts = [
        set("both.fn.test", 60, &["same", "api"]),
        set("fn.test", 60, &["of the apex"]),
        set("ns1.fn.test", 60, &["of a server"]),
        set("leaf.wild.fn.test", 60, &["of the leaf"]),
        // The name of an app belongs to the app.
        set("hello.fn.test", 60, &["of an app"]),
    ];
    let names = names(vec![own, wildcard], &["hello"], &texts);
    let fleet = Fleet::default();
    // The set has a single TTL, the configured one, and each value once.
    assert_eq!(
        values(&names, "both.fn.test"),
        Some(told(300, &["own", "same", "api"]))
    );
    let Body::Records(authorities, _) = body(&names, &fleet, "both.fn.test", RecordType::CAA)
    else {
        panic!("no CAA record")
    };
    assert_eq!((authorities.len(), authorities[0].ttl), (1, 300));
    assert_eq!(values(&names, "fn.test"), Some(told(60, &["of the apex"])));
    assert_eq!(
        values(&names, "ns1.fn.test"),
        Some(told(60, &["of a server"]))
    );
    for kind in [RecordType::SOA, RecordType::NS] {
        assert!(matches!(
            body(&names, &fleet, "fn.test", kind),
            Body::Records(..)
        ));
    }
    assert_eq!(names.apex_ttl(), 3600);
    // An existing name is not covered by a wildcard, and neither are the names below it.
    assert_eq!(
        values(&names, "leaf.wild.fn.test"),
        Some(told(60, &["of the leaf"]))
    );
    assert_eq!(
        values(&names, "x.wild.fn.test"),
        Some(told(30, &["from a wildcard"]))
    );
    assert_eq!(values(&names, "x.leaf.wild.fn.test"), None);
    assert_eq!(values(&names, "hello.fn.test"), Some(vec![]));
}

#[test]
fn a_change_of_bindings_leaves_them() {
    let names = names(vec![], &["hello"], &[set("_a.hello.fn.test", 60, &["one"])]);
    let moved = names
        .with_tables([of_app("hello")])
        .expect("the same names");
    assert_eq!(values(&moved, "_a.hello.fn.test"), Some(told(60, &["one"])));
}
