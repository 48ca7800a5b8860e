//! The state of a host name after a lookup of its proof: a pure function.

use fdn_core::{DurationMs, Timestamp};

use crate::proofs::ProofLookup;
use crate::store::domain::DomainRow;

/// Whether another app has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// No other app has it.
    Nobody,
    /// Another app has it, but the last lookup did not find that app's proof: the next app with a proof gets the name.
    Failing,
    /// Another app has it, with a valid proof.
    Other,
}

/// Returns the row after the lookup. A name whose proof is missing stays valid for the grace time; one whose lookups fail stays valid as long as
/// they do: an unreachable resolver takes no name from anybody.
#[must_use]
pub(super) fn after_lookup(
    row: &DomainRow,
    seen: &ProofLookup,
    holder: Holder,
    now: Timestamp,
    grace: DurationMs,
) -> DomainRow {
    let mut next = DomainRow {
        checked_at: Some(now),
        ..row.clone()
    };
    match seen {
        ProofLookup::Proof if holder == Holder::Other => {
            next.problem =
                Some("another app answers to this name; its owner must let it go first".to_owned());
        }
        ProofLookup::Proof => {
            next.proven = true;
            next.verified_at = row.verified_at.or(Some(now));
            next.failing_since = None;
            next.problem = None;
        }
        ProofLookup::Missing(problem) => {
            next.problem = Some(problem.clone());
            if row.proven {
                let since = row.failing_since.unwrap_or(now);
                next.failing_since = Some(since);
                if now.get().saturating_sub(since.get()) >= grace.as_millis() {
                    next.proven = false;
                    next.verified_at = None;
                    // From here it is a claim again, which is forgotten if it stays without a proof.
                    next.failing_since = Some(now);
                }
            }
        }
        ProofLookup::Unknown(problem) => next.problem = Some(problem.clone()),
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: DurationMs = DurationMs::from_secs(100);

    fn row(proven: bool) -> DomainRow {
        DomainRow {
            app: "shop".parse().expect("app"),
            host: "shop.example.org".parse().expect("host"),
            tenant: crate::store::DEFAULT_TENANT,
            token: "t".to_owned(),
            proven,
            created_at: Timestamp(1),
            created_by: "ann".to_owned(),
            verified_at: proven.then_some(Timestamp(2)),
            checked_at: None,
            failing_since: None,
            problem: None,
        }
    }

    fn look(row: &DomainRow, seen: &ProofLookup, at: u64) -> DomainRow {
        after_lookup(row, seen, Holder::Nobody, Timestamp(at), GRACE)
    }

    #[test]
    fn a_proof_counts_from_when_it_was_seen_first() {
        let first = look(&row(false), &ProofLookup::Proof, 10);
        assert!(first.proven);
        assert_eq!(
            (first.verified_at, first.checked_at),
            (Some(Timestamp(10)), Some(Timestamp(10)))
        );
        assert_eq!(
            look(&first, &ProofLookup::Proof, 20).verified_at,
            Some(Timestamp(10))
        );
    }

    #[test]
    fn a_missing_proof_ends_it_after_the_grace_time_and_not_before() {
        let missing = ProofLookup::Missing("gone".to_owned());
        let failing = look(&row(true), &missing, 1000);
        assert!(failing.proven);
        assert_eq!(failing.failing_since, Some(Timestamp(1000)));
        let still = look(&failing, &missing, 100_999);
        assert!(still.proven);
        let back = look(&still, &ProofLookup::Proof, 100_999);
        assert_eq!((back.failing_since, back.problem), (None, None));
        let ended = look(&still, &missing, 101_000);
        assert!(!ended.proven);
        let lost = Some(Timestamp(101_000));
        assert_eq!((ended.verified_at, ended.failing_since), (None, lost));
        // Looked for in vain once more, it was not lost once more.
        assert_eq!(look(&ended, &missing, 500_000).failing_since, lost);
        let again = look(&ended, &ProofLookup::Proof, 500_000);
        assert_eq!(
            (again.verified_at, again.failing_since),
            (Some(Timestamp(500_000)), None)
        );
    }

    #[test]
    fn a_resolver_that_is_away_takes_nothing_from_anybody() {
        let away = ProofLookup::Unknown("timeout".to_owned());
        let mut kept = row(true);
        for at in (0..10_000_000).step_by(1_000_000) {
            kept = look(&kept, &away, at);
            assert!(kept.proven && kept.failing_since.is_none());
        }
        assert!(!look(&row(false), &away, 5).proven);
    }

    #[test]
    fn a_name_passes_on_only_when_its_holder_has_no_proof() {
        let with = |holder| {
            after_lookup(
                &row(false),
                &ProofLookup::Proof,
                holder,
                Timestamp(1),
                GRACE,
            )
            .proven
        };
        assert!(with(Holder::Nobody) && with(Holder::Failing) && !with(Holder::Other));
    }
}
