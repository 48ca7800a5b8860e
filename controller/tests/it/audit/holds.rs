//! The states before and after that the audit entry of each write must contain.

use std::collections::BTreeMap;

use fdn_core::account::AuditRecord;

/// The states in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// Only the state after.
    Made,
    /// Only the state before.
    Gone,
    /// Both, and they differ.
    Changed,
    /// Neither: the change is of a secret, which is never logged.
    Secret,
}

use Holds::{Changed, Gone, Made, Secret};

/// By operation, one for each time that the walk performs it.
const TABLE: [(&str, &[Holds]); 65] = [
    ("POST /v1/apps/{app}/versions", &[Made, Changed]),
    ("PUT /v1/apps/{app}/secrets/{secret}", &[Made]),
    ("DELETE /v1/apps/{app}/secrets/{secret}", &[Gone]),
    ("PUT /v1/apps/{app}/policy", &[Made]),
    ("DELETE /v1/apps/{app}/policy", &[Gone]),
    ("POST /v1/apps/{app}/keys", &[Made]),
    ("DELETE /v1/apps/{app}/keys/{key}", &[Gone]),
    ("PUT /v1/apps/{app}/traffic", &[Made]),
    ("PUT /v1/apps/{app}/dns", &[Changed]),
    ("PUT /v1/sets/{set}", &[Made]),
    ("PUT /v1/apps/{app}/workflow", &[Made]),
    ("DELETE /v1/apps/{app}", &[Gone, Gone]),
    ("DELETE /v1/jobs/{job}", &[Changed]),
    ("POST /v1/jobs/{job}/redrive", &[Changed]),
    ("POST /v1/apps/{app}/jobs/redrive", &[Changed]),
    ("PUT /v1/apps/{app}/schedules/{name}", &[Made]),
    ("DELETE /v1/apps/{app}/schedules/{name}", &[Gone]),
    ("PATCH /v1/apps/{app}/env", &[Changed]),
    ("PUT /v1/apps/{app}/objective", &[Made]),
    ("DELETE /v1/apps/{app}/objective", &[Gone]),
    ("POST /v1/apps/{app}/domains", &[Made]),
    ("POST /v1/apps/{app}/domains/{host}/verify", &[Changed]),
    ("DELETE /v1/apps/{app}/domains/{host}", &[Gone]),
    ("PUT /v1/dns/txt/{name}", &[Made]),
    ("POST /v1/dns/txt/{name}", &[Changed]),
    ("DELETE /v1/dns/txt/{name}", &[Gone]),
    ("POST /v1/apps/{app}/rollback", &[Changed]),
    ("DELETE /v1/apps/{app}/versions/{version}", &[Gone]),
    ("POST /v1/catalogue/{name}/deploy", &[Made]),
    ("PUT /v1/apps/{app}/labels", &[Changed]),
    ("PUT /v1/tenants/{tenant}/signing-keys/{name}", &[Made]),
    ("DELETE /v1/tenants/{tenant}/signing-keys/{name}", &[Gone]),
    (
        "PUT /v1/tenants/{tenant}/signature-policy",
        &[Changed, Changed],
    ),
    ("POST /v1/users", &[Made]),
    ("PATCH /v1/users/{user}", &[Changed]),
    ("PUT /v1/users/{user}/password", &[Secret]),
    ("POST /v1/invitations", &[Made]),
    ("POST /v1/invitations/accept", &[Made]),
    ("DELETE /v1/users/{user}", &[Gone]),
    ("POST /v1/login", &[Made, Made]),
    ("POST /v1/session", &[Made]),
    ("DELETE /v1/session", &[Gone]),
    ("DELETE /v1/sessions/{session}", &[Gone]),
    ("POST /v1/password", &[Secret]),
    ("POST /v1/tenants", &[Made]),
    ("PATCH /v1/tenants/{tenant}", &[Changed]),
    ("DELETE /v1/tenants/{tenant}", &[Gone]),
    ("PUT /v1/tenants/{tenant}/members/{user}", &[Made, Made]),
    ("DELETE /v1/tenants/{tenant}/members/{user}", &[Gone]),
    ("POST /v1/tokens", &[Made]),
    ("DELETE /v1/tokens/{api_token}", &[Gone]),
    ("POST /v1/clusters", &[Made]),
    ("POST /v1/join-tokens", &[Made]),
    ("DELETE /v1/join-tokens/{token}", &[Gone]),
    ("POST /v1/nodes/enrol", &[Made]),
    ("POST /v1/nodes/renew", &[Changed]),
    ("POST /v1/nodes/{node}/drain", &[Changed]),
    ("POST /v1/nodes/{node}/uncordon", &[Changed]),
    ("POST /v1/nodes/{node}/restore-device", &[Changed]),
    ("DELETE /v1/nodes/{node}", &[Gone]),
    ("DELETE /v1/dns-servers/{server}", &[Gone]),
    ("POST /v1/billing/prices", &[Made]),
    ("DELETE /v1/billing/prices/{name}", &[Gone]),
    ("PUT /v1/billing/budgets/{name}", &[Made]),
    ("DELETE /v1/billing/budgets/{name}", &[Gone]),
];

/// Counts the writes of a walk and checks the entry of each.
#[derive(Default)]
pub(super) struct States(BTreeMap<String, usize>);

impl States {
    /// The operations that were checked.
    pub(super) fn operations(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Checks the states of an entry.
    pub(super) fn look(&mut self, operation: &str, entry: &AuditRecord) {
        let time = self.0.entry(operation.to_owned()).or_default();
        let (_, times) = TABLE
            .iter()
            .find(|(name, _)| *name == operation)
            .unwrap_or_else(|| panic!("the table says nothing of {operation}"));
        let expected = times
            .get(*time)
            .unwrap_or_else(|| panic!("{operation} is walked once more than the table says"));
        *time += 1;
        let holds = match (&entry.before, &entry.after) {
            (None, Some(_)) => Made,
            (Some(_), None) => Gone,
            (Some(before), Some(after)) => {
                assert_ne!(before, after, "{operation} has changed something");
                Changed
            }
            (None, None) => Secret,
        };
        assert_eq!(
            holds, *expected,
            "{operation}: {:?} {:?}",
            entry.before, entry.after
        );
    }
}
