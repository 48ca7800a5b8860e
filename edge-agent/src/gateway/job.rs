//! Calls of jobs: the dispatcher shows a pass, and the app's policy is not asked. Whoever submitted the job had the right to; the app may
//! still see who calls in `x-fdn-identity`. Without a pass that holds, a call is judged like any other, and its header goes no further.

use actix_http::RequestHead;
use fdn_core::api::header;
use fdn_core::job::JobPass;
use fdn_core::{HostName, Timestamp};
use fdn_service::secret::Secret;

/// Who calls, if it is a job with a pass for this host that has not ended.
pub(super) fn identity(
    key: &Secret,
    head: &RequestHead,
    host: &str,
    now: Timestamp,
) -> Option<http::HeaderValue> {
    let mut shown = head.headers().get_all(header::JOB);
    // Two of them are as bad as none: nobody can tell which is meant.
    let value = shown.next().filter(|_| shown.next().is_none())?;
    let pass: JobPass = value.to_str().ok()?.parse().ok()?;
    let host = HostName::parse_lenient(host).ok()?;
    let proven = key.derive(&pass.claim_at(&host)).matches(&pass.proof);
    if !proven || pass.expires_at <= now {
        return None;
    }
    http::HeaderValue::from_str(&pass.identity()).ok()
}

#[cfg(test)]
mod tests {
    use actix_http::HttpMessage as _;
    use actix_http::test::TestRequest;
    use fdn_core::JobId;

    use super::*;

    fn shown(key: &Secret, host: &str, passes: &[String]) -> Option<http::HeaderValue> {
        let mut request = TestRequest::default();
        for pass in passes {
            request.append_header((header::JOB, pass.as_str()));
        }
        let request = request.finish();
        assert_eq!(request.headers().len(), passes.len());
        identity(key, request.head(), host, Timestamp(1000))
    }

    #[test]
    fn only_a_pass_of_this_network_for_this_host_and_time_counts() {
        let key = Secret::random().expect("random");
        let other = Secret::random().expect("random");
        let pass = |key: &Secret, host: &str, until: u64| {
            let (job, expires_at) = (JobId::from_uuid(uuid::Uuid::from_u128(5)), Timestamp(until));
            let claim = JobPass::claim(&host.parse().expect("host"), job, 1, expires_at);
            let proof = key.derive(&claim).expose().to_owned();
            JobPass {
                job,
                attempt: 1,
                expires_at,
                proof,
            }
            .to_string()
        };
        let good = pass(&key, "a.fn.test", 1001);
        let named = shown(&key, "A.fn.test:8080", std::slice::from_ref(&good)).expect("counts");
        assert!(named.to_str().expect("text").starts_with("job:job_"));
        assert_eq!(shown(&key, "b.fn.test", std::slice::from_ref(&good)), None);
        assert_eq!(
            shown(&other, "a.fn.test", std::slice::from_ref(&good)),
            None
        );
        assert_eq!(
            shown(&key, "a.fn.test", &[pass(&key, "a.fn.test", 1000)]),
            None
        );
        assert_eq!(
            shown(&key, "a.fn.test", &[good.clone(), good.clone()]),
            None
        );
        assert_eq!(shown(&key, "a.fn.test", &[]), None);
        assert_eq!(shown(&key, "a.fn.test", &["x".to_owned()]), None);
        let forged = good.replace(";1;", ";2;");
        assert_eq!(shown(&key, "a.fn.test", &[forged]), None);
    }
}
