//! The CORS protocol (Fetch standard, section 3.3): headers that tell a browser whether a page of another origin may read a response.
//!
//! CORS keeps pages from reading responses, not clients from calling: a call from an origin that is not allowed is served without these
//! headers, and the browser withholds the response from the page. Only a preflight is refused.

use super::Cors;

/// The headers of a preflight request.
#[derive(Clone, Copy, Debug)]
pub struct Preflight<'a> {
    /// The `origin` header.
    pub origin: &'a str,
    /// The `access-control-request-method` header.
    pub method: &'a str,
    /// The `access-control-request-headers` header; empty if absent.
    pub headers: &'a str,
}

impl Cors {
    /// The value of `access-control-allow-origin` for this origin; `None` if it is not allowed.
    #[must_use]
    pub fn allows<'a>(&self, origin: &'a str) -> Option<&'a str> {
        let mut any = false;
        for rule in &self.origins {
            if rule == "*" {
                any = true;
            } else if matches(rule, origin) {
                return Some(origin);
            }
        }
        any.then_some("*")
    }

    /// Whether responses differ by origin, so that `vary` must tell caches.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.origins.iter().any(|rule| rule != "*")
    }

    /// The headers of the response to a preflight; `None` if it is refused.
    #[must_use]
    pub fn preflight(&self, asked: &Preflight<'_>) -> Option<Vec<(&'static str, String)>> {
        let origin = self.allows(asked.origin)?;
        // Method names are case-sensitive; those that browsers consider safe need no permission.
        let simple = ["GET", "HEAD", "POST"].contains(&asked.method);
        if !simple && !self.methods.iter().any(|method| method == asked.method) {
            return None;
        }
        let any = self.headers.iter().any(|header| header == "*");
        let wanted = asked
            .headers
            .split(',')
            .map(str::trim)
            .filter(|h| !h.is_empty());
        let mut allowed = Vec::new();
        for header in wanted {
            let listed = self
                .headers
                .iter()
                .any(|rule| rule.eq_ignore_ascii_case(header));
            // The wildcard does not cover this header.
            let starred = any && !header.eq_ignore_ascii_case("authorization");
            if !listed && !starred {
                return None;
            }
            allowed.push(header.to_ascii_lowercase());
        }
        let mut out = self.shared(origin);
        out.push(("access-control-allow-methods", self.methods.join(", ")));
        if !allowed.is_empty() {
            out.push(("access-control-allow-headers", allowed.join(", ")));
        }
        out.push((
            "access-control-max-age",
            (self.max_age.as_millis() / 1000).to_string(),
        ));
        Some(out)
    }

    /// The headers of the response to a call from `origin`; empty if the page may not read it.
    #[must_use]
    pub fn answer(&self, origin: &str) -> Vec<(&'static str, String)> {
        let Some(origin) = self.allows(origin) else {
            return Vec::new();
        };
        let mut out = self.shared(origin);
        if !self.expose.is_empty() {
            out.push(("access-control-expose-headers", self.expose.join(", ")));
        }
        out
    }

    fn shared(&self, origin: &str) -> Vec<(&'static str, String)> {
        let mut out = vec![("access-control-allow-origin", origin.to_owned())];
        if self.credentials {
            out.push(("access-control-allow-credentials", "true".to_owned()));
        }
        out
    }
}

/// Whether a rule matches `origin`. A star stands for one or more labels.
fn matches(rule: &str, origin: &str) -> bool {
    let Some((scheme, rest)) = rule.split_once("://*") else {
        return rule == origin;
    };
    let host = origin
        .strip_prefix(scheme)
        .and_then(|host| host.strip_prefix("://"));
    let front = host.and_then(|host| host.strip_suffix(rest));
    front.is_some_and(|front| {
        !front.is_empty()
            && front
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str]) -> Cors {
        Cors {
            origins: origins.iter().map(|&o| o.to_owned()).collect(),
            ..Cors::default()
        }
    }

    fn ask<'a>(origin: &'a str, method: &'a str, headers: &'a str) -> Preflight<'a> {
        Preflight {
            origin,
            method,
            headers,
        }
    }

    #[test]
    fn origins_match_whole() {
        let rules = cors(&["https://a.example", "https://*.b.example:8443"]);
        for good in [
            "https://a.example",
            "https://x.b.example:8443",
            "https://x.y.b.example:8443",
        ] {
            assert_eq!(rules.allows(good), Some(good));
        }
        for bad in [
            "http://a.example",
            "https://a.example:444",
            "https://a.example.evil",
            "https://b.example:8443",
            "https://.b.example:8443x",
            "https://evil/.b.example:8443",
            "https://x@y.b.example:8443",
            "null",
            "",
        ] {
            assert_eq!(rules.allows(bad), None, "{bad}");
        }
        assert_eq!(cors(&["*"]).allows("https://any.example"), Some("*"));
        assert!(rules.varies() && !cors(&["*"]).varies());
    }

    #[test]
    fn a_preflight_is_answered_for_what_is_listed_only() {
        let mut rules = cors(&["https://a.example"]);
        rules.methods.push("PUT".into());
        rules.headers = vec!["X-One".into()];
        rules.credentials = true;
        let origin = "https://a.example";
        let answer = rules
            .preflight(&ask(origin, "PUT", "x-one"))
            .expect("allowed");
        assert_eq!(
            answer,
            [
                ("access-control-allow-origin", origin.to_owned()),
                ("access-control-allow-credentials", "true".to_owned()),
                (
                    "access-control-allow-methods",
                    "GET, HEAD, POST, PUT".to_owned()
                ),
                ("access-control-allow-headers", "x-one".to_owned()),
                ("access-control-max-age", "600".to_owned()),
            ]
        );
        assert!(rules.preflight(&ask(origin, "GET", "")).is_some());
        for refused in [
            ask("https://b.example", "GET", ""),
            ask(origin, "DELETE", ""),
            ask(origin, "put", ""),
            ask(origin, "PUT", "x-one, x-two"),
        ] {
            assert!(rules.preflight(&refused).is_none(), "{refused:?}");
        }
    }

    #[test]
    fn a_star_for_headers_leaves_out_authorization() {
        let mut rules = cors(&["*"]);
        rules.headers = vec!["*".into()];
        assert!(rules.preflight(&ask("https://a", "GET", "x-any")).is_some());
        assert!(
            rules
                .preflight(&ask("https://a", "GET", "Authorization"))
                .is_none()
        );
        rules.headers.push("authorization".into());
        assert!(
            rules
                .preflight(&ask("https://a", "GET", "Authorization"))
                .is_some()
        );
    }

    #[test]
    fn an_answer_says_what_pages_may_read() {
        let mut rules = cors(&["https://a.example"]);
        rules.expose = vec!["x-count".into()];
        assert_eq!(rules.answer("https://b.example"), []);
        assert_eq!(
            rules.answer("https://a.example"),
            [
                (
                    "access-control-allow-origin",
                    "https://a.example".to_owned()
                ),
                ("access-control-expose-headers", "x-count".to_owned()),
            ]
        );
    }
}
