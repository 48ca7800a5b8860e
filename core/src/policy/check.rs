//! Validation of policies. Every refusal names the field.

use std::net::IpAddr;

use url::Url;

use super::{Authentication, Cors, JwtRule, Policy, QuotaRule, Rate, SecurityHeaders};
use crate::error::{Coded, ErrorCode};
use crate::prefix::ClientPrefix;
use crate::unit::DurationMs;

/// The most prefixes in one list.
const PREFIXES_MAX: usize = 1000;
/// The most entries in any other list.
const LIST_MAX: usize = 50;
/// The most bytes of one text.
const TEXT_MAX: usize = 2048;
/// The highest number of calls of a rate.
const REQUESTS_MAX: u32 = 1_000_000;
/// The highest limit on concurrent calls or jobs.
const CONCURRENCY_MAX: u32 = 100_000;

/// A policy is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct PolicyError {
    /// The path of the field, with dots between its parts.
    pub field: String,
    /// What is wrong with it, and what is allowed.
    pub problem: String,
}

impl PolicyError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

impl Coded for PolicyError {
    fn code(&self) -> ErrorCode {
        ErrorCode::PolicyInvalid
    }
}

type Checked = Result<(), PolicyError>;

impl Policy {
    /// Validates the policy.
    ///
    /// # Errors
    /// The first field that is not valid, and what is allowed.
    pub fn check(&self) -> Checked {
        prefixes("addresses.allow", &self.addresses.allow)?;
        prefixes("addresses.deny", &self.addresses.deny)?;
        if let Some(cors) = &self.cors {
            cors.check()?;
        }
        match &self.authentication {
            Authentication::None | Authentication::ApiKey {} => {}
            Authentication::Jwt(rule) => rule.check()?,
        }
        if let Some(rate) = &self.rate.app {
            rate.check("rate.app")?;
        }
        if let Some(rate) = &self.rate.client {
            rate.check("rate.client")?;
        }
        self.quota.check()?;
        if let Some(calls) = self.concurrency {
            within("concurrency", calls, 1, CONCURRENCY_MAX)?;
        }
        if let Some(jobs) = self.jobs_at_once {
            within("jobs_at_once", jobs, 1, CONCURRENCY_MAX)?;
        }
        self.security_headers.check()
    }
}

fn prefixes(field: &str, list: &[ClientPrefix]) -> Checked {
    if list.len() > PREFIXES_MAX {
        return Err(PolicyError::new(
            field,
            format!("at most {PREFIXES_MAX} prefixes, not {}", list.len()),
        ));
    }
    Ok(())
}

fn within<T: PartialOrd + std::fmt::Display>(field: &str, value: T, least: T, most: T) -> Checked {
    if value < least || value > most {
        let problem = format!("must be from {least} to {most}, not {value}");
        return Err(PolicyError::new(field, problem));
    }
    Ok(())
}

/// Checks a list of texts: not too many, none empty or too long, each valid in a header; `needed` requires at least one.
fn texts(field: &str, list: &[String], needed: bool) -> Checked {
    if needed && list.is_empty() {
        return Err(PolicyError::new(field, "must name at least one"));
    }
    if list.len() > LIST_MAX {
        return Err(PolicyError::new(
            field,
            format!("at most {LIST_MAX} entries, not {}", list.len()),
        ));
    }
    list.iter().try_for_each(|text| header_text(field, text))
}

