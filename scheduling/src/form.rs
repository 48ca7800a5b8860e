//! Which form of a function a cluster serves, if the function exists for example as a component and as a container image, for CPUs and for GPUs.
//!
//! **Problem.** A function that is built in several forms runs in each at another speed and price, and not everywhere. A GPU form that is
//! ten times faster may cost more than ten times as much; a container that is a little faster may have to be started for most calls,
//! where a component need not be. Measurements vary, and each change of form costs a start and an artifact.
//!
//! **Method.** Forms that no node of the cluster can run, or hold, are excluded. The others are judged by their response time: the run
//! time, plus the start time of an instance weighted by the share of calls that wait for it. Among the forms whose response time is
//! within the margin of the fastest, the cheapest is chosen. The form in service is kept unless it exceeds the fastest by more than twice
//! the margin, or its price exceeds that of the choice by more than the margin.
//!
//! **Complexity.** O(n) for n forms.
//!
//! **Invariants.** With constant estimates, at most one change happens; a form in service is left only for one that is faster or cheaper
//! by more than the margin, or because it can no longer run. The order of forms breaks ties only.

use std::fmt;

use fdn_core::Millis;

use crate::steer::Margin;

/// The evaluation of a form in a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormEstimate {
    /// The run time of a call.
    pub run: Millis,
    /// The mean wait for an instance to start, over all calls.
    pub cold: Millis,
    /// The price of calls, in the same unit and for the same number of calls for all forms; 0 if prices are not known.
    pub price: f64,
}

impl FormEstimate {
    /// The response time: run time plus mean wait for an instance.
    #[must_use]
    pub fn response(&self) -> Millis {
        self.run + self.cold
    }

    /// Whether all values are finite and not negative.
    fn is_one(&self) -> bool {
        let parts = [self.run.get(), self.cold.get(), self.price];
        parts.iter().all(|part| part.is_finite() && *part >= 0.0)
    }
}

/// The share of calls that wait for an instance to start: those before which no call came for as long as an idle instance is kept, if
/// calls arrive independently (a Poisson process) with this rate per second.
#[must_use]
pub fn cold_share(rate: f64, kept: Millis) -> f64 {
    let seconds = kept.get() / 1e3;
    let share = (-rate.max(0.0) * seconds.max(0.0)).exp();
    if share.is_finite() { share } else { 1.0 }
}

/// Why a form is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is the only one that can run there.
    Only,
    /// It has the shortest response time.
    Fastest,
    /// It is within the margin of the fastest, and cheaper.
    Cheaper,
    /// It is in service, and no other is better by more than the margin.
    Kept,
    /// It is being prepared; a change now would start over.
    Preparing,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Only => "the only one that runs there",
            Self::Fastest => "the fastest",
            Self::Cheaper => "as fast as any, and cheaper",
            Self::Kept => "kept: no other is better by the margin",
            Self::Preparing => "it is being made ready",
        })
    }
}

/// The form that a cluster must serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormChoice {
    /// The index of the form.
    pub form: usize,
    /// The reason.
    pub why: Reason,
}

