//! The order of the rules, and that what one refuses is counted by none after it.

use std::cell::{Cell, RefCell};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::id::KeyId;
use crate::policy::quota::Window;

/// Counters that do as a test says and note what they were asked.
#[derive(Default)]
struct Fake {
    asked: RefCell<Vec<String>>,
    token: Option<TokenFault>,
    client_full: bool,
    app_full: bool,
    used: u64,
    busy: bool,
    counted: Cell<u32>,
}

impl Counters for Fake {
    fn verify(&self, _: &JwtRule, _: &str) -> Result<Claims, TokenFault> {
        self.asked.borrow_mut().push("verify".into());
        if let Some(fault) = self.token {
            return Err(fault);
        }
        let claims = json!({"iss": "i", "aud": "a", "exp": 4_000_000_000_u64, "sub": "me"});
        Ok(claims.as_object().expect("an object").clone())
    }

    fn rate(&self, scope: RateScope) -> RateState {
        let (name, full) = match scope {
            RateScope::App => ("app", self.app_full),
            RateScope::Client(_) => ("client", self.client_full),
        };
        self.asked.borrow_mut().push(name.into());
        RateState {
            admitted: !full,
            remaining: 5,
            reset: Duration::from_millis(1500),
        }
    }

    fn quota_usage(&self) -> QuotaUsage {
        self.asked.borrow_mut().push("used".into());
        QuotaUsage {
            window: Window::at(NOW),
            day: self.used,
            month: self.used,
        }
    }

    fn count(&self) {
        self.counted.set(self.counted.get() + 1);
    }

    fn enter(&self, _: u32) -> bool {
        self.asked.borrow_mut().push("enter".into());
        !self.busy
    }
}

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn spec(policy: &str) -> GatewaySpec {
    GatewaySpec {
        policy: toml::from_str(policy).expect(policy),
        ..GatewaySpec::default()
    }
}

/// Every rule at once.
fn full() -> GatewaySpec {
    spec(
        r#"
        concurrency = 1
        body_limit = "10B"
        addresses.deny = ["198.51.100.0/24"]
        rate = { app = { requests = 1 }, client = { requests = 1 } }
        quota.per_day = 10
        cors.origins = ["https://a.example"]
        [authentication]
        kind = "jwt"
        jwks_url = "https://id.example/k"
        issuers = ["i"]
        audiences = ["a"]
        "#,
    )
}

fn facts(address: &str) -> RequestFacts<'static> {
    RequestFacts {
        address: Some(address.parse().expect("address")),
        preflight: None,
        api_key: None,
        bearer: Some("token"),
        content_length: Some(10),
    }
}

fn refused(verdict: Verdict) -> Refused {
    match verdict {
        Verdict::Refuse(refused) => refused,
        Verdict::Admit(_) | Verdict::Preflight(_) => panic!("{verdict:?}"),
    }
}

#[test]
fn without_a_policy_nothing_is_asked() {
    let counters = Fake::default();
    let verdict = decide(&GatewaySpec::default(), &facts("192.0.2.1"), NOW, &counters);
    assert_eq!(verdict, Verdict::Admit(Admitted::default()));
    assert!(counters.asked.borrow().is_empty() && counters.counted.get() == 0);
}

/// Each rule refuses before those after it are asked, and an admitted call is counted once.
#[test]
fn the_order_is_kept() {
    let large = RequestFacts {
        content_length: Some(11),
        ..facts("192.0.2.1")
    };
    let preflight = RequestFacts {
        preflight: Some(Preflight {
            origin: "https://b.example",
            method: "PUT",
            headers: "",
        }),
        bearer: None,
        ..facts("192.0.2.1")
    };
    let none = RequestFacts {
        bearer: None,
        ..facts("192.0.2.1")
    };
    let here = || facts("192.0.2.1");
    let ok = Fake::default;
    let cases: Vec<(RequestFacts<'_>, Fake, Reason, &[&str])> = vec![
        (facts("198.51.100.9"), ok(), Reason::Address, &[]),
        (preflight, ok(), Reason::Preflight, &[]),
        (none, ok(), Reason::NoCredentials, &[]),
        (
            here(),
            Fake {
                token: Some(TokenFault::UnknownKey),
                ..ok()
            },
            Reason::BadCredentials,
            &["verify"],
        ),
        (
            here(),
            Fake {
                token: Some(TokenFault::NoKeys),
                ..ok()
            },
            Reason::NoKeys,
            &["verify"],
        ),
        (
            here(),
            Fake {
                client_full: true,
                ..ok()
            },
            Reason::ClientRate,
            &["verify", "client"],
        ),
        (
            here(),
            Fake {
                app_full: true,
                ..ok()
            },
            Reason::AppRate,
            &["verify", "client", "app"],
        ),
        (
            here(),
            Fake { used: 10, ..ok() },
            Reason::Quota,
            &["verify", "client", "app", "used"],
        ),
        (
            large,
            ok(),
            Reason::Body,
            &["verify", "client", "app", "used"],
        ),
        (
            here(),
            Fake { busy: true, ..ok() },
            Reason::Concurrency,
            &["verify", "client", "app", "used", "enter"],
        ),
    ];
    for (facts, counters, reason, asked) in cases {
        let refused = refused(decide(&full(), &facts, NOW, &counters));
        assert_eq!(refused.reason, reason);
        assert_eq!(*counters.asked.borrow(), asked, "{reason:?}");
        assert_eq!(counters.counted.get(), 0, "{reason:?}");
    }
    let counters = ok();
    let Verdict::Admit(admitted) = decide(&full(), &here(), NOW, &counters) else {
        panic!("refused");
    };
    assert_eq!(admitted.identity, Identity::Subject("me".into()));
    assert_eq!(
        admitted.budget.map(|b| (b.name, b.remaining)),
        Some(("client", 5))
    );
    assert!(admitted.entered && counters.counted.get() == 1);
}