fn header_text(field: &str, text: &str) -> Checked {
    let fits =
        (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !fits {
        return Err(PolicyError::new(
            field,
            format!("must be from 1 to {TEXT_MAX} printable ASCII characters"),
        ));
    }
    Ok(())
}

/// A header name or method (RFC 9110, section 5.6.2).
fn token(field: &str, text: &str) -> Checked {
    let is_token = !text.is_empty()
        && text.len() <= 64
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !is_token {
        return Err(PolicyError::new(
            field,
            format!("{text:?} is not a header name or method"),
        ));
    }
    Ok(())
}

impl Rate {
    fn check(&self, field: &str) -> Checked {
        within(&format!("{field}.requests"), self.requests, 1, REQUESTS_MAX)?;
        within(
            &format!("{field}.per"),
            self.per,
            DurationMs::from_secs(1),
            DurationMs::from_secs(3600),
        )?;
        within(&format!("{field}.burst"), self.burst(), 1, REQUESTS_MAX)
    }
}

impl QuotaRule {
    fn check(&self) -> Checked {
        for (field, calls) in [
            ("quota.per_day", self.per_day),
            ("quota.per_month", self.per_month),
        ] {
            if let Some(calls) = calls {
                within(field, calls, 1, 1 << 53)?;
            }
        }
        Ok(())
    }
}

impl Cors {
    fn check(&self) -> Checked {
        texts("cors.origins", &self.origins, true)?;
        for origin in &self.origins {
            if !is_origin(origin) {
                return Err(PolicyError::new(
                    "cors.origins",
                    format!(
                        "{origin:?} is not an origin: a scheme, a host, a port if it is not the usual one, and nothing more; or `*`"
                    ),
                ));
            }
        }
        if self.credentials && self.origins.iter().any(|origin| origin == "*") {
            return Err(PolicyError::new(
                "cors.credentials",
                "cannot be true while cors.origins has `*`: any page could act in a user's name",
            ));
        }
        for (field, list) in [
            ("cors.methods", &self.methods),
            ("cors.headers", &self.headers),
            ("cors.expose", &self.expose),
        ] {
            texts(field, list, false)?;
            list.iter().try_for_each(|text| token(field, text))?;
        }
        if self.credentials && self.headers.iter().any(|header| header == "*") {
            return Err(PolicyError::new(
                "cors.headers",
                "`*` means nothing to browsers while cors.credentials is true; name the headers",
            ));
        }
        within(
            "cors.max_age",
            self.max_age,
            DurationMs::from_millis(0),
            DurationMs::from_secs(86_400),
        )
    }
}

fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    // A star stands for leading labels only; with a label in its place, the rule must be an origin.
    let concrete = text.replacen("://*.", "://star.", 1);
    let Ok(url) = Url::parse(&concrete) else {
        return false;
    };
    matches!(url.scheme(), "http" | "https")
        && !concrete.contains('*')
        && url.origin().ascii_serialization() == concrete
}

impl JwtRule {
    fn check(&self) -> Checked {
        let field = "authentication.jwks_url";
        header_text(field, &self.jwks_url)?;
        let url = Url::parse(&self.jwks_url)
            .map_err(|error| PolicyError::new(field, format!("is not a URL: {error}")))?;
        let allowed = url.scheme() == "https" || (url.scheme() == "http" && is_loopback(&url));
        if !allowed || !url.username().is_empty() || url.password().is_some() {
            return Err(PolicyError::new(
                field,
                "must be an https URL without user information (http on a loopback address is for tests)",
            ));
        }
        texts("authentication.issuers", &self.issuers, true)?;
        texts("authentication.audiences", &self.audiences, true)?;
        if self.algorithms.is_empty() {
            return Err(PolicyError::new(
                "authentication.algorithms",
                "must name at least one",
            ));
        }
        within(
            "authentication.leeway",
            self.leeway,
            DurationMs::from_millis(0),
            DurationMs::from_secs(600),
        )?;
        let names: Vec<String> = self.required_claims.keys().cloned().collect();
        texts("authentication.required_claims", &names, false)?;
        for (claim, values) in &self.required_claims {
            texts(
                &format!("authentication.required_claims.{claim}"),
                values,
                false,
            )?;
        }
        Ok(())
    }
}

/// Whether a URL's host is a loopback address literal; a name does not count, since its resolution could change.
#[must_use]
pub(super) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(v4)) => IpAddr::V4(v4).is_loopback(),
        Some(url::Host::Ipv6(v6)) => IpAddr::V6(v6).is_loopback(),
        Some(url::Host::Domain(_)) | None => false,
    }
}