/// Chooses among the forms of a function; `None` marks those that cannot run in the cluster. `current` is the form in service. Returns
/// `None` if no form can run.
#[must_use]
pub fn choose(
    forms: &[Option<FormEstimate>],
    current: Option<usize>,
    margin: Margin,
) -> Option<FormChoice> {
    let can = |form: usize| {
        forms
            .get(form)
            .copied()
            .flatten()
            .filter(FormEstimate::is_one)
    };
    let all: Vec<(usize, FormEstimate)> = (0..forms.len())
        .filter_map(|form| Some((form, can(form)?)))
        .collect();
    let response = |offered: &FormEstimate| offered.response().get();
    let (fastest, best) = all
        .iter()
        .min_by(|a, b| response(&a.1).total_cmp(&response(&b.1)))?;
    if all.len() == 1 {
        return Some(FormChoice {
            form: *fastest,
            why: Reason::Only,
        });
    }
    let (share, best) = (margin.get(), response(best));
    // Ties in price go to the faster form; without prices, to the fastest.
    let (wanted, taken) = all
        .iter()
        .filter(|(_, offered)| response(offered) <= best * (1.0 + share))
        .min_by(|a, b| {
            let by_price = a.1.price.total_cmp(&b.1.price);
            by_price.then_with(|| response(&a.1).total_cmp(&response(&b.1)))
        })?;
    let why = match wanted == fastest {
        true => Reason::Fastest,
        false => Reason::Cheaper,
    };
    let wanted = FormChoice { form: *wanted, why };
    let Some((form, served)) = current.and_then(|form| Some((form, can(form)?))) else {
        return Some(wanted);
    };
    let is_near = response(&served) <= best * (1.0 + 2.0 * share);
    let is_cheap = served.price <= taken.price * (1.0 + share);
    if form == wanted.form || !(is_near && is_cheap) {
        return Some(wanted);
    }
    Some(FormChoice {
        form,
        why: Reason::Kept,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn offered(run: f64, cold: f64, price: f64) -> Option<FormEstimate> {
        Some(FormEstimate {
            run: Millis::new(run),
            cold: Millis::new(cold),
            price,
        })
    }

    fn chosen(forms: &[Option<FormEstimate>], current: Option<usize>) -> Option<(usize, Reason)> {
        let chosen = choose(forms, current, Margin::default())?;
        Some((chosen.form, chosen.why))
    }

    #[test]
    fn what_cannot_run_is_no_choice() {
        assert_eq!(chosen(&[], None), None);
        assert_eq!(chosen(&[None, None], Some(1)), None);
        let forms = [None, offered(900.0, 0.0, 9.0)];
        assert_eq!(chosen(&forms, Some(0)), Some((1, Reason::Only)));
        let odd = [
            offered(f64::NAN, 0.0, 0.0),
            offered(5.0, 0.0, f64::INFINITY),
            offered(9.0, 0.0, 1.0),
        ];
        assert_eq!(chosen(&odd, None), Some((2, Reason::Only)));
    }

    #[test]
    fn the_fastest_counts_with_its_cold_starts() {
        let forms = [offered(40.0, 0.0, 0.0), offered(4.0, 0.0, 0.0)];
        assert_eq!(chosen(&forms, None), Some((1, Reason::Fastest)));
        // A container for which nearly every call has to wait.
        let forms = [offered(40.0, 0.1, 0.0), offered(4.0, 900.0, 0.0)];
        assert_eq!(chosen(&forms, None), Some((0, Reason::Fastest)));
    }

    #[test]
    fn of_forms_that_are_as_fast_the_cheaper_one() {
        let forms = [offered(10.5, 0.0, 1.0), offered(10.0, 0.0, 8.0)];
        assert_eq!(chosen(&forms, None), Some((0, Reason::Cheaper)));
        // Slower by more than the margin of a tenth: no price makes up for that.
        let forms = [offered(11.5, 0.0, 0.0), offered(10.0, 0.0, 8.0)];
        assert_eq!(chosen(&forms, None), Some((1, Reason::Fastest)));
    }

    #[test]
    fn what_is_served_stays_until_another_is_better_by_the_margin() {
        let forms = [offered(10.0, 0.0, 1.0), offered(9.0, 0.0, 1.0)];
        assert_eq!(chosen(&forms, Some(0)), Some((0, Reason::Kept)));
        let forms = [offered(10.0, 0.0, 1.0), offered(8.0, 0.0, 1.0)];
        assert_eq!(chosen(&forms, Some(0)), Some((1, Reason::Fastest)));
        let dear = [offered(10.0, 0.0, 2.0), offered(10.0, 0.0, 1.0)];
        assert_eq!(chosen(&dear, Some(0)), Some((1, Reason::Cheaper)));
        // A form that no longer exists is not in service.
        assert_eq!(chosen(&forms, Some(7)), Some((1, Reason::Fastest)));
    }

    #[test]
    fn calls_that_come_often_find_an_instance() {
        let kept = Millis::new(600_000.0);
        assert!((cold_share(0.0, kept) - 1.0).abs() < f64::EPSILON);
        assert!(cold_share(1.0, kept) < 1e-9);
        let rare = cold_share(1.0 / 600.0, kept);
        assert!((rare - (-1.0_f64).exp()).abs() < 1e-9);
        assert!((cold_share(f64::NAN, kept) - 1.0).abs() < f64::EPSILON);
    }

    fn any_forms() -> impl Strategy<Value = Vec<Option<FormEstimate>>> {
        let one = (0.0..1e4, 0.0..1e4, 0.0..100.0)
            .prop_map(|(run, cold, price)| offered(run, cold, price));
        proptest::collection::vec(prop_oneof![1 => Just(None), 4 => one], 1..5)
    }

    proptest! {
        #[test]
        fn what_does_not_change_changes_a_form_once(
            forms in any_forms(),
            current in proptest::option::of(0_usize..5),
        ) {
            let first = choose(&forms, current, Margin::default());
            prop_assert_eq!(first.is_none(), forms.iter().all(Option::is_none));
            if let Some(first) = first {
                prop_assert!(forms[first.form].is_some(), "one that cannot run");
                let again = choose(&forms, Some(first.form), Margin::default());
                prop_assert_eq!(again.map(|again| again.form), Some(first.form));
            }
        }

        #[test]
        fn a_form_is_left_only_for_a_faster_or_a_cheaper_one(
            forms in any_forms(),
            current in 0_usize..5,
        ) {
            let served = forms.get(current).copied().flatten();
            let next = choose(&forms, Some(current), Margin::default());
            if let (Some(served), Some(next)) = (served, next)
                && next.form != current
                && let Some(to) = forms[next.form]
            {
                let fastest = forms.iter().flatten().map(|one| one.response().get());
                let fastest = fastest.fold(f64::INFINITY, f64::min);
                let is_slow = served.response().get() > fastest * 1.1;
                prop_assert!(is_slow || to.price * 1.1 < served.price);
            }
        }

        #[test]
        fn estimates_that_vary_by_less_than_half_the_margin_move_nothing(
            runs in proptest::collection::vec(0.955_f64..1.045, 6),
        ) {
            let forms = |of: &[f64]| [offered(100.0 * of[0], 0.0, 1.0), offered(100.0 * of[1], 0.0, 1.0)];
            let mut served = choose(&forms(&runs[..2]), None, Margin::default()).map(|one| one.form);
            let first = served;
            for pair in runs.chunks(2) {
                served = choose(&forms(pair), served, Margin::default()).map(|one| one.form);
                prop_assert_eq!(served, first);
            }
        }
    }
}
