//! The life cycle of an instance.
//!
//! | state | `Placed` | `Started` | `Assigned` | `Finished` | `Drain` | `Ended` |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | `Pending`: asked for, on no node yet | Starting | – | – | – | Gone | Gone |
//! | `Starting`: on a node, not ready | – | Idle | – | – | Draining | Gone |
//! | `Idle`: warm, runs nothing | – | – | Busy | – | Draining | Gone |
//! | `Busy`: runs a call | – | – | – | Idle | Draining | Gone |
//! | `Draining`: ends what it does, takes no call | – | Draining | – | Draining | Draining | Gone |
//! | `Gone`: does not come back | – | – | – | – | – | – |
//!
//! A dash is refused: the event does not belong to an instance in this state, and nothing changes.

use fdn_core::{Coded, ErrorCode};

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has been asked for and is on no node yet.
    Pending,
    /// It is on a node and not ready: the cold start.
    Starting,
    /// It is warm and runs nothing.
    Idle,
    /// It runs a call.
    Busy,
    /// It ends what it does and takes no call any more.
    Draining,
    /// It has ended, was evicted or lost, or was never started.
    Gone,
}

/// What happens to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A node has taken it.
    Placed,
    /// It is ready.
    Started,
    /// A call goes to it.
    Assigned,
    /// The call has ended.
    Finished,
    /// It shall take no further call.
    Drain,
    /// It is no more, whatever the reason.
    Ended,
}

/// An event that does not belong to an instance in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {state:?} cannot be {event:?}")]
pub struct OutOfPlace {
    /// The state.
    pub state: State,
    /// The event.
    pub event: Event,
}

impl Coded for OutOfPlace {
    fn code(&self) -> ErrorCode {
        ErrorCode::Conflict
    }
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] = [
        Self::Pending,
        Self::Starting,
        Self::Idle,
        Self::Busy,
        Self::Draining,
        Self::Gone,
    ];

    /// The state after an event.
    ///
    /// # Errors
    /// When the event does not belong to an instance in this state.
    pub const fn apply(self, event: Event) -> Result<Self, OutOfPlace> {
        use Event::{Assigned, Drain, Ended, Finished, Placed, Started};
        use State::{Busy, Draining, Gone, Idle, Pending, Starting};
        match (self, event) {
            (Pending, Placed) => Ok(Starting),
            (Starting, Started) | (Busy, Finished) => Ok(Idle),
            (Idle, Assigned) => Ok(Busy),
            (Starting | Idle | Busy, Drain) | (Draining, Started | Finished | Drain) => {
                Ok(Draining)
            }
            (Pending, Drain | Ended) | (Starting | Idle | Busy | Draining, Ended) => Ok(Gone),
            (Pending, Started | Assigned | Finished)
            | (Starting, Placed | Assigned | Finished)
            | (Idle, Placed | Started | Finished)
            | (Busy, Placed | Started | Assigned)
            | (Draining, Placed | Assigned)
            | (Gone, Placed | Started | Assigned | Finished | Drain | Ended) => {
                Err(OutOfPlace { state: self, event })
            }
        }
    }

    /// Whether an instance in this state is on a node.
    #[must_use]
    pub const fn is_on_node(self) -> bool {
        match self {
            Self::Pending | Self::Gone => false,
            Self::Starting | Self::Idle | Self::Busy | Self::Draining => true,
        }
    }
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 6] = [
        Self::Placed,
        Self::Started,
        Self::Assigned,
        Self::Finished,
        Self::Drain,
        Self::Ended,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table above, cell by cell, read from this very file.
    #[test]
    fn the_table_is_the_code() {
        let rows: Vec<Vec<&str>> = include_str!("lifecycle.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! | `"))
            .map(|row| row.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows.len(), State::ALL.len());
        for (state, row) in State::ALL.into_iter().zip(&rows) {
            assert!(row[0].starts_with(&format!("{state:?}`")), "{row:?}");
            for (event, cell) in Event::ALL.into_iter().zip(&row[1..]) {
                let after = state.apply(event);
                let expected = match *cell {
                    "–" => {
                        assert_eq!(after, Err(OutOfPlace { state, event }));
                        continue;
                    }
                    name => State::ALL.into_iter().find(|s| format!("{s:?}") == name),
                };
                assert_eq!(after.ok(), expected, "{state:?} and {event:?}");
            }
        }
        let columns = include_str!("lifecycle.rs")
            .lines()
            .find_map(|line| line.strip_prefix("//! | state | "))
            .expect("the table has a head");
        let names: Vec<String> = Event::ALL.iter().map(|e| format!("`{e:?}`")).collect();
        assert_eq!(columns.trim_end_matches(" |"), names.join(" | "));
    }

    #[test]
    fn gone_is_the_end_and_can_be_reached_from_everywhere_else() {
        for state in State::ALL {
            assert!(Event::ALL.iter().all(|&e| State::Gone.apply(e).is_err()));
            let ended = state.apply(Event::Ended);
            assert_eq!(ended.is_ok(), state != State::Gone);
        }
    }

    #[test]
    fn a_call_goes_to_an_idle_instance_only() {
        let takes: Vec<State> = State::ALL
            .into_iter()
            .filter(|state| state.apply(Event::Assigned).is_ok())
            .collect();
        assert_eq!(takes, [State::Idle]);
    }
}