#[test]
fn refusals_say_when_to_come_again() {
    let counters = Fake {
        client_full: true,
        ..Fake::default()
    };
    let rate = refused(decide(&full(), &facts("192.0.2.1"), NOW, &counters));
    assert_eq!(rate.retry_after_s, Some(2));
    assert_eq!(rate.budget.map(|b| b.remaining), Some(0));
    let counters = Fake {
        used: 11,
        ..Fake::default()
    };
    let quota = refused(decide(&full(), &facts("192.0.2.1"), NOW, &counters));
    let until = Window::at(NOW).day_ends().since(NOW).as_secs();
    assert_eq!(quota.retry_after_s, Some(until));
}

#[test]
fn a_preflight_needs_no_credentials() {
    let asked = RequestFacts {
        preflight: Some(Preflight {
            origin: "https://a.example",
            method: "POST",
            headers: "",
        }),
        bearer: None,
        ..facts("192.0.2.1")
    };
    let verdict = decide(&full(), &asked, NOW, &Fake::default());
    assert!(matches!(verdict, Verdict::Preflight(_)), "{verdict:?}");
}

#[test]
fn a_key_comes_in_either_field() {
    let id = KeyId::from_uuid(uuid::Uuid::from_u128(7));
    let text = key::text(id, "secret");
    let mut spec = spec("authentication.kind = \"api_key\"");
    spec.keys.push(ApiKey {
        id,
        name: "ci".parse().expect("name"),
        hash: Digest::of(text.as_bytes()),
        expires_at: None,
    });
    let none = RequestFacts {
        bearer: None,
        ..facts("192.0.2.1")
    };
    let given = |api_key, bearer| {
        let facts = RequestFacts {
            api_key,
            bearer,
            ..none
        };
        decide(&spec, &facts, NOW, &Fake::default())
    };
    for verdict in [
        given(Some(text.as_str()), None),
        given(None, Some(text.as_str())),
    ] {
        let Verdict::Admit(admitted) = verdict else {
            panic!("{verdict:?}");
        };
        assert_eq!(admitted.identity.header().as_deref(), Some("key:ci"));
        assert!(admitted.by_key);
    }
    assert_eq!(refused(given(None, None)).reason, Reason::NoCredentials);
    assert_eq!(
        refused(given(Some("x"), None)).reason,
        Reason::BadCredentials
    );
    // A token that is none of the network's keys is a function's own affair, not a wrong key.
    assert_eq!(
        refused(given(None, Some("x"))).reason,
        Reason::NoCredentials
    );
}

#[test]
fn clients_are_counted_by_address_or_subnet() {
    let key = |text: &str| ClientKey::of_address(Some(text.parse().expect("address")));
    assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
    assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
    assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
    assert_ne!(ClientKey::Address(1), ClientKey::Identity(1));
}

proptest! {
    /// Deny always wins; without an allow list everybody else may call, with one only those on it.
    #[test]
    fn address_lists(allow in proptest::option::of(0u8..4), deny in proptest::option::of(0u8..4), from in 0u8..4) {
        let list = |n: Option<u8>| n.map_or(String::new(), |n| format!("\"10.0.{n}.0/24\""));
        let spec = spec(&format!("addresses = {{ allow = [{}], deny = [{}] }}", list(allow), list(deny)));
        let verdict = decide(&spec, &facts(&format!("10.0.{from}.9")), NOW, &Fake::default());
        let expected = deny != Some(from) && allow.is_none_or(|allowed| allowed == from);
        prop_assert_eq!(matches!(verdict, Verdict::Admit(_)), expected);
    }
}

/// Nobody is let in, whatever else the policy says, and nothing is asked or counted.
#[test]
fn an_app_of_a_suspended_tenant_is_refused_first() {
    let counters = Fake::default();
    let spec = GatewaySpec {
        suspended: true,
        ..full()
    };
    let verdict = decide(&spec, &facts("192.0.2.1"), NOW, &counters);
    let refused = refused(verdict);
    assert_eq!(refused.reason, Reason::Suspended);
    assert_eq!(refused.reason.code().as_str(), "FDN-2037");
    assert!(counters.asked.borrow().is_empty() && counters.counted.get() == 0);
    assert!(!spec.is_empty(), "it is sent to the gateways");
}
