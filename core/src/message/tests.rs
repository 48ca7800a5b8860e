//! Messages survive their JSON.

use uuid::Uuid;

use crate::id::TenantId;

use super::*;

#[test]
fn an_envelope_survives_json_and_knows_its_channel() {
    let message = Message::AppDesired(AppDesired {
        app: "hello".parse().expect("app"),
        revision: Revision(7),
        spec: Some(AppSpec {
            holders: Holders::EVERYWHERE,
            host: "hello.fn.test".parse().expect("host"),
            workflow: Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST),
            functions: vec![FunctionSpec {
                function: "hello".parse().expect("function"),
                version: VersionNumber::FIRST,
                digest: Digest::of(b"x"),
                size: 1,
                manifest: Manifest::default(),
                secrets: BTreeMap::new(),
                forms: Vec::new(),
            }],
            primary: BTreeSet::new(),
            leaving: BTreeSet::new(),
            run: None,
            gateway: Box::default(),
            forms: Default::default(),
            tenant: Some(TenantId::from_uuid(Uuid::from_u128(7)).tag()),
        }),
    });
    assert_eq!(message.channel(), Some(Channel::Changes));
    let envelope = Envelope::new(
        MessageId::from_uuid(Uuid::from_u128(1)),
        Timestamp(5),
        message,
    );
    let json = serde_json::to_string(&envelope).expect("json");
    assert_eq!(
        serde_json::from_str::<Envelope>(&json).expect("own json"),
        envelope
    );
}

/// An app as a controller told it before there were tenants in it, and as an older agent reads what is told now: what it does not know it leaves out.
#[test]
fn an_app_without_its_tenant_is_read_and_written_as_before() {
    let old = r#"{"host":"hello.fn.test","workflow":{"stages":[{"name":"hello","function":"hello","version":1}],"edges":[]},"functions":[],"primary":[]}"#;
    let mut spec: AppSpec = serde_json::from_str(old).expect("an older form");
    assert_eq!(spec.tenant, None);
    assert_eq!(serde_json::to_string(&spec).expect("JSON"), old);
    spec.tenant = Some(TenantId::from_uuid(Uuid::from_u128(7)).tag());
    let told = serde_json::to_value(&spec).expect("JSON");
    assert_eq!(
        told["tenant"],
        spec.tenant.map(String::from).expect("a tag")
    );
    assert_eq!(
        serde_json::from_value::<AppSpec>(told).expect("own JSON"),
        spec
    );
}

#[test]
fn text_records_travel_to_dns_servers() {
    let message = Message::TxtDesired(TxtDesired {
        name: "_acme-challenge.hello.fn.test".parse().expect("name"),
        revision: Revision(7),
        state: Some(TxtRecords {
            ttl_s: 60,
            values: vec!["one".to_owned(), "two".to_owned()],
            expires_at: None,
        }),
    });
    assert_eq!(
        (message.channel(), message.kind()),
        (Some(Channel::Changes), "txt_desired")
    );
    let json = serde_json::to_string(&message).expect("json");
    assert!(!json.contains("expires_at"), "{json}");
    assert_eq!(
        serde_json::from_str::<Message>(&json).expect("own json"),
        message
    );
}

#[test]
fn sealed_values_do_not_show() {
    assert_eq!(format!("{:?}", Sealed("c2VjcmV0".into())), "Sealed(…)");
}