impl SecurityHeaders {
    fn check(&self) -> Checked {
        for (field, text) in [
            ("security_headers.referrer_policy", &self.referrer_policy),
            (
                "security_headers.content_security_policy",
                &self.content_security_policy,
            ),
        ] {
            if let Some(text) = text {
                header_text(field, text)?;
            }
        }
        if let Some(age) = self.hsts {
            let most = DurationMs::from_secs(2 * 366 * 86_400);
            within(
                "security_headers.hsts",
                age,
                DurationMs::from_millis(0),
                most,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(toml: &str) -> Policy {
        toml::from_str(toml).expect(toml)
    }

    #[test]
    fn nothing_said_is_an_empty_policy_and_survives_json() {
        let empty = policy("");
        assert!(empty.is_empty());
        empty.check().expect("empty");
        let full = policy(
            r#"
            concurrency = 10
            body_limit = "1MiB"
            [addresses]
            allow = ["192.0.2.0/24", "2001:db8::/32"]
            deny = ["192.0.2.7"]
            [authentication]
            kind = "jwt"
            jwks_url = "https://id.example/jwks"
            issuers = ["https://id.example"]
            audiences = ["api"]
            required_claims = { role = ["admin"], email = [] }
            [rate]
            app = { requests = 100 }
            client = { requests = 10, per = "1m", burst = 3 }
            [quota]
            per_day = 1000
            [cors]
            origins = ["https://*.example.org", "http://localhost:3000"]
            [security_headers]
            nosniff = true
            frame_options = "deny"
            hsts = "24h"
            "#,
        );
        full.check().expect("full");
        let json = serde_json::to_string(&full).expect("json");
        assert_eq!(serde_json::from_str::<Policy>(&json).expect("own"), full);
        assert_eq!(full.rate.app.expect("rate").burst(), 100);
        assert_eq!(full.rate.client.expect("rate").burst(), 3);
        let headers = full.security_headers.headers();
        assert!(headers.contains(&("strict-transport-security", "max-age=86400".to_owned())));
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let error = toml::from_str::<Policy>("[rate]\napps = { requests = 1 }").expect_err("apps");
        assert!(error.to_string().contains("apps"), "{error}");
        let error =
            toml::from_str::<Policy>("[authentication]\nkind = \"api_key\"\nheader = \"x\"")
                .expect_err("header");
        assert!(error.to_string().contains("header"), "{error}");
    }

    #[test]
    fn what_cannot_work_is_named() {
        let jwt = |extra: &str| {
            format!(
                "[authentication]\nkind = \"jwt\"\njwks_url = \"https://a.example/k\"\nissuers = [\"i\"]\naudiences = [\"a\"]\n{extra}"
            )
        };
        let cases: Vec<(String, &str)> = vec![
            ("concurrency = 0".into(), "concurrency"),
            ("rate.app = { requests = 0 }".into(), "rate.app.requests"),
            (
                "rate.client = { requests = 1, per = \"10ms\" }".into(),
                "rate.client.per",
            ),
            ("quota.per_month = 0".into(), "quota.per_month"),
            ("cors.origins = []".into(), "cors.origins"),
            ("cors.origins = [\"example.org\"]".into(), "cors.origins"),
            (
                "cors.origins = [\"https://a.example/\"]".into(),
                "cors.origins",
            ),
            (
                "cors.origins = [\"https://a.*.example\"]".into(),
                "cors.origins",
            ),
            (
                "cors = { origins = [\"*\"], credentials = true }".into(),
                "cors.credentials",
            ),
            (
                "cors = { origins = [\"https://a.example\"], methods = [\"GET, PUT\"] }".into(),
                "cors.methods",
            ),
            (
                "cors = { origins = [\"*\"], max_age = \"48h\" }".into(),
                "cors.max_age",
            ),
            (jwt("algorithms = []"), "authentication.algorithms"),
            (jwt("leeway = \"1h\""), "authentication.leeway"),
            (
                jwt("").replace("https://a.example/k", "http://a.example/k"),
                "authentication.jwks_url",
            ),
            (
                jwt("").replace("https://a.example/k", "http://localhost/k"),
                "authentication.jwks_url",
            ),
            (
                jwt("").replace("issuers = [\"i\"]", "issuers = []"),
                "authentication.issuers",
            ),
            (
                "security_headers.referrer_policy = \"a\\nb\"".into(),
                "security_headers.referrer_policy",
            ),
        ];
        for (text, field) in cases {
            let error = policy(&text).check().expect_err(&text);
            assert_eq!(error.field, field, "{error}");
        }
        policy(&jwt("").replace("https://a.example/k", "http://127.0.0.1:9/k"))
            .check()
            .expect("loopback");
    }
}
