//! Functions and their requests, each function by itself.

use fdn_scheduling::scale::Profile;

use crate::invocations::Workload;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it comes, in ms.
    pub at: f64,
    /// How long it runs, in ms.
    pub exec: f64,
}

/// A function and all its requests, in the order in which they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name in the trace.
    pub name: String,
    /// What a scheduler may know of it.
    pub profile: Profile,
    /// Its requests.
    pub requests: Vec<Request>,
}

impl Function {
    /// A function with given requests, in the order in which they come.
    #[must_use]
    pub fn new(name: impl Into<String>, profile: Profile, requests: Vec<Request>) -> Self {
        Self {
            name: name.into(),
            profile,
            requests,
        }
    }

    /// The functions of a trace that have requests, in the order of their names.
    #[must_use]
    pub fn all(workload: &Workload) -> Vec<Self> {
        let function = |function: &crate::invocations::Function| {
            let known = &function.profile;
            let profile = Profile {
                exec: known.execution(),
                cold: known.cold_start(),
            };
            Self::new(function.name.clone(), profile, Vec::new())
        };
        let mut functions: Vec<Self> = workload.functions.iter().map(function).collect();
        for invocation in &workload.invocations {
            functions[invocation.function].requests.push(Request {
                at: invocation.arrival.get(),
                exec: invocation.execution.get(),
            });
        }
        functions.retain(|function| !function.requests.is_empty());
        functions.sort_by(|a, b| a.name.cmp(&b.name));
        functions
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{MebiBytes, Millis};
    use fdn_scheduling::invocation;

    use super::*;
    use crate::invocations::{Durations, Invocation};

    #[test]
    fn every_function_that_is_invoked_has_its_own_requests() {
        let function = |name: &str, cold| crate::invocations::Function {
            name: name.to_owned(),
            profile: invocation::Profile::new(Millis::new(7.0), Millis::new(cold), MebiBytes(1))
                .expect("valid"),
            durations: Durations::new([7.0; 7]).expect("valid"),
        };
        let invocation = |arrival, function, execution| Invocation {
            arrival: Millis::new(arrival),
            function,
            execution: Millis::new(execution),
        };
        let workload = Workload {
            functions: vec![function("c", 1.0), function("b", 2.0), function("a", 3.0)],
            invocations: vec![
                invocation(1.0, 2, 4.0),
                invocation(2.0, 0, 5.0),
                invocation(3.0, 2, 6.0),
            ],
        };
        let found = Function::all(&workload);
        let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        let requests = [(1.0, 4.0), (3.0, 6.0)].map(|(at, exec)| Request { at, exec });
        assert_eq!(found[0].requests, requests);
        let profile = found[0].profile;
        assert_eq!((profile.exec.get(), profile.cold.get()), (7.0, 3.0));
    }
}
